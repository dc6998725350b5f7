//! Which commands may run: default deny, one function for every path that runs something.
//!
//! Contract: the union of three sources (decisions 3): the file on the trusted ref, the user's file for
//! this repository, `agentproto.allowedCommand` in system or global scope. A malformed source makes the
//! whole list unusable. Matching is on parsed argv and on what the name resolves to, never on text:
//! - a bare name matches exactly that name, found on the fixed PATH;
//! - an entry with a slash is a file of the gate's worktree and matches its own spelling and whatever else
//!   leads to that very file, links resolved; one that leads outside is never started;
//! - an absolute entry counts only from the user's own sources and only in the identical spelling;
//! - `args` must be the first arguments, byte for byte.

use crate::code::Code;
use crate::store::{
    program::{FixedPath, ProgramError, inside},
    settings::{SettingsError, read_optional, user_scope_all},
    trusted::{Trust, TrustedError, load_rule_file},
};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Where the team's allowlist lies in the tree of the trusted ref.
pub const RULE_FILE: &str = ".agentproto/allowed-commands.json";
/// The global or system key with one more entry per value.
pub const CONFIG_KEY: &str = "agentproto.allowedCommand";

/// A source cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {why}")]
pub struct AllowlistInvalid {
    /// File or key.
    pub source_name: String,
    /// What is wrong with it.
    pub why: String,
}

impl AllowlistInvalid {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::AllowlistInvalid
    }
}

/// Why a command may not run.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// No entry matches.
    #[error(
        "not allowlisted: {command}; add {entry} to \"commands\" in {file}, or allow it for yourself \
         with: git agentproto allow -- {command}"
    )]
    NotListed {
        /// The command as a shell would take it.
        command: String,
        /// The exact JSON entry that would allow it.
        entry: String,
        /// The file to add it to, and on which ref it must be committed.
        file: String,
    },
    /// The program is not there.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Denied {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotListed { .. } => Code::NotAllowlisted,
            Self::Program(why) => why.code(),
        }
    }
}

/// The list cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A source is malformed.
    #[error(transparent)]
    Invalid(#[from] AllowlistInvalid),
    /// The trusted ref cannot be read.
    #[error(transparent)]
    Trusted(#[from] TrustedError),
    /// The user's files or configuration cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl LoadError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(why) => why.code(),
            // A link or directory in the file's place is a malformed list, not a broken repository.
            Self::Trusted(TrustedError::NotAFile { .. }) => Code::AllowlistInvalid,
            Self::Trusted(why) => why.code(),
            Self::Settings(why) => why.code(),
        }
    }
}

/// Whose entry it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file on the trusted ref.
    TrustedRef,
    /// A file or key only the user writes.
    User,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    command: String,
    args: Vec<String>,
}

/// An entry as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The first words of every command it allows.
    pub argv: Vec<String>,
    /// The file or key it stands in, where it can be taken back.
    pub place: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"version\" and \"commands\"")]
struct FileForm {
    version: u32,
    commands: Vec<EntryForm>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an entry is a name or an object with command and args")]
enum EntryForm {
    Name(String),
    WithArgs(ArgsForm),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArgsForm {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

/// The format version this reader knows.
const VERSION: u32 = 1;

/// The union of all sources.
#[derive(Clone, Debug, Default)]
pub struct Allowlist {
    /// Each with the file or key it stands in.
    entries: Vec<(Entry, String)>,
}

/// What makes the error text exact: where an entry would have to go.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The trusted ref, full name.
    pub trusted_ref: &'a str,
    /// The user's own allowlist of this repository.
    pub user_file: &'a Path,
}

/// A command that may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The program to start, absolute, not resolved through links: programs may depend on their name.
    pub program: PathBuf,
}

impl Allowlist {
    /// Loads all sources in force for a repository.
    ///
    /// # Errors
    /// One of them exists but cannot be read or understood.
    pub fn load(repo: &gix::Repository, trust: &Trust) -> Result<Self, LoadError> {
        let mut list = Self::default();
        if let Some(bytes) = load_rule_file(repo, trust.tip, RULE_FILE)? {
            let name = format!("{RULE_FILE} on {}", trust.trusted_ref);
            list.add_file(&name, &bytes, Origin::TrustedRef)?;
        }
        let own = trust.settings.allowlist_file();
        if let Some(bytes) = read_optional(&own)? {
            list.add_file(&own.display().to_string(), &bytes, Origin::User)?;
        }
        list.add_config(&user_scope_all(repo, CONFIG_KEY)?)?;
        Ok(list)
    }

    /// Every entry with where it stands, in the order the sources are asked.
    #[must_use]
    pub fn listed(&self) -> Vec<Listed> {
        let listed = |(Entry { command, args }, place): &(Entry, String)| Listed {
            argv: std::iter::once(command).chain(args).cloned().collect(),
            place: place.clone(),
        };
        self.entries.iter().map(listed).collect()
    }

    /// Adds the entries of one allowlist file.
    ///
    /// # Errors
    /// The file is malformed in any way; the list is as before.
    pub fn add_file(
        &mut self,
        name: &str,
        bytes: &[u8],
        origin: Origin,
    ) -> Result<(), AllowlistInvalid> {
        let entries = parse(bytes, origin).map_err(|why| invalid(name, why))?;
        self.entries.extend(entries.into_iter().map(|entry| (entry, name.to_owned())));
        Ok(())
    }

    /// Adds values of [`CONFIG_KEY`]: shell words, the first arguments of the command included.
    ///
    /// # Errors
    /// A value is malformed; the list is as before.
    pub fn add_config(&mut self, values: &[String]) -> Result<(), AllowlistInvalid> {
        let entries: Result<Vec<Entry>, String> = values.iter().map(|v| config_entry(v)).collect();
        let entries = entries.map_err(|why| invalid(CONFIG_KEY, why))?;
        self.entries.extend(entries.into_iter().map(|entry| (entry, CONFIG_KEY.to_owned())));
        Ok(())
    }

