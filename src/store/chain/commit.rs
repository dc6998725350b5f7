//! Commit objects: the ones we write, and what is read back from a journal.

use crate::domain::{
    oid::{HashKind, Oid},
    time::Timestamp,
};
use crate::store::{
    error::StoreError,
    object::{HashError, Kind, Object},
};

/// Who writes, and when: author and committer of what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Name; empty becomes `unknown`.
    pub name: String,
    /// E-mail; may be empty.
    pub email: String,
    /// The time, written in UTC.
    pub at: Timestamp,
}

impl Stamp {
    fn line(&self, role: &str) -> String {
        let name = Some(cleaned(&self.name)).filter(|n| !n.is_empty());
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        format!("{role} {name} <{}> {} +0000\n", cleaned(&self.email), self.at.seconds().max(0))
    }
}

/// Drops what git drops from identities, so that the header stays one line with one address.
fn cleaned(text: &str) -> String {
    let kept: String = text.chars().filter(|c| !matches!(c, '<' | '>' | '\n' | '\0')).collect();
    let crud = |c: char| c.is_ascii_control() || " .,:;\"\\'".contains(c);
    kept.trim_matches(crud).to_owned()
}

/// Makes a commit by the hash of its tree; a newline ends its message.
pub(in crate::store) fn encode(
    tree: &Oid,
    parents: &[Oid],
    who: &Stamp,
    message: &[u8],
) -> Result<Object, HashError> {
    let mut data = format!("tree {tree}\n").into_bytes();
    for parent in parents {
        data.extend_from_slice(format!("parent {parent}\n").as_bytes());
    }
    data.extend_from_slice(who.line("author").as_bytes());
    data.extend_from_slice(who.line("committer").as_bytes());
    data.push(b'\n');
    data.extend_from_slice(message);
    if !message.ends_with(b"\n") {
        data.push(b'\n');
    }
    Object::new(tree.hash(), Kind::Commit, data)
}

/// The parts of a commit we use.
pub(in crate::store) struct Parsed<'a> {
    pub(in crate::store) tree: Oid,
    pub(in crate::store) parents: Vec<Oid>,
    author: &'a [u8],
    pub(in crate::store) message: &'a [u8],
}

/// Reads a commit of this hash; none when it is malformed.
pub(in crate::store) fn parse(hash: HashKind, data: &[u8]) -> Option<Parsed<'_>> {
    let end = data.windows(2).position(|w| w == b"\n\n")?;
    let mut lines = data[..end].split(|b| *b == b'\n').peekable();
    let tree = id_after(hash, lines.next()?, b"tree ")?;
    let mut parents = Vec::new();
    while let Some(id) = lines.peek().and_then(|l| id_after(hash, l, b"parent ")) {
        parents.push(id);
        lines.next();
    }
    let author = lines.next()?.strip_prefix(b"author ")?;
    Some(Parsed { tree, parents, author, message: &data[end + 2..] })
}

fn id_after(hash: HashKind, line: &[u8], word: &[u8]) -> Option<Oid> {
    let id: Oid = std::str::from_utf8(line.strip_prefix(word)?).ok()?.parse().ok()?;
    (id.hash() == hash).then_some(id)
}

/// One entry of a journal, as its commit says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The commit.
    pub id: Oid,
    /// Its number in the journal.
    pub seq: u64,
    /// The entry before; none for the first of a segment.
    pub parent: Option<Oid>,
    /// The last entry of the segment before; none but for the first entry of a later segment.
    pub continues: Option<Oid>,
    /// The state after it.
    pub tree: Oid,
    /// Name of the person, as far as it is text.
    pub author_name: String,
    /// E-mail of the person, as far as it is text.
    pub author_email: String,
    /// The whole message.
    pub message: Vec<u8>,
    /// The author date, whole seconds.
    pub time: Timestamp,
}

impl Entry {
    /// The entry before, in whatever segment; none for the first of all.
    #[must_use]
    pub fn before(&self) -> Option<Oid> {
        self.parent.or(self.continues)
    }
}

/// Reads a journal entry.
///
/// # Errors
/// The object is no commit, has more than one parent or no `Seq`.
pub(in crate::store) fn entry(object: &Object) -> Result<Entry, StoreError> {
    let wrong = |reason: &str| StoreError::NotAnEntry { id: object.id, reason: reason.to_owned() };
    if object.kind != Kind::Commit {
        return Err(wrong("it is no commit"));
    }
    let parsed = parse(object.id.hash(), &object.data).ok_or_else(|| wrong("it is malformed"))?;
    if parsed.parents.len() > 1 {
        return Err(wrong("it has more than one parent"));
    }
    let seq = seq_in(parsed.message).ok_or_else(|| wrong("it has no Seq trailer"))?;
    let (name, email, time) =
        person(parsed.author).ok_or_else(|| wrong("its author is malformed"))?;
    let parent = parsed.parents.first().copied();
    Ok(Entry {
        id: object.id,
        seq,
        parent,
        continues: continues_in(parsed.message).filter(|_| parent.is_none()),
        tree: parsed.tree,
        author_name: name,
        author_email: email,
        message: parsed.message.to_vec(),
        time,
    })
}

