//! A policy in a file: its schema accepts what the program accepts, field by field, and nothing else.

use crate::{
    env::{TestEnv, printed_schema},
    house::text,
    markdown::document,
};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A machine with a session called `s`.
fn ready() -> TestEnv {
    let env = TestEnv::new();
    env.adopt("s");
    env
}

/// What `attach --file` says to a document: the code and the message of its refusal; `None` when it was attached.
fn told(env: &TestEnv, document: &Value) -> Option<(String, String)> {
    let out =
        env.tool(&["attach", "s", "--file", "-", "--json"]).stdin(document.to_string()).done();
    if out.code() == 0 {
        return None;
    }
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    Some((text(&error["error"], "code"), text(&error["error"], "message")))
}

/// The fields that the program names when it does not know one.
fn accepted(env: &TestEnv, document: &Value) -> BTreeSet<String> {
    let (code, message) = told(env, document).expect("an unknown field was accepted");
    assert_eq!(code, "unknown-field", "{message}");
    let (_, expected) = message.split_once("expected ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn fields(schema: &Value) -> BTreeSet<String> {
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

/// The parts of the schema, each with a document that holds it.
type Place = (&'static str, fn(Value) -> Value);
const PLACES: [Place; 6] = [
    ("policyFile", |policy| policy),
    ("fileGate", |gate| json!({ "gate": gate })),
    ("fileScope", |scope| json!({ "gates": [scope] })),
    ("fileCommit", |commit| json!({ "commit": commit })),
    ("fileOnFail", |on_fail| json!({ "onFail": on_fail })),
    ("policyFile", |next| json!({ "next": next })),
];

#[test]
fn the_schema_names_the_fields_that_the_program_accepts() {
    let env = ready();
    let schema = printed_schema("policy-file");
    for (definition, document) in PLACES {
        let mut part = json!({ "no-such-field": 1 });
        if definition == "fileScope" {
            // By this field it is known.
            part["scope"] = json!(["x"]);
        }
        let known = accepted(&env, &document(part));
        let named = fields(&schema["$defs"][definition]);
        assert_eq!(
            known, named,
            "{definition}: the program knows the first, the schema the second"
        );
    }
    let path = json!({ "commit": { "paths": [{ "no-such-field": 1 }] } });
    let of_path = &schema["$defs"]["fileCommit"]["properties"]["paths"]["items"]["anyOf"][1];
    assert_eq!(accepted(&env, &path), fields(of_path));
}

/// True when the program can read the document, whatever it then says about it.
fn is_read(env: &TestEnv, document: &Value) -> bool {
    told(env, document).is_none_or(|(code, message)| {
        let lacks = ["no-paths", "empty-message"].contains(&code.as_str());
        !lacks && !message.contains(" at line ")
    })
}

#[track_caller]
fn same(env: &TestEnv, schema: &Validator, document: &Value) {
    let (told, read) = (schema.is_valid(document), is_read(env, document));
    assert_eq!(told, read, "the schema says the first, the program the second: {document}");
}

#[test]
fn the_schema_takes_of_each_field_what_the_program_takes() {
    let env = ready();
    let schema = printed_schema("policy-file");
    let validator = jsonschema::validator_for(&schema).unwrap();
    let values =
        [Value::Null, true.into(), 1.into(), (-1).into(), "x".into(), json!([]), json!([1])];
    let values = values.into_iter().chain([
        json!(["x"]),
        json!({}),
        json!([{}]),
        json!("emit"),
        json!("block"),
    ]);
    let values: Vec<Value> = values.collect();
    for (definition, document) in PLACES {
        for field in fields(&schema["$defs"][definition]) {
            for value in &values {
                let mut part = match definition {
                    "fileGate" => json!({ "command": "true" }),
                    "fileScope" => json!({ "scope": ["x"] }),
                    "fileCommit" => json!({ "paths": ["a.txt"], "message": "m" }),
                    _ => json!({}),
                };
                part[&field] = value.clone();
                same(&env, &validator, &document(part));
            }
        }
        for whole in &values {
            same(&env, &validator, &document(whole.clone()));
        }
    }
    for path in
        [json!("a.txt"), json!({ "b64": "YQ==" }), json!({ "b64": 1 }), json!(1), Value::Null]
    {
        same(&env, &validator, &json!({ "commit": { "paths": [path], "message": "m" } }));
    }
}

#[test]
fn the_examples_of_the_document_are_as_the_schema_says() {
    let schema = jsonschema::validator_for(&printed_schema("policy-file")).unwrap();
    let text = document("docs/policy-file.md");
    let examples = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<Value> = examples.map(|e| serde_json::from_str(e).unwrap()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let wrong: Vec<String> = schema.iter_errors(&example).map(|e| e.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}: {example}");
    }
}