    /// Decides on a command about to run in `worktree` (its top directory) and says which file to start.
    ///
    /// # Errors
    /// No entry matches, or the program is not there.
    pub fn check(
        &self,
        argv: &[String],
        worktree: &Path,
        path: &FixedPath,
        place: &Place<'_>,
    ) -> Result<Allowed, Denied> {
        let Some((argv0, args)) = argv.split_first() else {
            return Err(ProgramError::Empty.into());
        };
        let listed = self
            .entries
            .iter()
            .any(|(e, _)| args.starts_with(&e.args) && same_program(&e.command, argv0, worktree));
        if !listed {
            // The narrowest entry that would allow it: the program with all its arguments.
            let asked = Entry { command: argv0.clone(), args: args.to_vec() };
            return Err(not_listed(&asked, place));
        }
        Ok(Allowed { program: path.program(argv0, worktree)? })
    }
}

fn same_program(entry: &str, argv0: &str, worktree: &Path) -> bool {
    let relative = |name: &str| name.contains('/') && !name.starts_with('/');
    match (relative(entry), relative(argv0)) {
        (false, false) => entry == argv0,
        // The same words mean the same file, be it there or not: whether it may be started is asked next.
        (true, true) if entry == argv0 => true,
        (true, true) => match (inside(worktree, entry), inside(worktree, argv0)) {
            (Ok(allowed), Ok(asked)) => allowed == asked,
            (_, _) => false,
        },
        (true, false) | (false, true) => false,
    }
}

fn parse(bytes: &[u8], origin: Origin) -> Result<Vec<Entry>, String> {
    let form: FileForm = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if form.version != VERSION {
        return Err(format!("version {}, expected {VERSION}", form.version));
    }
    let entries: Vec<Entry> = form.commands.into_iter().map(Entry::from).collect();
    entries.iter().try_for_each(|e| e.require_valid(origin))?;
    Ok(entries)
}

fn config_entry(value: &str) -> Result<Entry, String> {
    let words = shell_words::split(value).map_err(|e| format!("'{value}': {e}"))?;
    let mut words = words.into_iter();
    let command = words.next().ok_or("an empty value")?;
    let entry = Entry { command, args: words.collect() };
    entry.require_valid(Origin::User)?;
    Ok(entry)
}

impl Entry {
    fn json(&self) -> String {
        let Self { command, args } = self;
        let value = if args.is_empty() {
            serde_json::Value::from(command.as_str())
        } else {
            serde_json::json!({"command": command, "args": args})
        };
        value.to_string()
    }

    fn require_valid(&self, origin: Origin) -> Result<(), String> {
        let Self { command, args } = self;
        if command.is_empty() || command.ends_with('/') {
            return Err(format!("'{command}' names no program"));
        }
        if std::iter::once(command).chain(args).any(|word| word.contains('\0')) {
            return Err(format!("'{}' holds a NUL byte", command.escape_default()));
        }
        if command.contains(char::is_whitespace) && !command.contains('/') {
            return Err(format!("'{command}' is not one word: arguments go into \"args\""));
        }
        if command.split('/').any(|name| name == "..") {
            return Err(format!("'{command}' must not hold '..'"));
        }
        match origin {
            Origin::TrustedRef if command.starts_with('/') => {
                Err(format!("'{command}' is absolute: only your own allowlist may hold that"))
            }
            Origin::TrustedRef | Origin::User => Ok(()),
        }
    }
}

impl From<EntryForm> for Entry {
    fn from(form: EntryForm) -> Self {
        match form {
            EntryForm::Name(command) => Self { command, args: Vec::new() },
            EntryForm::WithArgs(ArgsForm { command, args }) => Self { command, args },
        }
    }
}

fn invalid(name: &str, why: String) -> AllowlistInvalid {
    AllowlistInvalid { source_name: name.to_owned(), why }
}

fn not_listed(asked: &Entry, place: &Place<'_>) -> Denied {
    let file = if asked.command.starts_with('/') {
        place.user_file.display().to_string()
    } else {
        format!("{RULE_FILE} and commit it on {}", place.trusted_ref)
    };
    let words = std::iter::once(&asked.command).chain(&asked.args);
    Denied::NotListed { command: shell_words::join(words), entry: asked.json(), file }
}

/// The file with one more entry, for `allow`; none when it holds that entry already.
///
/// # Errors
/// The existing file is malformed, or the command cannot be an entry of such a file.
pub fn with_entry(
    name: &str,
    existing: Option<&[u8]>,
    argv: &[String],
    origin: Origin,
) -> Result<Option<String>, AllowlistInvalid> {
    let failed = |why: String| invalid(name, why);
    let (command, args) = argv.split_first().ok_or_else(|| failed("an empty command".into()))?;
    let new = Entry { command: command.clone(), args: args.to_vec() };
    new.require_valid(origin).map_err(failed)?;
    let mut entries = match existing {
        Some(bytes) => parse(bytes, origin).map_err(failed)?,
        None => Vec::new(),
    };
    if entries.contains(&new) {
        return Ok(None);
    }
    entries.push(new);
    Ok(Some(render(&entries)))
}

/// One entry a line, so that merges and reviews see entries.
fn render(entries: &[Entry]) -> String {
    let lines: Vec<String> = entries.iter().map(|e| format!("    {}", e.json())).collect();
    format!("{{\n  \"version\": {VERSION},\n  \"commands\": [\n{}\n  ]\n}}\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests;
