//! The present code against `fixtures/wire/v1`: what was written once stays readable and is written the same
//! way. A file there is never changed; a new way of writing is a new file, or a new version.

use super::{
    ack_line::AckLine,
    document::{self, Document},
    gate_line::{GateLine, gates_digest},
    message,
};
use crate::domain::{
    digest::sha256,
    event::Kind,
    gate::{Gate, GateDef},
    policy::Policy,
    session::Session,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// Name without extension, and content, of every file of a folder.
fn fixtures(folder: &str) -> BTreeMap<String, String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wire/v1").join(folder);
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        found.insert(name, std::fs::read_to_string(&path).unwrap());
    }
    found
}

fn line(name: &str) -> String {
    fixtures("lines")[name].strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn every_kind_of_event_reads_and_writes_as_it_did() {
    let files = fixtures("events");
    for kind in Kind::ALL {
        assert!(files.contains_key(&kind.as_str().replace(':', "-")), "{kind:?}");
    }
    for (name, text) in files {
        let message = message::decode(text.as_bytes()).unwrap();
        let recorded = message.recorded().unwrap().unwrap();
        // What a kind learned to say later is in a file beside its first one: `kind.what`.
        let kind = name.split('.').next().unwrap();
        assert_eq!(recorded.event.body.kind().as_str().replace(':', "-"), kind, "{name}");
        let written = message::encode(&recorded, message.beside()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text, "{name}");
    }
}

#[test]
fn every_optional_part_of_an_event_is_in_some_file() {
    // What is left out when it says nothing: a file that lacks it could not show that its name changed.
    let optional = [
        ("session-started", "label base own"),
        ("session-started.dirty-base", "dirtyBase"),
        ("session-turn-end", "inferred key"),
        ("session-turn-end.open", "awaitingInput background empty"),
        ("policy-adopted", "attempt members"),
        ("session-awaiting-input", "requests key"),
        ("session-input-answered", "id key"),
        ("session-exited", "exit key"),
        ("session-command-done", "argv code key"),
        ("policy-passed", "voided outcome notedOn"),
        ("policy-passed.unsigned", "unsigned"),
        ("policy-failed", "because results voided notedOn"),
        ("policy-failed.beside", "results"),
        ("policy-cancelled", "because"),
        ("policy-dismissed", "because"),
        ("policy-gating.again", "because"),
        ("policy-acked.one-of-two", "quorum"),
        ("session-started.launch", "launch"),
        ("session-turn-start.prompt", "prompt"),
        ("session-prompted", "interrupt key"),
        ("session-stopping", "because"),
        ("session-exited.not-started", "inferred because"),
        ("policy-nudged", "because voided notedOn"),
    ];
    let files = fixtures("events");
    for (name, fields) in optional {
        let data = message::decode(files[name].as_bytes()).unwrap().data;
        for field in fields.split(' ') {
            assert!(data.contains_key(field), "{name}: {field}");
        }
    }
}

/// Reads and writes it, as it is and with a field of a later version in it.
fn round_trip<T: DeserializeOwned + Serialize>(name: &str, text: &str) -> T {
    let read: Document<T> = document::decode(text.as_bytes()).unwrap();
    assert!(read.extra.is_empty(), "{name}: {:?}", read.extra);
    assert_eq!(String::from_utf8(document::encode(&read).unwrap()).unwrap(), text, "{name}");

    let later = text.replacen("\n}\n", ",\n \"later\": {\n  \"on\": true\n }\n}\n", 1);
    assert_ne!(later, text);
    let kept: Document<T> = document::decode(later.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(document::encode(&kept).unwrap()).unwrap(), later, "{name}");
    read.value
}

#[test]
fn every_document_reads_and_writes_as_it_did() {
    let mut seen = Vec::new();
    for (name, text) in fixtures("documents") {
        match name.split_once('-') {
            Some(("session", _)) => drop(round_trip::<Session>(&name, &text)),
            Some(("policy", state)) => {
                let status = round_trip::<Policy>(&name, &text).status;
                // What else there is to it stands behind a dot.
                let state = state.split('.').next().unwrap();
                assert_eq!(status.as_str(), if state == "committed" { "done" } else { state });
            }
            other => panic!("{name}: {other:?}"),
        }
        seen.push(name);
    }
    let all = [
        "policy-awaiting-ack",
        "policy-awaiting-ack.regated",
        "policy-blocked",
        "policy-blocked.dismissed",
        "policy-committed",
        "policy-nudging",
        "policy-queued",
        "policy-signing",
        "policy-watching",
        "policy-watching.gate-env",
        "policy-watching.let-through",
        "policy-watching.scope",
        "session-alive",
        "session-exited",
        "session-exited.not-started",
        "session-idle",
        "session-open",
        "session-open.unfinished",
        "session-running",
        "session-running.dirty-base",
    ];
    assert_eq!(seen, all);
}

#[test]
fn a_document_without_a_required_field_is_refused() {
    let text = &fixtures("documents")["policy-watching"];
    let mut fields: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    assert!(fields.shift_remove("status").is_some());
    let bytes = serde_json::to_vec(&fields).unwrap();
    assert!(document::decode::<Policy>(&bytes).is_err());
}

#[test]
fn every_signed_line_reads_and_writes_as_it_did() {
    let mut acks = 0;
    let mut gates = 0;
    for (name, text) in fixtures("lines") {
        let line = text.strip_suffix('\n').unwrap();
        if name.starts_with("ack-") {
            assert_eq!(AckLine::parse(line).unwrap().encode(), line, "{name}");
            acks += 1;
        } else {
            assert_eq!(GateLine::parse(line).unwrap().encode(), line, "{name}");
            gates += 1;
        }
    }
    assert_eq!((acks, gates), (2, 5));
}

/// `def=` is the SHA-256 of the file's bytes, as `sha256sum` says it (decisions 13).
#[test]
fn a_gate_definition_is_hashed_as_it_was() {
    let written = include_str!("../../fixtures/wire/v1/gate-definition.json");
    let def: GateDef = serde_json::from_str(written).unwrap();
    assert_eq!(def.canonical(), written);
    let hash = "cb83b9c2754c7fb7bc200c201d030bce796961f908d61267a446e860e0d30a98";
    assert_eq!(sha256(written.as_bytes()), hash);
    assert_eq!(GateLine::parse(&line("gate-pass")).unwrap().def, hash);

    let written = include_str!("../../fixtures/wire/v1/gate-definition.env.json");
    let def: GateDef = serde_json::from_str(written).unwrap();
    assert_eq!(def.canonical(), written);
    let hash = "f8835cacabf76eaa50c640cb22a845e0225f24d706985100588023781bab4a86";
    assert_eq!(sha256(written.as_bytes()), hash);

    let written = include_str!("../../fixtures/wire/v1/gate-definition.scope.json");
    let gate: Gate = serde_json::from_str(written).unwrap();
    assert_eq!(gate.canonical(), written);
    let hash = "eb69542671872b2635f1c68c0f17328b19ef8db36928f937bdb712e1307be048";
    assert_eq!(sha256(written.as_bytes()), hash);
    let line = GateLine::parse(&line("gate-scope")).unwrap();
    assert_eq!((line.def.as_str(), line.program), (hash, None));
    assert_eq!(line.argv, gate.words());
}

/// `gates=` of the ack is over the gate line, LF included.
#[test]
fn an_ack_binds_the_gate_line_as_it_did() {
    let said = AckLine::parse(&line("ack-approve")).unwrap().statement;
    assert_eq!(said.gates, gates_digest([line("gate-pass").as_str()]));
}
