//! State documents: one JSON object per entity, readable with `git show`.
//!
//! Contract: `"v": 1` first, camelCase, one field a line, a line feed at the end. Fields this version does
//! not know are kept when a document is written again; a higher `v` is refused, never guessed at.

use crate::{code::Code, domain::event::Entity};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Version of the documents this program writes.
pub const VERSION: u64 = 1;

/// A document with the fields this version does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<T> {
    /// What it says.
    pub value: T,
    /// What else it says.
    pub extra: Map<String, Value>,
}

/// A document that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadDocument {
    /// It is not the JSON it should be.
    #[error("not a state document: {0}")]
    Json(#[from] serde_json::Error),
    /// It is not an object, or has no version.
    #[error("not a state document: no version")]
    NoVersion,
    /// A newer version wrote it.
    #[error("document version {0} is newer than {VERSION}")]
    Newer(u64),
}

impl BadDocument {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Json(_) | Self::NoVersion => Code::JournalCorrupt,
            Self::Newer(_) => Code::NewerFormat,
        }
    }
}

/// Reads a document.
///
/// # Errors
/// [`BadDocument`].
pub fn decode<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<Document<T>, BadDocument> {
    let Value::Object(mut all) = serde_json::from_slice(bytes)? else {
        return Err(BadDocument::NoVersion);
    };
    match all.shift_remove("v").and_then(|v| v.as_u64()) {
        None => return Err(BadDocument::NoVersion),
        Some(v) if v > VERSION => return Err(BadDocument::Newer(v)),
        Some(_) => {}
    }
    let value: T = serde_json::from_value(Value::Object(all.clone()))?;
    if let Value::Object(known) = serde_json::to_value(&value)? {
        all.retain(|name, _| !known.contains_key(name));
    }
    Ok(Document { value, extra: all })
}

/// Writes a document.
///
/// # Errors
/// The value is no JSON object.
pub fn encode<T: Serialize>(document: &Document<T>) -> Result<Vec<u8>, BadDocument> {
    let mut all = Map::new();
    all.insert("v".to_owned(), VERSION.into());
    let Value::Object(known) = serde_json::to_value(&document.value)? else {
        return Err(BadDocument::NoVersion);
    };
    all.extend(known);
    for (name, value) in &document.extra {
        all.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let mut bytes = Vec::new();
    let indent = serde_json::ser::PrettyFormatter::with_indent(b" ");
    all.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, indent))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Where the document of a living entity lies in the state tree (storage O).
#[must_use]
pub fn open_path(entity: &Entity) -> String {
    let id = entity.to_string();
    format!("open/{}/{id}.json", nth_last(&id, 0))
}

/// Where the document of an entity that is over lies in the state tree (storage O).
#[must_use]
pub fn closed_path(entity: &Entity) -> String {
    let id = entity.to_string();
    format!("closed/{}/{}/{id}.json", nth_last(&id, 0), nth_last(&id, 1))
}

fn nth_last(id: &str, n: usize) -> char {
    id.chars().rev().nth(n).unwrap_or('_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Thing {
        name: String,
    }

    #[test]
    fn unknown_fields_survive_a_rewrite() {
        let doc: Document<Thing> = decode(br#"{"v":1,"name":"a","later":[1]}"#).unwrap();
        let bytes = encode(&doc).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\n \"v\": 1,\n \"name\": \"a\",\n \"later\": [\n  1\n ]\n}\n"
        );
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let newer = decode::<Thing>(br#"{"v":2,"name":"a"}"#).unwrap_err();
        assert_eq!(newer.code(), Code::NewerFormat);
        let none = decode::<Thing>(br#"{"name":"a"}"#).unwrap_err();
        assert_eq!(none.code(), Code::JournalCorrupt);
    }

    #[test]
    fn documents_lie_where_no_directory_grows_wide() {
        let id = "ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
        let entity = Entity::Session(id);
        assert_eq!(open_path(&entity), "open/v/ses_01arz3ndektsv4rrffq69g5fav.json");
        assert_eq!(closed_path(&entity), "closed/v/a/ses_01arz3ndektsv4rrffq69g5fav.json");
    }
}
