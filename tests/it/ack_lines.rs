//! Every field of a signed line, wrong in every way it can be, by the road that real lines come: the acks note of the
//! waiting candidate. None of it counts, each is turned down by its name, and what was asked is still asked.

use crate::{
    answers::{line, model, sign_line, wait, with_bob},
    env::TestEnv,
    house::{text, value},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is expected of a line: its outcome, or none where it is no ack line and nobody judges it.
type Expected = (String, String, Option<&'static str>);

const MALFORMED: Option<&str> = Some("malformed");
const FORGED: Option<&str> = Some("forged");

/// The fields in their order, after the magic word and the decision.
const FIELDS: [&str; 14] = [
    "repo",
    "policy",
    "request",
    "candidate",
    "parent",
    "tree",
    "branch",
    "gates",
    "signer",
    "key",
    "issued",
    "expires",
    "reason",
    "sig",
];

/// A valid line of what `policy` waits for, that holds something to be escaped.
fn good(env: &TestEnv, old: &str, policy: &str) -> String {
    line(env, old, policy, "ada", &[("reason", "well%20done%2C%20%C3%A9")])
}

/// Spellings that are none, whatever they would mean. `at` is the word's place, 0 the magic word.
fn spellings(words: &[&str], at: usize) -> Vec<(&'static str, String)> {
    let word = words[at];
    let with = |new: String| {
        let mut all: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        all[at] = new;
        all.join(" ")
    };
    let mut found = vec![
        ("twice", with(format!("{word} {word}"))),
        ("a space too many", with(format!(" {word}"))),
        ("a tab before", with(format!("\t{word}"))),
        ("CR behind", with(format!("{word}\r"))),
        ("NUL behind", with(format!("{word}\0"))),
        ("more behind", with(format!("{word} x=1"))),
        ("percent and no digits", with(format!("{word}%"))),
        ("no UTF-8", with(format!("{word}%FF"))),
    ];
    let missing: Vec<&str> = words[..at].iter().chain(&words[at + 1..]).copied().collect();
    found.push(("missing", missing.join(" ")));
    if at + 1 < words.len() {
        let mut moved = words.to_vec();
        moved.swap(at, at + 1);
        found.push(("behind its neighbour", moved.join(" ")));
    }
    if let Some((name, said)) = word.split_once('=') {
        found.push(("name in capitals", with(format!("{}={said}", name.to_uppercase()))));
        found.push(("a space in it", with(format!("{name}= {said}"))));
        let first = said.chars().next().unwrap();
        let escaped = format!("%{:02X}{}", u32::from(first), &said[1..]);
        found.push(("escaped without need", with(format!("{name}={escaped}"))));
        found.push(("name escaped", with(format!("%{:02X}{}", word.as_bytes()[0], &word[1..]))));
        if name != "reason" {
            found.push(("empty", with(format!("{name}="))));
        }
    } else {
        found.push(("in capitals", with(word.to_uppercase())));
    }
    found
}

/// Other values that are well written, so that only the signature tells.
fn values(env: &TestEnv, good: &str) -> Vec<(String, String)> {
    let head = env.git(&["rev-parse", "HEAD"]);
    let mut changed = vec![("decision".to_owned(), good.replacen(" approve ", " reject ", 1))];
    for name in FIELDS {
        let old = value(good, name);
        let new = match name {
            "repo" | "request" | "candidate" | "parent" | "tree" if old != head => head.clone(),
            "parent" => value(good, "tree").to_owned(),
            "policy" => "pol_01arz3ndektsv4rrffq69g5fav".to_owned(),
            "branch" => "refs/heads/other".to_owned(),
            "gates" => old.chars().rev().collect(),
            "signer" => "eve@example.invalid".to_owned(),
            "key" => format!("SHA256:{}", "A".repeat(43)),
            "issued" => "2020-01-01T00:00:00.000Z".to_owned(),
            "expires" => "2030-01-01T00:00:00.000Z".to_owned(),
            "reason" => "well+done%2C%20%C3%A9".to_owned(),
            _ => continue,
        };
        assert_ne!(old, new, "{name}");
        changed.push((
            name.to_owned(),
            good.replacen(&format!(" {name}={old}"), &format!(" {name}={new}"), 1),
        ));
    }
    // A good signature over other words, and one with a byte of it turned.
    let other = sign_line(env, "agentproto-ack/1 approve", "ada", "agentproto-ack");
    let (said, sig) = good.split_once(" sig=").unwrap();
    changed.push(("sig".to_owned(), format!("{said} sig={}", value(&other, "sig"))));
    let at = sig.len() - 30;
    let turned = if sig.as_bytes()[at] == b'A' { 'B' } else { 'A' };
    changed.push((
        "a byte of sig".to_owned(),
        format!("{said} sig={}{turned}{}", &sig[..at], &sig[at + 1..]),
    ));
    changed
}

/// Puts the lines into the note of the candidate byte for byte, which `git notes append` would tidy up.
fn plant(env: &TestEnv, candidate: &str, lines: &[Expected]) {
    let all: String = lines.iter().map(|(_, line, _)| format!("{line}\n")).collect();
    let hash = env.run("git", &["hash-object", "-w", "--stdin"]).stdin(all).done().exits(0).out();
    env.git(&["notes", "--ref=agentproto/acks", "add", "-f", "-C", hash.trim_end(), candidate]);
}

/// What became of each line, as the journal tells it.
fn outcomes(env: &TestEnv, policy: &str) -> BTreeMap<String, String> {
    let args = ["events", "--policy", policy, "--type", "ack:refused", "--limit", "1000", "--json"];
    let events = env.ap(&args).exits(0).json()["events"].as_array().unwrap().clone();
    let said = events.iter().map(|event: &Value| (text(event, "line"), text(event, "outcome")));
    let map: BTreeMap<_, _> = said.collect();
    assert_eq!(map.len(), events.len(), "a line was judged twice");
    map
}

/// Has the lines judged, and compares every outcome. Nothing of them has any effect.
fn judge(env: &TestEnv, policy: &str, mut lines: Vec<Expected>) {
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|(_, line, _)| seen.insert(line.clone()));
    assert!(lines.len() < 256, "more lines than one policy has judged: {}", lines.len());
    let candidate = text(&env.policy(policy), "candidate");
    plant(env, &candidate, &lines);
    let (refs, before) = (env.git(&["for-each-ref", "refs/heads"]), env.snapshot());
    // Twenty at a look.
    let looks = lines.len() / 20 + 1;
    for _ in 0..looks {
        wait(env, policy, 5);
    }
    let judged = outcomes(env, policy);
    let wrong: Vec<String> = lines
        .iter()
        .filter(|(_, line, want)| judged.get(line).map(String::as_str) != *want)
        .map(|(name, line, want)| format!("{name}: {:?}, not {want:?}: {line:?}", judged.get(line)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
    assert_eq!(judged.len(), lines.iter().filter(|(_, _, want)| want.is_some()).count());
    let told = env.policy(policy);
    assert_eq!((text(&told, "status"), &told["acks"]), ("awaiting-ack".into(), &json!([])));
    assert_eq!(env.git(&["for-each-ref", "refs/heads"]), refs);
    // The journal has grown, and this clone keeps where it ends.
    let but = ["ref refs/agentproto/", "home/.local/state/agentproto"];
    before.without(&but).assert_same(&env.snapshot().without(&but), "judging");
    wait(env, policy, 5);
    assert_eq!(outcomes(env, policy).len(), judged.len(), "judged again");
}

/// The answer that is one still counts after all that.
fn still_lands(env: &TestEnv, policy: &str) {
    env.ap(&["ack", policy, "--yes"]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), text(&env.policy(policy), "candidate"));
    env.ap(&["verify", "main^..main"]).exits(0);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn no_other_spelling_of_any_field_counts() {
    let env = TestEnv::new();
    let (_, old) = model(&env);
    let policy = env.awaiting("f.txt");
    let good = good(&env, &old, &policy);
    let words: Vec<&str> = good.split(' ').collect();
    assert_eq!(words.len(), 2 + FIELDS.len(), "{good}");
    let mut lines = Vec::new();
    for at in 0..words.len() {
        for (how, line) in spellings(&words, at) {
            // Without its first word it is somebody's own words.
            let want = line.starts_with("agentproto-ack/").then_some("malformed");
            lines.push((format!("{} {how}", words[at]), line, want));
        }
    }
    for (how, from, to) in [
        ("lower-case digits", "%C3%A9", "%c3%a9"),
        ("a hash in capitals", "key=SHA256:", "key=sha256:"),
        ("a shorter time", ".000Z expires", "Z expires"),
        ("another zone", "Z expires", "+00:00 expires"),
        ("padding gone", "==", "="),
        ("another version", "agentproto-ack/1", "agentproto-ack/01"),
    ] {
        let line = good.replacen(from, to, 1);
        if line != good {
            lines.push((how.to_owned(), line, MALFORMED));
        }
    }
    for name in ["repo", "policy", "request", "candidate", "parent", "tree", "gates"] {
        let said = value(&good, name);
        let line = good.replacen(
            &format!(" {name}={said}"),
            &format!(" {name}={}", said.to_uppercase()),
            1,
        );
        lines.push((format!("{name} in capitals"), line, MALFORMED));
    }
    lines.push(("behind a space".to_owned(), format!(" {good}"), None));
    lines.push(("behind a mark of order".to_owned(), format!("\u{feff}{good}"), None));
    lines.push(("space at the end".to_owned(), format!("{good} "), MALFORMED));
    judge(&env, &policy, lines);
    still_lands(&env, &policy);
}

#[test]
fn no_other_value_of_any_field_counts() {
    let env = TestEnv::new();
    let (_, old) = model(&env);
    let policy = env.awaiting("f.txt");
    let good = good(&env, &old, &policy);
    let lines = values(&env, &good).into_iter().map(|(name, line)| (name, line, FORGED));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1 + FIELDS.len() + 1);
    judge(&env, &policy, lines);
    still_lands(&env, &policy);
}

/// Spelt wrong before the right key signed it.
fn signed_misspelt(env: &TestEnv, said: &str) -> Vec<Expected> {
    let some = ["missing", "CR behind", "behind its neighbour", "escaped without need", "empty"];
    let words: Vec<&str> = said.split(' ').collect();
    let all = (0..words.len())
        .flat_map(|at| spellings(&words, at).into_iter().map(move |(how, line)| (at, how, line)));
    all.filter(|(_, how, line)| some.contains(how) && line.starts_with("agentproto-ack/"))
        .map(|(at, how, line)| {
            let signed = sign_line(env, &line, "ada", "agentproto-ack");
            (format!("signed: {} {how}", words[at]), signed, MALFORMED)
        })
        .collect()
}

/// What the right key signed is judged by what it says.
#[test]
fn a_well_signed_lie_is_turned_down_for_what_it_says() {
    let env = TestEnv::new();
    with_bob(&env);
    let (_, old) = model(&env);
    let (first, policy) = (env.awaiting("e.txt"), env.awaiting("f.txt"));
    let other = line(&env, &old, &first, "ada", &[]);
    let good = good(&env, &old, &policy);
    let said = good.split(" sig=").next().unwrap();
    let mut lines = signed_misspelt(&env, said);
    let lie = |changes: &[(&str, &str)]| line(&env, &old, &policy, "ada", changes);
    let head = env.git(&["rev-parse", "HEAD"]);
    let stale = env.git(&["rev-parse", "HEAD^"]);
    let bob = value(&line(&env, &old, &policy, "bob", &[]), "key").to_owned();
    for (name, new, want) in [
        ("repo", head.as_str(), "orphan"),
        ("policy", value(&other, "policy"), "orphan"),
        ("policy", "pol_01arz3ndektsv4rrffq69g5fav", "orphan"),
        ("request", &head, "orphan"),
        ("request", &"1".repeat(head.len()), "orphan"),
        ("request", value(&other, "request"), "orphan"),
        ("candidate", value(&other, "candidate"), "stale"),
        ("candidate", &head, "stale"),
        ("parent", &stale, "stale"),
        ("tree", value(&other, "tree"), "stale"),
        ("branch", "refs/heads/other", "stale"),
        ("gates", &"0".repeat(64), "stale"),
        ("signer", "bob@example.invalid", "unauthorized"),
        ("signer", "ADA@example.invalid", "unauthorized"),
        ("signer", "%2A", "unauthorized"),
        ("key", bob.as_str(), "forged"),
        ("expires", "2020-01-01T00:00:00.000Z", "expired"),
        ("expires", "1970-01-01T00:00:00.000Z", "expired"),
        ("issued", "2999-01-01T00:00:00.000Z", "expired"),
        ("decision", "reject%20", "malformed"),
        ("decision", "abstain", "malformed"),
    ] {
        lines.push((format!("{name}={new}"), lie(&[(name, new)]), Some(want)));
    }
    lines.push(("of another policy".into(), other.clone(), Some("stale")));
    lines.push(("used before".into(), old.clone(), Some("replayed")));
    lines.push((
        "by a stranger".into(),
        line(&env, &old, &policy, "eve", &[]),
        Some("unauthorized"),
    ));
    let bob = line(&env, &old, &policy, "bob", &[]);
    lines.push(("bob under ada's name".into(), bob, Some("unauthorized")));
    for namespace in ["git", "file", "agentproto-ack2"] {
        let line = sign_line(&env, said, "ada", namespace);
        lines.push((format!("signed for {namespace}"), line, Some("unauthorized")));
    }
    // What is signed has no end of line.
    let with_end = sign_line(&env, &format!("{said}\n"), "ada", "agentproto-ack").replace('\n', "");
    lines.push(("signed with LF".into(), with_end, FORGED));
    judge(&env, &policy, lines);
    // How long ago it was made and why bind nothing.
    let free = lie(&[("issued", "1999-01-01T00:00:00.000Z"), ("reason", "")]);
    crate::answers::append(&env, &text(&env.policy(&policy), "candidate"), &free);
    wait(&env, &policy, 0);
    assert_eq!(env.git(&["rev-parse", "main"]), text(&env.policy(&policy), "candidate"));
    env.ap(&["fsck"]).exits(0);
}
