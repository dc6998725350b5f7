//! `schema [NAME]`: the JSON Schema of every object that is answered, and of a policy in a file.
//!
//! Contract: what is printed is complete in itself, draft 2020-12. The files in `docs/reference/schema` say each thing once:
//! what several objects use stands in `definitions.json` and is put in here. Tests hold every answer against what this prints.

use super::{cx::Cx, error::CliError, text};
use crate::code::{Code, exit};
use serde_json::{Map, Value, json};

/// Which one.
#[derive(clap::Args)]
pub(super) struct SchemaArgs {
    /// NAME of `agentproto/NAME/1`, or `policy-file`; without it: which there are
    name: Option<String>,
}

macro_rules! schemas {
    ($($name:literal)*) => {
        /// Name and text of each, by name.
        const ALL: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../docs/reference/schema/", $name, ".json"))),)*
        ];
    };
}

schemas! {
    "ack" "allow" "allow-list" "candidate" "completions" "demo" "doctor" "error" "event" "events" "exec" "fsck" "gc"
    "help" "init" "man" "man-install" "policy" "policy-file" "policy-list" "report" "schema" "schema-list" "session"
    "session-list" "session-output" "session-prompt" "status" "supervise" "trust" "verify" "wait"
}

/// What several of them use.
const DEFINITIONS: &str = include_str!("../../docs/reference/schema/definitions.json");

/// How a schema names one of the definitions.
const POINTER: &str = "#/$defs/";

/// From here on a name is taken for a misspelt one.
const LIKENESS: f64 = 0.8;

pub(super) fn run(cx: &Cx, args: &SchemaArgs) -> Result<u8, CliError> {
    match &args.name {
        Some(name) => show(cx, name)?,
        None => list(cx)?,
    }
    Ok(exit::DONE)
}

fn list(cx: &Cx) -> Result<(), CliError> {
    let (mut objects, mut rows) = (Vec::new(), Vec::new());
    for (name, text) in ALL {
        let schema = parse(text)?;
        let (title, description) = (&schema["title"], &schema["description"]);
        rows.push(vec![(*name).to_owned(), title.as_str().unwrap_or_default().to_owned()]);
        objects.push(json!({ "name": name, "title": title, "description": description }));
    }
    let object = json!({ "schema": "agentproto/schema-list/1", "schemas": objects });
    cx.answer(&object, &text::table(&rows, "", cx.columns))
}

fn show(cx: &Cx, name: &str) -> Result<(), CliError> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| unknown(name))?;
    let schema = complete(text)?;
    if cx.json {
        let object = json!({ "schema": "agentproto/schema/1", "name": name, "jsonSchema": schema });
        return cx.line(&object);
    }
    // Never broken at the width of a terminal: it is there to be copied.
    cx.out(&format!("{schema:#}\n"))
}

fn unknown(name: &str) -> CliError {
    let like = |known: &&str| known.contains(name) || strsim::jaro(known, name) > LIKENESS;
    let near: Vec<&str> = ALL.iter().map(|(known, _)| *known).filter(like).collect();
    let error = CliError::new(Code::NoSuchSchema, format!("there is no schema called '{name}'"));
    let error = error.about(name);
    if near.is_empty() || name.is_empty() {
        return error;
    }
    error
        .with_hint(format!("similar ones: {}; all of them: git agentproto schema", near.join(", ")))
}

/// A schema with every definition it needs.
fn complete(text: &str) -> Result<Value, CliError> {
    let (mut schema, all) = (parse(text)?, parse(DEFINITIONS)?);
    let (mut needed, mut open) = (Map::new(), named(&schema));
    while let Some(name) = open.pop() {
        if needed.contains_key(&name) {
            continue;
        }
        let definition = all["$defs"].get(&name);
        let definition = definition.ok_or_else(|| broken(&format!("'{name}' is not defined")))?;
        open.extend(named(definition));
        needed.insert(name, definition.clone());
    }
    needed.sort_keys();
    if !needed.is_empty() {
        schema["$defs"] = Value::Object(needed);
    }
    Ok(schema)
}

/// The definitions that a value names.
fn named(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|pointer| pointer.strip_prefix(POINTER)).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(named)).collect()
        }
        Value::Array(all) => all.iter().flat_map(named).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

fn parse(text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|e| broken(&e.to_string()))
}

fn broken(why: &str) -> CliError {
    CliError::new(Code::Internal, format!("a schema of this program is broken: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_complete_in_itself() {
        for (name, text) in ALL {
            let schema = complete(text).unwrap();
            for used in named(&schema) {
                assert!(schema["$defs"].get(&used).is_some(), "{name} lacks {used}");
            }
        }
        assert!(ALL.is_sorted(), "they are listed by name");
        let error = complete(r##"{ "$ref": "#/$defs/nowhere" }"##).unwrap_err();
        assert_eq!(error.code, Code::Internal);
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_ones_like_it() {
        let hint = |name: &str| unknown(name).hint;
        assert!(hint("polcy").starts_with("similar ones: policy"), "{}", hint("polcy"));
        assert!(hint("list").contains("allow-list, policy-list"), "{}", hint("list"));
        for far in ["", "x\u{1b}"] {
            assert_eq!(hint(far), Code::NoSuchSchema.hint(), "{far}");
        }
    }
}
