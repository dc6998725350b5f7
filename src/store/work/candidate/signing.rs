//! Signing a commit, as git would, with what a person's own configuration names.
//!
//! Contract: git makes the signature (`commit-tree -S`), into a directory of its own; what comes back is the commit
//! that was given, with a signature and nothing else. Programs and keys are those of system and global scope: the
//! repository can ask for a signature, but not choose who makes it (invariant 12), and not waive it.

use crate::{
    code::Code,
    domain::oid::{HashKind, Oid},
    store::{
        Worktree,
        git::{Git, GitError, find_program},
        object::{HashError, Kind, Object},
        settings::{SettingsError, expand_path, user_scope, user_scope_bool},
        worktree_state::{StateError, wants_signing},
    },
    sys::{
        env::Env,
        files::{self, FileError, Scratch},
        spawn::{self, Call, Done, Presence, SpawnError},
    },
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The setting that asks for signatures.
const WANTED: &str = "commit.gpgSign";

/// Commits cannot be signed as they are to be.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A setting cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A setting of the repository cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A setting leads to no signature.
    #[error("{key}: {why}")]
    Unusable {
        /// The key.
        key: &'static str,
        /// Why, as a fragment.
        why: String,
    },
    /// The place where git makes it cannot be prepared.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program could not be run to its end: nobody answered it in time, say.
    #[error("{}", without_path(.0))]
    Spawn(#[from] SpawnError),
    /// What signs said no.
    #[error("{said}")]
    Refused {
        /// Its last words.
        said: String,
    },
    /// git failed otherwise.
    #[error(transparent)]
    Git(#[from] GitError),
    /// What came back is not that commit with a signature.
    #[error("git signed another commit: {0}")]
    Other(&'static str),
    /// It cannot be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
}

/// What is recorded under a ref names no place of this machine.
fn without_path(error: &SpawnError) -> String {
    match error {
        SpawnError::Start { source, .. } => format!("git cannot be started: {source}"),
        SpawnError::Deadline { deadline_ms, .. } => {
            format!("nothing was signed within {} s", deadline_ms / 1000)
        }
        SpawnError::Wait { source, .. } => format!("lost track of git: {source}"),
    }
}

impl SigningError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Settings(e) => e.code(),
            Self::State(e) => e.code(),
            Self::Unusable { .. } => Code::CommitSigningUnusable,
            Self::File(_) => Code::Io,
            Self::Git(e) => e.code(),
            Self::Spawn(_) | Self::Refused { .. } => Code::SigningNeedsPerson,
            Self::Other(_) | Self::Hash(_) => Code::CandidateFailed,
        }
    }
}

/// How commits are signed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    settings: Vec<(&'static str, OsString)>,
}

/// True when commits are to be signed here: a person's own wish counts whatever the repository says, and the repository's
/// wish is one, too.
///
/// # Errors
/// A setting is no boolean.
pub fn is_wanted(repo: &gix::Repository) -> Result<bool, SigningError> {
    Ok(user_scope_bool(repo, WANTED)? || wants_signing(repo)?)
}

impl Signer {
    /// Reads the settings; none when commits are not to be signed.
    ///
    /// # Errors
    /// Settings cannot be read, or lead to no signature.
    pub fn read(
        repo: &gix::Repository,
        env: &Env,
        worktree: &Worktree,
        committer: &str,
    ) -> Result<Option<Self>, SigningError> {
        if !is_wanted(repo)? {
            return Ok(None);
        }
        let reader = Reader { repo, env, worktree };
        let set = |key| Ok::<_, SigningError>(user_scope(repo, key)?.filter(|v| !v.is_empty()));
        let format = set("gpg.format")?.unwrap_or_else(|| "openpgp".to_owned());
        let mut settings: Vec<(&'static str, OsString)> = match format.as_str() {
            "openpgp" => {
                let program = reader.program(&["gpg.openpgp.program", "gpg.program"], "gpg")?;
                vec![("gpg.program", program.clone()), ("gpg.openpgp.program", program)]
            }
            "x509" => vec![("gpg.x509.program", reader.program(&["gpg.x509.program"], "gpgsm")?)],
            "ssh" => vec![("gpg.ssh.program", reader.program(&["gpg.ssh.program"], "ssh-keygen")?)],
            _ => return Err(unusable("gpg.format", format!("'{format}' is no format of git"))),
        };
        let key = match set("user.signingKey")? {
            Some(key) if format == "ssh" => reader.ssh_key(&key)?,
            Some(key) => key.into(),
            None if format == "ssh" => {
                let why =
                    "with gpg.format=ssh, git config --global has to name the key to sign with";
                return Err(unusable("user.signingKey", why.to_owned()));
            }
            // What git takes when it is told nothing.
            None => committer.into(),
        };
        // With a key named, git asks no command for one.
        settings.extend([("gpg.format", format.into()), ("user.signingKey", key)]);
        Ok(Some(Self { settings }))
    }

