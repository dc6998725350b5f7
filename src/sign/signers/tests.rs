//! Allowed-signers files: what is read, what is refused, who is allowed.

use super::*;

const ADA: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
const NAMESPACE: &str = "agentproto-ack";

fn ada() -> PublicKey {
    PublicKey::from_openssh(ADA).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn authorize(file: &str, principal: &str) -> Result<(), Why> {
    let signers = Signers::parse(file.as_bytes()).unwrap();
    signers.authorize(&ada(), principal, NAMESPACE, at("2026-01-31T12:00:00Z"))
}

#[test]
fn reads_what_openssh_reads() {
    let lines = [
        format!("a@x {ADA}"),
        format!("  a@x\t{ADA} a comment of several words"),
        format!("\"a@x\" {ADA}"),
        format!("b@x,a@x {ADA}"),
        format!("*@x {ADA}"),
        format!("?@x {ADA}"),
        format!("* namespaces=\"{NAMESPACE}\" {ADA}"),
        format!("a@x namespaces=\"git,agentproto-*\" {ADA}"),
        format!("a@x NAMESPACES=\"{NAMESPACE}\",valid-after=\"20260101Z\" {ADA}"),
        format!("a@x valid-after=\"202601311200Z\",valid-before=\"20260131120001Z\" {ADA}"),
        format!("# nobody\n\n   \nb@x {ADA}\na@x {ADA}\n"),
    ];
    for line in lines {
        assert_eq!(authorize(&line, "a@x"), Ok(()), "{line}");
    }
}

#[test]
fn keys_of_other_types_do_not_spoil_the_file() {
    let other = "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBC\
        FB21mz4k6emBkPIBjcHYyO8h7GQQ1fEwvqW6Z3e4Xlr3PG8rVlBF5Vv5Rk5HPzXiEmGjFzoX8b2zUJ1OE\
        d3F3yQ3GSaEcnKLEcf7pfbZAOzTFYMGvDJ4jDKqwW9UEtBw==";
    let hardware = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAICFo/k5L\
        U8863u66YC9eUO2170QduohPURkQnbLa/dczAAAABHNzaDo=";
    assert_eq!(authorize(&format!("a@x {hardware}\na@x {ADA}"), "a@x"), Ok(()));
    // Whether the point is on the curve is not this file's business.
    assert_eq!(authorize(&format!("a@x {other}\na@x {ADA}"), "a@x"), Ok(()));
}

#[test]
fn each_refusal_says_what_is_wrong() {
    let why = |line: &str| authorize(&format!("{line} {ADA}"), "a@x").unwrap_err().to_string();
    assert_eq!(why("b@x"), "the key is listed for 'b@x', required 'a@x'");
    assert_eq!(why("*,!a@x"), "the key is listed for '*,!a@x', required 'a@x'");
    assert_eq!(why("A@X"), "the key is listed for 'A@X', required 'a@x'");
    assert_eq!(
        why("a@x namespaces=\"git\""),
        "the key is listed for namespaces 'git', required 'agentproto-ack'"
    );
    // Whoever it is listed as: no name would help.
    assert_eq!(
        why("b@x namespaces=\"git\""),
        "the key is listed for namespaces 'git', required 'agentproto-ack'"
    );
    assert_eq!(
        why("a@x valid-after=\"20260201Z\""),
        "the key is valid after 2026-02-01T00:00:00.000Z"
    );
    assert_eq!(
        why("a@x valid-before=\"20260131115959\""),
        "the key was valid before 2026-01-31T11:59:59.000Z"
    );
    let authority = authorize(&format!("a@x cert-authority {ADA}"), "a@x").unwrap_err();
    assert_eq!(authority.code(), Code::CertAuthorityUnsupported);
    let bob = PublicKey::from_openssh(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOyiEPKHVQFBLSIs1FXmOv+CkVgRrLzWAE4SPuG8Z5Bc",
    )
    .unwrap();
    let signers = Signers::parse(format!("a@x {ADA}").as_bytes()).unwrap();
    let why = signers.authorize(&bob, "a@x", NAMESPACE, at("2026-01-31T12:00:00Z")).unwrap_err();
    assert_eq!(why, Why::NotListed(fingerprint(&bob)));
}

#[test]
fn one_good_line_is_enough_and_the_most_exact_reason_wins() {
    let over = format!("a@x valid-before=\"20200101Z\" {ADA}\n");
    assert!(matches!(authorize(&format!("{over}b@x {ADA}"), "a@x"), Err(Why::Over(_))));
    assert_eq!(authorize(&format!("{over}a@x {ADA}"), "a@x"), Ok(()));
}

#[test]
fn a_malformed_line_makes_the_whole_file_unusable() {
    let bad = [
        "a@x",
        "a@x ",
        "a@x ssh-ed25519",
        "a@x ssh-ed25519 !!!!",
        "a@x ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti",
        ADA,
        "\"a@x",
        "\"\" KEY",
        "a@x,,b@x KEY",
        "! KEY",
        "a@x no-such-option KEY",
        "a@x namespaces KEY",
        "a@x namespaces=git KEY",
        "a@x namespaces=\"git KEY",
        "a@x namespaces=\"\" KEY",
        "a@x namespaces=\"git\"KEY",
        "a@x namespaces=\"git\",namespaces=\"x\" KEY",
        "a@x namespaces=\"git\", KEY",
        "a@x valid-before=\"2026\" KEY",
        "a@x valid-before=\"20261301\" KEY",
        "a@x valid-before=\"20260101ZZ\" KEY",
        "a@x valid-after=\"20260102\",valid-before=\"20260101\" KEY",
        "a@x cert-authority",
    ];
    for line in bad {
        let file = format!("a@x {ADA}\n# a comment\n{}\n", line.replace("KEY", ADA));
        match Signers::parse(file.as_bytes()) {
            Err(why @ SignersError::Line { line: 3, .. }) => {
                assert_eq!(why.code(), Code::SignersInvalid);
            }
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(Signers::parse(b"\xff").unwrap_err(), SignersError::NotText);
    assert_eq!(Signers::parse(b"# nobody\n\n").unwrap_err(), SignersError::Empty);
}

#[test]
fn the_signer_is_the_preferred_name_else_the_first_that_is_no_pattern() {
    let name = |file: &str, preferred| {
        let signers = Signers::parse(file.as_bytes()).unwrap();
        signers.principal_for(&ada(), NAMESPACE, preferred)
    };
    let file = format!("*@x,!b@x,b@x,c@x,d@x {ADA}\ne@y {ADA}");
    assert_eq!(name(&file, Some("any@x")).as_deref(), Some("any@x"));
    assert_eq!(name(&file, Some("b@x")).as_deref(), Some("c@x"));
    assert_eq!(name(&file, Some("e@y")).as_deref(), Some("e@y"));
    assert_eq!(name(&file, None).as_deref(), Some("c@x"));
    assert_eq!(name(&format!("*@x {ADA}"), None), None);
    assert_eq!(name(&format!("a@x namespaces=\"git\" {ADA}"), Some("a@x")), None);
    assert_eq!(name(&format!("a@x cert-authority {ADA}"), Some("a@x")), None);
}

#[test]
fn patterns_match_as_in_ssh() {
    let cases = [
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abcd", false),
        ("*a*b*", "xxaxxbxx", true),
        ("*a*b*", "xxbxxaxx", false),
        ("?", "", false),
        ("?", "é", false),
        ("**", "", true),
        ("", "", true),
        ("", "a", false),
        ("a", "A", false),
        ("!a,*", "b", true),
        ("!a,*", "a", false),
        ("!a", "b", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}
