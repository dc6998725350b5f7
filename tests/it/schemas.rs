//! Published schemas: what `schema` prints holds for every object that any test ever gets, and says all there is.
//!
//! Contract: `env` hands every answer of a command with `--json` to [`complaints`]. There a schema is taken by its word (what is
//! required is there, what is there is of its kind) and closed: a field that it does not describe is a complaint too, though
//! readers are told that more may come.

use crate::env::{TestEnv, printed_schema};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

/// What is wrong with an object by the schema it names, one sentence each.
pub(crate) fn complaints(object: &Value) -> Vec<String> {
    let Some(schema) = object["schema"].as_str() else {
        return vec![format!("it names no schema: {object}")];
    };
    let name = schema.strip_prefix("agentproto/").and_then(|rest| rest.strip_suffix("/1"));
    let Some(name) = name else { return vec![format!("no such schema: {schema}")] };
    complaints_of(&validator(name), object)
}

fn complaints_of(validator: &Validator, object: &Value) -> Vec<String> {
    let errors = validator.iter_errors(object);
    errors.map(|e| format!("{} at '{}'", e, e.instance_path())).collect()
}

/// The validator of a closed schema, made once.
fn validator(name: &str) -> Arc<Validator> {
    static MADE: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap();
    let make = || {
        let mut schema = printed_schema(name);
        close(&mut schema);
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    };
    made.entry(name.to_owned()).or_insert_with(make).clone()
}

/// Lets a schema accept no field that it does not describe.
fn close(schema: &mut Value) {
    let fields = schema.as_object_mut().unwrap();
    fields.remove("additionalProperties");
    close_value(schema);
}

/// The same for the schema of one value, which may be made of several that apply to it together.
fn close_value(schema: &mut Value) {
    if schema["additionalProperties"] == true {
        return;
    }
    close_parts(schema);
    schema["unevaluatedProperties"] = false.into();
}

fn close_parts(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (keyword, value) in fields {
        match keyword.as_str() {
            "properties" => value.as_object_mut().unwrap().values_mut().for_each(close_value),
            "items" => close_value(value),
            "allOf" | "anyOf" => value.as_array_mut().unwrap().iter_mut().for_each(close_parts),
            "then" => close_parts(value),
            "$defs" => value.as_object_mut().unwrap().values_mut().for_each(close_parts),
            _ => {}
        }
    }
}

/// The files of the schemas, by name; `definitions` is none.
fn files() -> BTreeMap<String, Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/schema");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(file).collect()
}

fn names() -> Vec<String> {
    files().into_keys().filter(|name| name != "definitions").collect()
}