    /// Signs a commit whose tree and parent are in the repository. `dir` is used up.
    ///
    /// # Errors
    /// Nobody signed it, or something else came back.
    pub fn sign(
        &self,
        git: &Git,
        (dir, objects): (&Path, &Path),
        unsigned: &Object,
        presence: Presence,
    ) -> Result<Object, SigningError> {
        let desk = Desk::make(git, dir, objects)?;
        let done = spawn::run_asking(desk.call(self, unsigned)?, presence)?;
        if !done.status.success() {
            return Err(SigningError::Refused { said: last_words(done) });
        }
        let id = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        let id: Oid = id.parse().map_err(|_| SigningError::Other("it names none"))?;
        let data = git.call(&["cat-file", "commit", &id.to_string()], b"", &desk.vars())?;
        let without = unsigned_form(&data, unsigned.id.hash())
            .ok_or(SigningError::Other("it has no signature"))?;
        if without != unsigned.data {
            return Err(SigningError::Other("more than the signature differs"));
        }
        let signed = Object::new(unsigned.id.hash(), Kind::Commit, data)?;
        if signed.id != id {
            return Err(SigningError::Other("its id is not of its content"));
        }
        Ok(signed)
    }
}

fn unusable(key: &'static str, why: String) -> SigningError {
    SigningError::Unusable { key, why }
}

struct Reader<'a> {
    repo: &'a gix::Repository,
    env: &'a Env,
    worktree: &'a Worktree,
}

impl Reader<'_> {
    /// The absolute path of the program that the first of these keys names.
    fn program(&self, keys: &[&'static str], default: &str) -> Result<OsString, SigningError> {
        let mut named = None;
        for key in keys {
            if named.is_none() {
                // As git has it, nothing named is nothing set.
                let set = user_scope(self.repo, key)?.filter(|name| !name.is_empty());
                named = set.map(|name| (*key, name));
            }
        }
        let (key, name) = match named {
            Some((key, name)) => (key, name),
            None => (keys.first().copied().unwrap_or(WANTED), default.to_owned()),
        };
        if !name.contains('/') {
            let found =
                find_program(self.env, &[&self.worktree.top, &self.worktree.git_dir], &name);
            let why = || format!("there is no {name} in an absolute directory of PATH");
            return found.map(PathBuf::into_os_string).ok_or_else(|| unusable(key, why()));
        }
        let path = expand_path(self.env, key, &name)?;
        match files::look_through(&path)?.is_some_and(|meta| meta.is_file()) {
            true => Ok(path.into_os_string()),
            false => Err(unusable(key, format!("there is no program {name}"))),
        }
    }

    /// A key that git hands to its ssh program: the key itself, or a file.
    fn ssh_key(&self, key: &str) -> Result<OsString, SigningError> {
        if key.starts_with("key::") || key.starts_with("ssh-") {
            return Ok(key.into());
        }
        let path = expand_path(self.env, "user.signingKey", key)?;
        match files::look_through(&path)? {
            Some(_) => Ok(path.into_os_string()),
            None => Err(unusable("user.signingKey", format!("there is no file {key}"))),
        }
    }
}

/// A directory in which git writes the one object it makes.
struct Desk<'a> {
    git: &'a Git,
    dir: Scratch,
    store: PathBuf,
}

impl<'a> Desk<'a> {
    fn make(git: &'a Git, dir: &Path, objects: &Path) -> Result<Self, SigningError> {
        let dir = Scratch::make(dir)?;
        let store = dir.path().join("objects");
        files::make_private_dirs(&store.join("info"))?;
        let mut line = files::real(objects)?.into_os_string().into_vec();
        if line.contains(&b'\n') {
            return Err(unusable(WANTED, "the path of the repository has a line end".to_owned()));
        }
        line.push(b'\n');
        files::write_private(&store.join("info").join("alternates"), &line)?;
        Ok(Self { git, dir, store })
    }