fn person(line: &[u8]) -> Option<(String, String, Timestamp)> {
    let text = String::from_utf8_lossy(line);
    let (name, rest) = text.split_once('<')?;
    let (email, rest) = rest.rsplit_once('>')?;
    let seconds: i64 = rest.split_whitespace().next()?.parse().ok()?;
    let time = Timestamp::from_ms(seconds.checked_mul(1000)?);
    Some((name.trim_end().to_owned(), email.to_owned(), time))
}

/// The number in the `Seq` trailer of the message's last paragraph.
pub(in crate::store) fn seq_in(message: &[u8]) -> Option<u64> {
    number_in(message, "Seq: ")
}

/// The version in the `Format` trailer, which the first commit of a segment has.
pub(in crate::store) fn format_in(message: &[u8]) -> Option<u64> {
    number_in(message, "Format: ")
}

/// The last entry of the segment before, which the first commit of a later segment names.
pub(in crate::store) fn continues_in(message: &[u8]) -> Option<Oid> {
    trailer_in(message, "Continues: ")?.parse().ok()
}

/// The repository id in the `Repo` trailer, which stands beside the format.
pub(in crate::store) fn repo_in(message: &[u8]) -> Option<Oid> {
    trailer_in(message, "Repo: ")?.parse().ok()
}

fn number_in(message: &[u8], lead: &str) -> Option<u64> {
    trailer_in(message, lead)?.parse().ok()
}

fn trailer_in(message: &[u8], lead: &str) -> Option<String> {
    let text = String::from_utf8_lossy(message);
    let trailers = text.trim_end_matches('\n').rsplit("\n\n").next()?;
    // As the journal's own reader: only a newline ends a line.
    Some(trailers.split('\n').find_map(|l| l.strip_prefix(lead))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(name: &str, email: &str) -> Stamp {
        Stamp { name: name.to_owned(), email: email.to_owned(), at: Timestamp::from_ms(5_999) }
    }

    #[test]
    fn an_entry_reads_back() {
        for hash in HashKind::ALL {
            let id = |n: u8| Oid::from_bytes(&vec![n; hash.id_bytes()]).unwrap();
            let (tree, parent) = (id(1), id(2));
            let who = stamp("Ada <x>\nTester.", "ada@example.invalid");
            let message = b"k e: s\n\nprose\nSeq: 7\n\nSeq: 12\nKind: k\n";
            let read = entry(&encode(&tree, &[parent], &who, message).unwrap()).unwrap();
            assert_eq!((read.seq, read.parent, read.tree), (12, Some(parent), tree));
            assert_eq!(read.author_name, "Ada xTester");
            assert_eq!(read.author_email, "ada@example.invalid");
            assert_eq!((read.time, read.message), (Timestamp::from_ms(5_000), message.to_vec()));
        }
    }

    #[test]
    fn a_number_with_a_carriage_return_is_none() {
        let read = |message: &[u8]| seq_in(message);
        assert_eq!(read(b"k e: s\n\nSeq: 12\nKind: k\n"), Some(12));
        assert_eq!(read(b"k e: s\n\nSeq: 12\r\nKind: k\n"), None);
        assert_eq!(read(b"k e: s\n\nKind: k\nSeq: 12\r\n"), None);
    }

    #[test]
    fn only_the_first_entry_of_a_segment_continues_another() {
        let (tree, last) = (Oid::from_sha1([1; 20]), Oid::from_sha1([2; 20]));
        let message = format!("k e: s\n\nContinues: {last}\nSeq: 12\n");
        let read = |parents: &[Oid]| {
            entry(&encode(&tree, parents, &stamp("", ""), message.as_bytes()).unwrap()).unwrap()
        };
        let first = read(&[]);
        assert_eq!((first.parent, first.continues, first.before()), (None, Some(last), Some(last)));
        let other = Oid::from_sha1([3; 20]);
        let within = read(&[other]);
        assert_eq!((within.continues, within.before()), (None, Some(other)));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let id = Oid::from_sha1([1; 20]);
        let who = stamp("", "");
        let encode = |parents: &[Oid], message: &[u8]| encode(&id, parents, &who, message).unwrap();
        let refused = |o: &Object| entry(o).unwrap_err().to_string();
        let merge = encode(&[id, id], b"s\n\nSeq: 1\n");
        assert!(refused(&merge).contains("more than one parent"));
        assert!(refused(&encode(&[], b"Seq: no\n")).contains("no Seq"));
        let other = Oid::null(HashKind::Sha256);
        assert!(refused(&encode(&[other], b"s\n\nSeq: 1\n")).contains("malformed"));
        let blob = Object::new(HashKind::Sha1, Kind::Blob, vec![]).unwrap();
        assert!(refused(&blob).contains("no commit"));
        assert!(encode(&[], b"m").data.windows(10).any(|w| w == b"unknown <>"));
    }
}