#[test]
fn every_schema_is_listed_and_printed_complete() {
    let env = TestEnv::bare();
    let listed = env.ap(&["schema", "--json"]).exits(0).json();
    let listed = listed["schemas"].as_array().unwrap();
    let told: Vec<&str> = listed.iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(told, names());
    let text = env.ap(&["schema"]).exits(0).out();
    for (name, file) in files().iter().filter(|(name, _)| *name != "definitions") {
        assert!(text.lines().any(|l| l.split("  ").next() == Some(name)), "{name}: {text}");
        let printed = env.ap(&["schema", name]).exits(0).json();
        assert_eq!(printed["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        assert_eq!(printed["$id"], format!("urn:agentproto:{name}:1"), "{name}");
        assert!(jsonschema::draft202012::meta::is_valid(&printed), "{name}: {printed:#}");
        let answer = env.ap(&["schema", name, "--json"]).exits(0).json();
        assert_eq!((&answer["name"], &answer["jsonSchema"]), (&json!(name), &printed));
        for (field, value) in file.as_object().unwrap() {
            assert_eq!(&printed[field], value, "{name} {field}");
        }
        if name == "policy-file" {
            continue;
        }
        // Readers are told that more may come; what the tests hold answers against is closed.
        assert_eq!(printed["additionalProperties"], true, "{name}");
        let own = &printed["properties"]["schema"]["const"];
        assert_eq!(own, &json!(format!("agentproto/{name}/1")));
    }
}

/// Every schema in a value that describes a field, with where it stands.
fn fields_of(at: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                let at = format!("{at}/{name}");
                if name == "properties" && !at.ends_with("/if/properties") {
                    let all = below.as_object().unwrap().iter();
                    found.extend(all.map(|(field, s)| (format!("{at}/{field}"), s.clone())));
                }
                fields_of(&at, below, found);
            }
        }
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(n, v)| fields_of(&format!("{at}/{n}"), v, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_field_is_described() {
    let all = files();
    let definitions = &all["definitions"]["$defs"];
    for (name, file) in &all {
        let mut found = Vec::new();
        fields_of(name, file, &mut found);
        assert!(name == "policy-file" || !found.is_empty(), "{name}");
        for (at, schema) in found {
            let target = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/"));
            let of_target = target.map(|target| &definitions[target]["description"]);
            let said = [Some(&schema["description"]), of_target].into_iter().flatten();
            assert!(said.filter_map(Value::as_str).any(|d| !d.is_empty()), "{at} is not described");
        }
        for field in ["title", "description"].iter().filter(|_| name != "definitions") {
            assert!(file[*field].as_str().is_some_and(|d| !d.is_empty()), "{name} has no {field}");
        }
    }
    let used: String = all.values().map(Value::to_string).collect();
    for name in definitions.as_object().unwrap().keys() {
        assert!(used.contains(&format!("\"#/$defs/{name}\"")), "nothing uses {name}");
    }
}

#[test]
fn every_object_in_the_sources_has_its_schema_and_every_schema_its_object() {
    let mut sources = String::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let quoted = sources.split("\"agentproto/").skip(1);
    let named: BTreeSet<&str> =
        quoted.filter_map(|rest| rest.split_once("/1\"")).map(|(name, _)| name).collect();
    let names: BTreeSet<String> = names().into_iter().filter(|n| n != "policy-file").collect();
    assert!(named.iter().copied().eq(names.iter().map(String::as_str)), "{named:?}\n{names:?}");
}

#[test]
fn a_closed_schema_notices_what_is_missing_what_is_wrong_and_what_is_more() {
    let good = json!({
        "schema": "agentproto/events/1", "next": "1".repeat(40), "more": false,
        "events": [{
            "cursor": "1".repeat(40), "seq": 1, "kind": "session:started", "at": "2026-01-31T12:00:00.000Z",
            "sessionId": "ses_01arz3ndektsv4rrffq69g5fav", "source": "cli", "worktree": ".", "cwd": ".",
        }],
    });
    assert_eq!(complaints(&good), [""; 0]);
    let with = |pointer: &str, field: &str, value: Value| {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).unwrap()[field] = value;
        bad
    };
    let without = |pointer: &str, field: &str| {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(field);
        bad
    };
    for bad in [
        with("", "odd", 1.into()),
        with("/events/0", "odd", 1.into()),
        // A field of another kind of event.
        with("/events/0", "turn", 1.into()),
        with("", "more", "no".into()),
        with("", "schema", "agentproto/status/1".into()),
        with("/events/0", "sessionId", "pol_01arz3ndektsv4rrffq69g5fav".into()),
        without("", "next"),
        without("/events/0", "seq"),
        without("/events/0", "worktree"),
        json!({ "schema": "nothing" }),
        json!({}),
    ] {
        assert!(!complaints(&bad).is_empty(), "accepted: {bad:#}");
    }
    // What was published leaves room for what is to come.
    let open = jsonschema::validator_for(&printed_schema("events")).unwrap();
    for more in [with("", "odd", 1.into()), with("/events/0", "odd", 1.into())] {
        assert_eq!(complaints_of(&open, &more), [""; 0]);
    }
}

/// The words of enumerations are those of the program.
#[test]
fn the_words_of_the_schemas_are_those_of_the_program() {
    use git_agentproto::{
        domain::{event::Kind, policy::Status, session::EndReason},
        enforce::Outcome,
    };
    let all = files();
    let words = |value: &Value| -> Vec<String> {
        let texts = value.as_array().unwrap().iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let definitions = &all["definitions"]["$defs"];
    assert_eq!(words(&definitions["status"]["enum"]), Status::ALL.map(Status::as_str));
    let reasons = [
        &definitions["session"]["properties"]["reason"]["enum"],
        &definitions["turnEnded"]["properties"]["reason"]["enum"],
    ];
    for reasons in reasons {
        assert_eq!(words(reasons), EndReason::ALL.map(EndReason::as_str));
    }
    let outcome = &all["verify"]["properties"]["commits"]["items"]["properties"]["outcome"]["enum"];
    assert_eq!(words(outcome), Outcome::ALL.map(Outcome::as_str));
    let kinds = definitions["event"]["allOf"].as_array().unwrap().iter();
    let kinds = kinds.map(|branch| branch["if"]["properties"]["kind"]["const"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), Kind::ALL.map(Kind::as_str));
}