    fn vars(&self) -> [(&'static str, &OsStr); 1] {
        [("GIT_OBJECT_DIRECTORY", self.store.as_os_str())]
    }

    fn call(&self, signer: &Signer, unsigned: &Object) -> Result<Call, SigningError> {
        let lost = || SigningError::Other("what was to be signed is no commit");
        let parts = Parts::of(&unsigned.data).ok_or_else(lost)?;
        let file = self.dir.path().join("message");
        files::write_private(&file, parts.message)?;
        let mut args: Vec<OsString> = Vec::new();
        for (key, value) in &signer.settings {
            args.extend(["-c".into(), [OsStr::new(key), value].join(OsStr::new("="))]);
        }
        args.extend(["-c", "i18n.commitEncoding=UTF-8", "commit-tree", "-S"].map(Into::into));
        args.extend(
            [OsStr::from_bytes(parts.tree), OsStr::new("-F"), file.as_os_str()].map(Into::into),
        );
        for parent in &parts.parents {
            args.extend([OsStr::new("-p"), OsStr::from_bytes(parent)].map(Into::into));
        }
        let (author, committer) = (parts.author, parts.committer);
        let dates = [author.date(), committer.date()];
        let [authored, committed] = &dates;
        let store = self.store.as_os_str();
        let extra = [
            ("GIT_OBJECT_DIRECTORY", store),
            ("GIT_AUTHOR_NAME", OsStr::from_bytes(author.name)),
            ("GIT_AUTHOR_EMAIL", OsStr::from_bytes(author.email)),
            ("GIT_AUTHOR_DATE", authored.as_os_str()),
            ("GIT_COMMITTER_NAME", OsStr::from_bytes(committer.name)),
            ("GIT_COMMITTER_EMAIL", OsStr::from_bytes(committer.email)),
            ("GIT_COMMITTER_DATE", committed.as_os_str()),
        ];
        Ok(self.git.prepared(&args, &extra))
    }
}

/// A commit of ours, taken apart.
struct Parts<'a> {
    tree: &'a [u8],
    parents: Vec<&'a [u8]>,
    author: Stamped<'a>,
    committer: Stamped<'a>,
    message: &'a [u8],
}

#[derive(Clone, Copy)]
struct Stamped<'a> {
    name: &'a [u8],
    email: &'a [u8],
    at: &'a [u8],
}

impl Stamped<'_> {
    fn date(&self) -> OsString {
        OsString::from_vec([b"@", self.at].concat())
    }
}

impl<'a> Parts<'a> {
    fn of(data: &'a [u8]) -> Option<Self> {
        let end = data.windows(2).position(|pair| pair == b"\n\n")?;
        let (head, message) = (&data[..end], &data[end + 2..]);
        let fields = |name: &'static [u8]| {
            head.split(|b| *b == b'\n').filter_map(move |line| line.strip_prefix(name))
        };
        Some(Self {
            tree: fields(b"tree ").next()?,
            parents: fields(b"parent ").collect(),
            author: stamped(fields(b"author ").next()?)?,
            committer: stamped(fields(b"committer ").next()?)?,
            message,
        })
    }
}

fn stamped(line: &[u8]) -> Option<Stamped<'_>> {
    let open = line.iter().position(|b| *b == b'<')?;
    let close = line.iter().rposition(|b| *b == b'>')?;
    let name = line.get(..open)?.strip_suffix(b" ")?;
    let at = line.get(close + 1..)?.strip_prefix(b" ")?;
    Some(Stamped { name, email: line.get(open + 1..close)?, at })
}

/// The commit without its signature; none when it has none.
fn unsigned_form(data: &[u8], hash: HashKind) -> Option<Vec<u8>> {
    let field: &[u8] = match hash {
        HashKind::Sha1 => b"gpgsig ",
        HashKind::Sha256 => b"gpgsig-sha256 ",
    };
    let end = data.windows(2).position(|pair| pair == b"\n\n")? + 1;
    let (head, rest) = data.split_at(end);
    let (mut kept, mut inside, mut found) = (Vec::new(), false, false);
    for line in head.split_inclusive(|b| *b == b'\n') {
        inside = line.starts_with(field) || (inside && line.starts_with(b" "));
        if inside {
            found = true;
        } else {
            kept.extend_from_slice(line);
        }
    }
    kept.extend_from_slice(rest);
    found.then_some(kept)
}

/// Git's own last line says only that there is no commit.
fn last_words(mut done: Done) -> String {
    const NO_COMMIT: &str = "fatal: failed to write commit object";
    let text = String::from_utf8_lossy(&done.stderr).replace(NO_COMMIT, "");
    done.stderr = text.into_bytes();
    let words = done.last_words().unwrap_or_else(|| "what signs did not let it".to_owned());
    words.replace("error: ", "")
}
