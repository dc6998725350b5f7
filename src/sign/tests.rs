//! Keys, signatures and signers, against keys made by ssh-keygen.

use super::{
    choose::{SignersInForce, SignersSource, load_signing_key, own_key_file},
    key::{KeyError, Named},
    *,
};
use crate::{
    code::Code,
    domain::ack::{AckStatement, Decision},
    store::{
        settings::KnownPath,
        trusted::{Trust, testing::Lab},
    },
};
use ssh_key::{
    Algorithm, HashAlg, LineEnding, PublicKey, Signature, SshSig,
    public::{KeyData, SkEd25519},
    sha2::Digest,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const EMAIL: &str = "ada@example.invalid";

fn ed25519(lab: &Lab, name: &str) -> PathBuf {
    lab.ssh_key(name, &["-t", "ed25519", "-N", ""])
}

fn ecdsa(lab: &Lab, name: &str) -> PathBuf {
    lab.ssh_key(name, &["-t", "ecdsa", "-b", "256", "-N", ""])
}

fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

fn statement(key: &key::SigningKey) -> AckStatement {
    AckStatement {
        decision: Decision::Approve,
        repo: "1".repeat(40),
        policy: "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap(),
        request: "2".repeat(40).parse().unwrap(),
        candidate: "3".repeat(40).parse().unwrap(),
        parent: "4".repeat(40).parse().unwrap(),
        tree: "5".repeat(40).parse().unwrap(),
        branch: "refs/heads/main".into(),
        gates: "ab".repeat(32),
        signer: EMAIL.into(),
        key: key.fingerprint(),
        issued: now(),
        expires: now().plus_ms(86_400_000),
        reason: "looks right".into(),
    }
}

fn signed(key: &key::SigningKey) -> AckLine {
    sign(statement(key), key, None).unwrap()
}

fn signers(text: &str) -> Signers {
    Signers::parse(text.as_bytes()).unwrap()
}

/// `ssh-keygen -Y sign` in this namespace, as the one base64 word of a line.
fn sign_with_openssh(lab: &Lab, key: &Path, more: &[&str], message: &str) -> String {
    let file = lab.home().join("message");
    fs::write(&file, message).unwrap();
    let mut args = vec!["-q", "-Y", "sign", "-f", key.to_str().unwrap()];
    args.extend_from_slice(more);
    args.push(file.to_str().unwrap());
    lab.run("ssh-keygen", &args);
    let sig = file.with_extension("sig");
    let armoured = fs::read_to_string(&sig).unwrap();
    fs::remove_file(sig).unwrap();
    armoured.lines().filter(|line| !line.starts_with("-----")).collect()
}

#[test]
fn openssh_accepts_what_is_signed_here() {
    let lab = Lab::new();
    for path in [ed25519(&lab, "ed"), ecdsa(&lab, "ec")] {
        let line = signed(&key::load(&path).unwrap());
        let text = line.encode();
        let (message, sig) = text.rsplit_once(" sig=").unwrap();
        fs::write(lab.home().join("allowed"), format!("{EMAIL} {}\n", lab.words(&path))).unwrap();
        fs::write(lab.home().join("message"), message).unwrap();
        let folded: Vec<&str> =
            sig.as_bytes().chunks(70).map(|c| std::str::from_utf8(c).unwrap()).collect();
        let pem = format!(
            "-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n",
            folded.join("\n")
        );
        fs::write(lab.home().join("sig"), pem).unwrap();
        let verify = "ssh-keygen -Y verify -f \"$HOME/allowed\" -I ada@example.invalid \
            -n agentproto-ack -s \"$HOME/sig\" < \"$HOME/message\"";
        let said = lab.run("sh", &["-c", verify]);
        assert!(said.starts_with("Good \"agentproto-ack\" signature for ada@example.invalid"));
    }
}

#[test]
fn what_openssh_signs_is_accepted_here() {
    let lab = Lab::new();
    for path in [ed25519(&lab, "ed"), ecdsa(&lab, "ec")] {
        let key = key::load(&path).unwrap();
        let statement = statement(&key);
        let sig = sign_with_openssh(&lab, &path, &["-n", NAMESPACE], &payload(&statement));
        let line = AckLine { statement, sig };
        assert_eq!(AckLine::parse(&line.encode()).unwrap(), line);
        judge(&line, &signers(&format!("{EMAIL} {}", lab.words(&path))), now()).unwrap();
    }
}

#[test]
fn case_132_another_namespace_or_hash_does_not_count() {
    let lab = Lab::new();
    let path = ed25519(&lab, "ed");
    let verify = |more: &[&str]| ssh::verify(&sign_with_openssh(&lab, &path, more, "m"), b"m");
    assert!(verify(&["-n", NAMESPACE]).is_ok());
    let why = verify(&["-n", "file"]).unwrap_err();
    assert_eq!(why.to_string(), "the signature is for namespace 'file', expected 'agentproto-ack'");
    assert_eq!(why.outcome(), AckOutcome::Unauthorized);
    let why = verify(&["-n", NAMESPACE, "-O", "hashalg=sha256"]).unwrap_err();
    assert_eq!(why.to_string(), "not an ssh signature: hash sha256, expected sha512");
    assert_eq!(why.outcome(), AckOutcome::Malformed);
}

#[test]
fn signatures_of_other_key_types_are_unauthorized() {
    let lab = Lab::new();
    let rsa = lab.ssh_key("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]);
    let p384 = lab.ssh_key("p384", &["-t", "ecdsa", "-b", "384", "-N", ""]);
    for path in [rsa, p384] {
        let sig = sign_with_openssh(&lab, &path, &["-n", NAMESPACE], "m");
        let why = ssh::verify(&sig, b"m").unwrap_err();
        assert!(matches!(why, SigError::KeyType(_)), "{why}");
        assert_eq!(why.outcome(), AckOutcome::Unauthorized);
    }
}

#[test]
fn a_changed_statement_is_forged() {
    let lab = Lab::new();
    let path = ed25519(&lab, "ed");
    let allowed = signers(&format!("{EMAIL} {}", lab.words(&path)));
    let good = signed(&key::load(&path).unwrap());
    judge(&good, &allowed, now()).unwrap();
    let outcome = |change: &dyn Fn(&mut AckStatement)| {
        let mut line = good.clone();
        change(&mut line.statement);
        judge(&line, &allowed, now()).unwrap_err().outcome()
    };
    assert_eq!(outcome(&|s| s.decision = Decision::Reject), AckOutcome::Forged);
    assert_eq!(outcome(&|s| s.candidate = "9".repeat(40).parse().unwrap()), AckOutcome::Forged);
    assert_eq!(outcome(&|s| s.branch = "refs/heads/other".into()), AckOutcome::Forged);
    assert_eq!(outcome(&|s| s.expires = s.expires.plus_ms(1)), AckOutcome::Forged);
    assert_eq!(outcome(&|s| s.reason.clear()), AckOutcome::Forged);
}

/// What a line is worth to whoever listed this key.
fn worth(text: &str, listed: &Signers) -> Result<(), AckOutcome> {
    let line = AckLine::parse(text).map_err(|_| AckOutcome::Malformed)?;
    judge(&line, listed, now()).map_err(|bad| bad.outcome())
}

#[test]
fn a_line_changed_at_any_place_in_any_way_is_worth_nothing() {
    let lab = Lab::new();
    let key = key::load(&ed25519(&lab, "ada")).unwrap();
    let listed = signers(&format!("{EMAIL} {}\n", key::public_words(key.public()).unwrap()));
    let good = signed(&key).encode();
    assert_eq!(worth(&good, &listed), Ok(()));
    let mut read = 0;
    for at in 0..=good.len() {
        let (head, tail) = good.split_at(at);
        let rest = tail.get(1..).unwrap_or_default();
        let byte = tail.as_bytes().first().copied();
        let mut others = vec![head.to_owned(), format!("{head}{rest}")];
        others.extend(
            [" ", "\t", "\r", "\n", "\0", "%20", "\u{a0}", "=", "A"]
                .map(|new| format!("{head}{new}{tail}")),
        );
        if let Some(byte) = byte {
            let new = char::from(byte);
            others.push(format!("{head}{new}{tail}"));
            others.push(format!("{head}%{byte:02X}{rest}"));
            others.push(format!("{head}%{byte:02x}{rest}"));
            others.push(format!("{head}{}{rest}", new.to_ascii_uppercase()));
            others.push(format!("{head}{}{rest}", new.to_ascii_lowercase()));
            others.push(format!("{head}{}{rest}", if new == '0' { '1' } else { '0' }));
        }
        // Looking at a signature takes its time: at every third place is enough.
        let is_looked_at = |other: &String| at % 3 == 0 || AckLine::parse(other).is_err();
        for other in others.into_iter().filter(|other| *other != good && is_looked_at(other)) {
            let worth = worth(&other, &listed).unwrap_err();
            // The signature itself names a key and what it was made for.
            let in_sig = worth == AckOutcome::Unauthorized && at > good.find(" sig=").unwrap();
            assert!(
                in_sig || matches!(worth, AckOutcome::Malformed | AckOutcome::Forged),
                "{worth}: {other}"
            );
            read += usize::from(worth == AckOutcome::Forged);
        }
    }
    // Many of them read well, so that the signature alone tells.
    assert!(read > 200, "{read}");
}

#[test]
fn a_line_that_names_another_key_is_forged() {
    let lab = Lab::new();
    let (ada, eve) = (ed25519(&lab, "ada"), ed25519(&lab, "eve"));
    let both = format!("{EMAIL} {}\n{EMAIL} {}", lab.words(&ada), lab.words(&eve));
    let eve = key::load(&eve).unwrap();
    let statement = statement(&key::load(&ada).unwrap());
    let sig = ssh::sign(&eve, payload(&statement).as_bytes(), None).unwrap();
    let why = judge(&AckLine { statement, sig }, &signers(&both), now()).unwrap_err();
    assert!(matches!(why, BadAck::OtherKey { .. }), "{why}");
    assert_eq!(why.outcome(), AckOutcome::Forged);
}

#[test]
fn case_125_a_good_signature_of_a_stranger_is_unauthorized() {
    let lab = Lab::new();
    let (ada, eve) = (ed25519(&lab, "ada"), ed25519(&lab, "eve"));
    let line = signed(&key::load(&eve).unwrap());
    let why = judge(&line, &signers(&format!("{EMAIL} {}", lab.words(&ada))), now()).unwrap_err();
    assert_eq!(why.to_string(), format!("key {} is not an allowed signer", line.statement.key));
    assert_eq!(why.outcome(), AckOutcome::Unauthorized);
    let other = signers(&format!("eve@example.invalid {}", lab.words(&eve)));
    let why = judge(&line, &other, now()).unwrap_err();
    assert_eq!(
        why.to_string(),
        "the key is listed for 'eve@example.invalid', required 'ada@example.invalid'"
    );
}

#[test]
fn broken_signature_bytes_are_malformed_and_broken_signatures_forged() {
    let lab = Lab::new();
    let key = key::load(&ed25519(&lab, "ed")).unwrap();
    let sig = ssh::sign(&key, b"m", None).unwrap();
    let outcome = |sig: &str| ssh::verify(sig, b"m").unwrap_err().outcome();
    for broken in ["", "AAAA", &sig[4..], &sig[..sig.len() - 4], &format!("{sig}AAAA"), "é", "a\nb"]
    {
        assert_eq!(outcome(broken), AckOutcome::Malformed, "{broken}");
    }
    let at = sig.len() - 8;
    let other = if sig.as_bytes()[at] == b'A' { "B" } else { "A" };
    assert_eq!(outcome(&format!("{}{other}{}", &sig[..at], &sig[at + 1..])), AckOutcome::Forged);
    assert_eq!(ssh::verify(&sig, b"n").unwrap_err().outcome(), AckOutcome::Forged);
}

#[test]
fn a_signature_has_one_spelling() {
    let lab = Lab::new();
    let sig = ssh::sign(&key::load(&ed25519(&lab, "ed")).unwrap(), b"m", None).unwrap();
    for at in 0..=sig.len() {
        for more in ["\n", "\r", "\r\n", " ", "=", "\n-----END SSH SIGNATURE-----\n"] {
            let other = format!("{}{more}{}", &sig[..at], &sig[at..]);
            assert!(ssh::verify(&other, b"m").is_err(), "{other:?}");
        }
    }
}

#[test]
fn the_same_bytes_armoured_are_what_the_library_reads() {
    let lab = Lab::new();
    let key = key::load(&ed25519(&lab, "ed")).unwrap();
    let expected = key.private().unwrap().sign(NAMESPACE, HashAlg::Sha512, b"m").unwrap();
    let pem = expected.to_pem(LineEnding::LF).unwrap();
    assert_eq!(SshSig::from_pem(&pem).unwrap(), expected);
    let joined: String = pem.lines().filter(|l| !l.starts_with('-')).collect();
    assert_eq!(ssh::sign(&key, b"m", None).unwrap(), joined);
}

#[test]
fn unusable_keys_are_refused_by_name() {
    let lab = Lab::new();
    let rsa = lab.ssh_key("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]);
    let pem = lab.ssh_key("pem", &["-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM"]);
    let p384 = lab.ssh_key("p384", &["-t", "ecdsa", "-b", "384", "-N", ""]);
    let lone = ed25519(&lab, "lone");
    fs::remove_file(&lone).unwrap();
    let text = lab.home().join("text");
    fs::write(&text, "hello").unwrap();
    let code = |path: &Path| key::load(path).unwrap_err().code();
    for path in [&rsa, &rsa.with_extension("pub"), &pem, &p384.with_extension("pub")] {
        assert_eq!(code(path), Code::KeyTypeUnsupported, "{}", path.display());
    }
    // One in some hundred is short by a byte, which the library cannot read at all.
    assert!([Code::KeyTypeUnsupported, Code::KeyUnreadable].contains(&code(&p384)));
    assert_eq!(code(&lone), Code::KeyUnreadable);
    assert_eq!(code(&text), Code::KeyUnreadable);
}

#[test]
fn keys_that_are_not_ours_to_read_are_known_and_sign_by_a_program_alone() {
    let lab = Lab::new();
    let locked = lab.ssh_key("locked", &["-t", "ed25519", "-N", "secret"]);
    let lone = ed25519(&lab, "lone");
    let words = lab.words(&lone);
    fs::remove_file(&lone).unwrap();
    let hardware = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAICFo/k5L\
        U8863u66YC9eUO2170QduohPURkQnbLa/dczAAAABHNzaDo=";
    let file = |path: PathBuf| (key::load(&path).unwrap(), Named::File(path));
    let literal = |text: &str| {
        assert!(key::is_literal(text), "{text}");
        (key::load_literal(text).unwrap(), Named::Literal)
    };
    for (key, named) in [
        file(locked.clone()),
        file(lone.with_extension("pub")),
        literal(&format!("key::{words}")),
        literal(&words),
        literal(hardware),
    ] {
        assert_eq!(key.named(), &named);
        let error = ssh::sign(&key, b"m", None).unwrap_err();
        assert_eq!(error.code(), Code::SigningNeedsPerson, "{error}");
    }
    // Its public half names the file beside it, as for a key that signs by itself.
    let (named, _) = file(locked.with_extension("pub"));
    assert_eq!(named.named(), &Named::File(locked));
}

#[test]
fn a_literal_that_is_no_key_or_of_a_type_that_does_not_count_is_refused() {
    let lab = Lab::new();
    let rsa = lab.words(&lab.ssh_key("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]));
    let code = |literal: &str| key::load_literal(literal).unwrap_err().code();
    assert_eq!(code(&format!("key::{rsa}")), Code::KeyTypeUnsupported);
    assert_eq!(code("key::nonsense"), Code::KeyUnreadable);
    assert!(!key::is_literal("/home/ada/.ssh/id_ed25519"));
}

/// What a token would answer: a signature over the digest of the request, its flags and its counter.
fn token(lab: &Lab, flags: u8) -> (PublicKey, String) {
    fn raw<K: ssh_key::SigningKey>(key: &K, bytes: &[u8]) -> Vec<u8> {
        key.try_sign(bytes).unwrap().as_bytes().to_vec()
    }
    let inner = key::load(&ed25519(lab, &format!("token{flags}"))).unwrap();
    let ed = *inner.public().key_data().ed25519().unwrap();
    let public = PublicKey::from(KeyData::SkEd25519(SkEd25519::new(ed, "ssh:".to_owned())));
    let asked = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, b"m").unwrap();
    let tail = [&[flags][..], &7u32.to_be_bytes()].concat();
    let digest = |bytes: &[u8]| ssh_key::sha2::Sha256::digest(bytes).to_vec();
    let signed = [&digest(b"ssh:")[..], &tail, &digest(&asked)].concat();
    let made = [raw(inner.private().unwrap(), &signed), tail].concat();
    let signature = Signature::new(Algorithm::SkEd25519, made).unwrap();
    let sig = SshSig::new(public.key_data().clone(), NAMESPACE, HashAlg::Sha512, signature);
    (public, sig.unwrap().to_pem(LineEnding::LF).unwrap())
}

#[test]
fn a_token_counts_when_somebody_touched_it() {
    let lab = Lab::new();
    for (flags, touched) in [(1, true), (5, true), (0, false), (4, false)] {
        let (public, pem) = token(&lab, flags);
        let word: String = pem.lines().filter(|l| !l.starts_with("-----")).collect();
        match ssh::verify(&word, b"m") {
            Ok(key) => assert!(touched && key.key_data() == public.key_data(), "{flags}"),
            Err(why) => {
                assert!(!touched, "{flags}: {why}");
                assert_eq!(why.outcome(), AckOutcome::Unauthorized);
            }
        }
        assert_eq!(ssh::verify(&word, b"n").unwrap_err().code() == Code::Forged, touched);
        // OpenSSH leaves that to whoever asks it, and takes both for what they are.
        let (file, signers) = (lab.home().join("sig"), lab.home().join("signers"));
        fs::write(&file, &pem).unwrap();
        fs::write(&signers, format!("{EMAIL} {}\n", public.to_openssh().unwrap())).unwrap();
        let verify = "printf m | ssh-keygen -Y verify -f \"$HOME/signers\" -I ada@example.invalid \
            -n agentproto-ack -s \"$HOME/sig\" >/dev/null 2>&1 && echo good || echo bad";
        let said = lab.run("sh", &["-c", verify]);
        assert_eq!(said.trim(), "good", "{flags}");
    }
}

#[test]
fn a_public_key_selects_the_private_file_beside_it_and_must_match() {
    let lab = Lab::new();
    let (ada, eve) = (ed25519(&lab, "ada"), ed25519(&lab, "eve"));
    let loaded = key::load(&ada.with_extension("pub")).unwrap();
    assert_eq!(loaded.named(), &Named::File(ada.to_path_buf()));
    fs::copy(eve.with_extension("pub"), ada.with_extension("pub")).unwrap();
    let why = key::load(&ada.with_extension("pub")).unwrap_err();
    assert!(matches!(why, KeyError::Mismatch { .. }), "{why}");
}

#[test]
fn a_new_key_is_private_readable_by_openssh_and_never_overwrites() {
    let lab = Lab::new();
    let path = lab.home().join("new/dir/ack_ed25519");
    let made = key::make(&path, EMAIL).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let said = lab.run("ssh-keygen", &["-l", "-f", path.to_str().unwrap()]);
    assert_eq!(said, format!("256 {} {EMAIL} (ED25519)\n", made.fingerprint()));
    let derived = lab.run("ssh-keygen", &["-y", "-f", path.to_str().unwrap()]);
    assert_eq!(derived, fs::read_to_string(path.with_extension("pub")).unwrap());
    assert_eq!(derived, format!("{} {EMAIL}\n", key::public_words(made.public()).unwrap()));
    let before = fs::read(&path).unwrap();
    assert_eq!(key::make(&path, EMAIL).unwrap_err().code(), Code::Io);
    fs::remove_file(path.with_extension("pub")).unwrap();
    assert!(key::make(&path, EMAIL).is_err());
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!path.with_extension("pub").exists());
}

#[test]
fn keys_named_in_repository_scope_do_not_sign() {
    let lab = Lab::new();
    let (ada, eve) = (ed25519(&lab, "ada"), ed25519(&lab, "eve"));
    let (ada, eve) = (ada.to_str().unwrap(), eve.to_str().unwrap());
    for key in ["agentproto.signingKey", "user.signingKey"] {
        lab.git(&["config", key, eve]);
    }
    lab.git(&["config", "gpg.format", "ssh"]);
    let load = |global: &[String]| {
        let global: Vec<&str> = global.iter().map(String::as_str).collect();
        load_signing_key(&lab.open_with(&global), &lab.env(), None)
    };
    assert_eq!(load(&[]).unwrap_err().code(), Code::NoSigningKey);
    let git_key = format!("user.signingKey={ada}");
    assert_eq!(load(std::slice::from_ref(&git_key)).unwrap_err().code(), Code::NoSigningKey);
    let ssh = "gpg.format=ssh".to_owned();
    assert_eq!(
        load(&[git_key.clone(), ssh.clone()]).unwrap().named(),
        &Named::File(Path::new(ada).to_path_buf())
    );
    let ours = format!("agentproto.signingKey={eve}");
    assert_eq!(
        load(&[git_key, ssh, ours]).unwrap().named(),
        &Named::File(Path::new(eve).to_path_buf())
    );
}

#[test]
fn the_key_made_by_init_is_the_last_choice_and_no_key_steps_in_for_another() {
    let lab = Lab::new();
    let env = lab.env();
    let own = own_key_file(&env).unwrap();
    key::make(&own, EMAIL).unwrap();
    assert_eq!(
        load_signing_key(&lab.open(), &env, None).unwrap().named(),
        &Named::File(own.to_path_buf())
    );
    let repo = lab.open_with(&["agentproto.signingKey=~/gone"]);
    assert_eq!(load_signing_key(&repo, &env, None).unwrap_err().code(), Code::KeyUnreadable);
    let other = ed25519(&lab, "other");
    assert_eq!(
        load_signing_key(&repo, &env, Some(&other)).unwrap().named(),
        &Named::File(other.to_path_buf())
    );
    let why = load_signing_key(&repo, &env, Some(Path::new("gone"))).unwrap_err();
    assert!(why.to_string().starts_with("--key: cannot read key "), "{why}");
}

/// A repository with one candidate for each source of signers, known to this machine.
fn with_all_sources(lab: &Lab) -> (Vec<String>, KnownPath) {
    let words = lab.words(&ed25519(lab, "ada"));
    lab.commit(choose::RULE_FILE, &format!("trusted@example.invalid {words}\n"));
    let file = |name: &str| {
        let path = lab.home().join(name);
        fs::write(&path, format!("{name}@example.invalid {words}\n")).unwrap();
        path.display().to_string()
    };
    lab.git(&["config", "agentproto.allowedSignersFile", &file("evil")]);
    lab.git(&["config", "gpg.ssh.allowedSignersFile", &file("evil")]);
    let global = vec![
        format!("gpg.ssh.allowedSignersFile={}", file("git")),
        format!("agentproto.allowedSignersFile={}", file("ours")),
    ];
    (global, KnownPath { repo_id: lab.rev("HEAD"), trusted_ref: "refs/heads/main".into() })
}

fn in_force(lab: &Lab, global: &[String]) -> Result<SignersInForce, choose::SignersInForceError> {
    let global: Vec<&str> = global.iter().map(String::as_str).collect();
    let repo = lab.open_with(&global);
    let trust = Trust::load(&repo, &lab.env(), &[]).unwrap();
    SignersInForce::load(&repo, &lab.env(), &trust)
}

fn who(lab: &Lab, found: &SignersInForce) -> String {
    let key = PublicKey::from_openssh(&lab.words(&lab.home().join("ada"))).unwrap();
    found.signers.principal_for(&key, NAMESPACE, None).unwrap()
}

#[test]
fn signers_come_from_the_first_source_in_order_and_never_from_the_repository() {
    let lab = Lab::new();
    let (global, known) = with_all_sources(&lab);
    known.save(&lab.env(), lab.open().common_dir()).unwrap();
    let repo_user = Trust::load(&lab.open(), &lab.env(), &[]).unwrap().settings.signers_file();
    fs::create_dir_all(repo_user.parent().unwrap()).unwrap();
    fs::copy(lab.home().join("ours"), &repo_user).unwrap();
    let found = in_force(&lab, &global).unwrap();
    assert_eq!(found.source, SignersSource::RepoUser);
    assert_eq!(found.digest, crate::domain::digest::sha256(&fs::read(&repo_user).unwrap()));
    fs::remove_file(&repo_user).unwrap();
    let found = in_force(&lab, &global).unwrap();
    assert_eq!(
        (found.source.as_str(), who(&lab, &found)),
        ("global", "ours@example.invalid".into())
    );
    let found = in_force(&lab, &global[..1]).unwrap();
    assert_eq!(found.source, SignersSource::TrustedRef);
    assert_eq!(found.place, ".agentproto/allowed_signers on refs/heads/main");
    lab.git(&["rm", "-q", choose::RULE_FILE]);
    lab.git(&["commit", "-q", "-m", "none"]);
    let found = in_force(&lab, &global[..1]).unwrap();
    assert_eq!(
        (found.source.as_str(), who(&lab, &found)),
        ("global", "git@example.invalid".into())
    );
    assert_eq!(in_force(&lab, &[]).unwrap_err().code(), Code::SignersMissing);
}

#[test]
fn a_clone_nobody_introduced_has_no_say_in_its_own_signers() {
    let lab = Lab::new();
    let (global, _) = with_all_sources(&lab);
    assert_eq!(in_force(&lab, &[]).unwrap_err().code(), Code::SignersMissing);
    assert_eq!(in_force(&lab, &global[..1]).unwrap().source, SignersSource::Global);
}

#[test]
fn case_126_a_file_that_cannot_be_used_is_never_a_reason_to_ask_the_next() {
    let lab = Lab::new();
    let (global, known) = with_all_sources(&lab);
    known.save(&lab.env(), lab.open().common_dir()).unwrap();
    let ours = lab.home().join("ours");
    let code = || in_force(&lab, &global).unwrap_err().code();
    fs::write(&ours, "").unwrap();
    assert_eq!(code(), Code::SignersMissing);
    fs::write(&ours, "nonsense\n").unwrap();
    assert_eq!(code(), Code::SignersInvalid);
    fs::remove_file(&ours).unwrap();
    assert_eq!(code(), Code::SignersMissing);
    fs::create_dir(&ours).unwrap();
    assert_eq!(code(), Code::SignersInvalid);
}

/// `fixtures/wire/v1`: lines signed once, with a key that was thrown away.
#[test]
fn signed_lines_of_the_fixtures_are_still_good() {
    let signers = signers(include_str!("../../fixtures/wire/v1/allowed_signers"));
    for text in [
        include_str!("../../fixtures/wire/v1/lines/ack-approve.txt"),
        include_str!("../../fixtures/wire/v1/lines/ack-reject.txt"),
    ] {
        let line = AckLine::parse(text.trim_end()).unwrap();
        judge(&line, &signers, now()).unwrap();
        let mut other = line;
        other.statement.reason.push('!');
        let why = judge(&other, &signers, now()).unwrap_err();
        assert_eq!(why.outcome(), AckOutcome::Forged);
    }
}
