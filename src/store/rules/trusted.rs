//! The trusted ref and the rule files on it.
//!
//! Contract: rules an agent could edit (`.agentproto/**`, `agentproto.json`) are read only as committed on
//! the trusted ref, never from a working tree. Which ref that is a person fixed: a known path keeps its
//! id and ref whatever its refs say; an unknown one gets them by the default rule, and nothing here
//! stores that (decisions 4, 5). A changed rule file acts at once and is shown until `trust`.

use crate::store::{
    StoreError,
    refs::{RefReader, Stored, is_name},
    repo_id::{RepoIdError, load_repo_id, real_objects},
    settings::{KnownPath, RepoSettings, SettingsError, user_scope},
    worktree_state::{Head, head},
};
use crate::{
    code::Code,
    domain::{digest::hex, oid::Oid, path::RULE_PATHS},
    sys::env::Env,
};
use gix::bstr::{BString, ByteSlice};
use sha2::{Digest, Sha256};

/// There is no trusted ref, or it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrustedError {
    /// The repository is empty.
    #[error("the repository has no commit yet")]
    NoCommits,
    /// No branch fits the rule.
    #[error("no branch can be trusted by default: looked for {0}")]
    NoRef(String),
    /// The ref a person fixed is not there.
    #[error("the trusted ref {0} does not exist")]
    Gone(String),
    /// Refs or objects cannot be read.
    #[error("cannot read {what}: {why}")]
    Git {
        /// What was to be read.
        what: String,
        /// Why not.
        why: String,
    },
    /// A ref cannot be read.
    #[error("cannot read {name}: {source}")]
    Ref {
        /// Its full name.
        name: String,
        /// Why not.
        source: Box<StoreError>,
    },
    /// A rule file is a directory, a symlink or a submodule.
    #[error("{path} on the trusted ref is not a plain file")]
    NotAFile {
        /// Its path in the tree.
        path: String,
    },
    /// The repository id cannot be told.
    #[error(transparent)]
    RepoId(#[from] RepoIdError),
    /// The user's settings cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl TrustedError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoCommits => Code::NoCommitsYet,
            Self::NoRef(_) | Self::Gone(_) => Code::NoTrustedRef,
            Self::Git { .. } => Code::StoreUnusable,
            Self::Ref { source, .. } => source.code(),
            Self::NotAFile { .. } => Code::BadSetting,
            Self::RepoId(why) => why.code(),
            Self::Settings(why) => why.code(),
        }
    }
}

fn ref_error(name: &str) -> impl FnOnce(StoreError) -> TrustedError {
    move |source| TrustedError::Ref { name: name.to_owned(), source: Box::new(source) }
}

fn git_error(what: impl Into<String>, why: &dyn std::fmt::Display) -> TrustedError {
    TrustedError::Git { what: what.into(), why: why.to_string() }
}

/// What this repository trusts, and the user's settings for it.
#[derive(Debug)]
pub struct Trust {
    /// The repository id.
    pub repo_id: Oid,
    /// Full name of the trusted ref.
    pub trusted_ref: String,
    /// The commit it points to now.
    pub tip: Oid,
    /// True when a person introduced this very path to this machine.
    pub known_path: bool,
    /// The user's settings for this repository.
    pub settings: RepoSettings,
}

impl Trust {
    /// Finds out what is trusted. `session_branches` are full names of branches that have a session's
    /// worktree: those are never trusted by default while there is another.
    ///
    /// # Errors
    /// No ref fits, it cannot be read, or the settings cannot.
    pub fn load(
        repo: &gix::Repository,
        env: &Env,
        session_branches: &[String],
    ) -> Result<Self, TrustedError> {
        if let Some(known) = KnownPath::load(env, repo.common_dir())? {
            let settings = RepoSettings::load(env, known.repo_id)?;
            let KnownPath { repo_id, trusted_ref } = known;
            let tip = require_tip(repo, &trusted_ref)?;
            return Ok(Self { repo_id, trusted_ref, tip, known_path: true, settings });
        }
        let default = default_ref(repo, session_branches)?;
        let repo_id = load_repo_id(repo, require_tip(repo, &default)?)?;
        let settings = RepoSettings::load(env, repo_id)?;
        // Another clone of this repository may have been introduced: its choice holds here as well,
        // as far as this clone has the ref.
        let fixed = settings.trusted_ref()?;
        let (trusted_ref, tip) = match fixed.map(|name| (tip_of(repo, &name), name)) {
            Some((Ok(Some(tip)), name)) => (name, tip),
            Some((Err(why), _)) => return Err(why),
            Some((Ok(None), _)) | None => {
                let tip = require_tip(repo, &default)?;
                (default, tip)
            }
        };
        Ok(Self { repo_id, trusted_ref, tip, known_path: false, settings })
    }

    /// Whether the rule files are still those a person accepted.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn rules(&self, repo: &gix::Repository) -> Result<Rules, TrustedError> {
        let now = rules_digest(repo, self.tip)?;
        Ok(match self.settings.trusted_rules()? {
            None => Rules::NeverAccepted { now },
            Some(accepted) if accepted == now => Rules::Accepted { now },
            Some(accepted) => Rules::Changed { accepted, now },
        })
    }
}

/// The rule files compared with what a person accepted last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Nobody ever ran `init` or `trust` here.
    NeverAccepted {
        /// Digest of the files as they are.
        now: String,
    },
    /// As accepted.
    Accepted {
        /// Digest of the files as they are.
        now: String,
    },
    /// Changed since.
    Changed {
        /// Digest that was accepted.
        accepted: String,
        /// Digest of the files as they are.
        now: String,
    },
}

/// The trusted ref of a repository nobody introduced (decisions 5): the branch `HEAD` of `origin`, else of
/// the only remote, names; else the local `init.defaultBranch`, `main` or `master`.
///
/// # Errors
/// None of them exists, or several do and all belong to sessions.
pub fn default_ref(
    repo: &gix::Repository,
    session_branches: &[String],
) -> Result<String, TrustedError> {
    if let Some(name) = remote_head(repo)? {
        return Ok(name);
    }
    let mut candidates = Vec::new();
    // Only a person's own scopes name the branch: repository scope is the agent's to write.
    let configured = user_scope(repo, "init.defaultBranch")?;
    for short in configured.iter().map(String::as_str).chain(["main", "master"]) {
        let name = format!("refs/heads/{short}");
        if !candidates.contains(&name) && tip_of(repo, &name)?.is_some() {
            candidates.push(name);
        }
    }
    let free = candidates.iter().find(|name| !session_branches.contains(name));
    match (free, candidates.as_slice()) {
        (Some(name), _) => Ok(name.clone()),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(no_ref(repo, configured.as_deref())),
    }
}

fn no_ref(repo: &gix::Repository, configured: Option<&str>) -> TrustedError {
    let unborn = matches!(head(repo), Ok(Head::Unborn { .. }));
    let branches = RefReader::of(repo).and_then(|refs| refs.names("refs/heads/"));
    if unborn && branches.is_ok_and(|found| found.is_empty()) {
        return TrustedError::NoCommits;
    }
    let configured = configured.map(|name| format!("{name}, ")).unwrap_or_default();
    TrustedError::NoRef(format!("the remote's HEAD, {configured}main, master"))
}

fn remote_head(repo: &gix::Repository) -> Result<Option<String>, TrustedError> {
    let names: Vec<String> =
        repo.remote_names().iter().filter_map(|n| n.to_str().ok().map(str::to_owned)).collect();
    let remote = match names.iter().find(|n| *n == "origin") {
        Some(origin) => origin,
        None => match names.as_slice() {
            [only] => only,
            [] | [_, ..] => return Ok(None),
        },
    };
    let head = format!("refs/remotes/{remote}/HEAD");
    let found = RefReader::of(repo).and_then(|refs| refs.stored(&head));
    let Some(Stored::Symbolic(target)) = found.map_err(ref_error(&head))? else {
        return Ok(None);
    };
    let ours = target.starts_with(&format!("refs/remotes/{remote}/"));
    Ok(if ours && tip_of(repo, &target)?.is_some() { Some(target) } else { None })
}

fn require_tip(repo: &gix::Repository, name: &str) -> Result<Oid, TrustedError> {
    tip_of(repo, name)?.ok_or_else(|| TrustedError::Gone(name.to_owned()))
}

/// The commit a ref points to; none when there is no such ref.
///
/// # Errors
/// The ref exists but cannot be read, or is no commit.
pub fn tip_of(repo: &gix::Repository, name: &str) -> Result<Option<Oid>, TrustedError> {
    // What is no full name names nothing.
    if !is_name(name) {
        return Ok(None);
    }
    let found = RefReader::of(repo).and_then(|refs| refs.read(name));
    let Some(id) = found.map_err(ref_error(name))? else { return Ok(None) };
    let id = gix::ObjectId::try_from(id.as_bytes()).map_err(|e| git_error(name, &e))?;
    let object = repo.find_object(id).map_err(|e| git_error(name, &e))?;
    let commit = object.peel_to_commit().map_err(|e| git_error(name, &e))?;
    Oid::from_bytes(commit.id.as_slice()).map(Some).map_err(|e| git_error(name, &e))
}

/// The content of a rule file at a commit; none when it is not there.
///
/// # Errors
/// It is no plain file, or cannot be read.
pub fn load_rule_file(
    repo: &gix::Repository,
    tip: Oid,
    path: &str,
) -> Result<Option<Vec<u8>>, TrustedError> {
    let repo = &real_objects(repo);
    let Some(entry) =
        tree_at(repo, tip)?.lookup_entry_by_path(path).map_err(|e| git_error(path, &e))?
    else {
        return Ok(None);
    };
    if !entry.mode().is_blob() {
        return Err(TrustedError::NotAFile { path: path.to_owned() });
    }
    let object = entry.object().map_err(|e| git_error(path, &e))?;
    Ok(Some(object.detach().data))
}

fn tree_at(repo: &gix::Repository, tip: Oid) -> Result<gix::Tree<'_>, TrustedError> {
    let failed = |e: &dyn std::fmt::Display| git_error(tip.to_string(), e);
    let id = gix::ObjectId::try_from(tip.as_bytes()).map_err(|e| failed(&e))?;
    let commit = repo.find_commit(id).map_err(|e| failed(&e))?;
    commit.tree().map_err(|e| failed(&e))
}

/// SHA-256 over the rule files at a commit: for each file in path order its mode, path, length and bytes,
/// so neither names nor borders can be shifted. No rule files have a digest, too.
///
/// # Errors
/// They cannot be read.
pub fn rules_digest(repo: &gix::Repository, tip: Oid) -> Result<String, TrustedError> {
    let repo = &real_objects(repo);
    let tree = tree_at(repo, tip)?;
    let mut files = Vec::new();
    for top in RULE_PATHS {
        if let Some(entry) = tree.lookup_entry_by_path(top).map_err(|e| git_error(top, &e))? {
            collect(repo, top.into(), entry.mode(), entry.object_id(), &mut files)?;
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hasher = Sha256::new();
    for file in &files {
        hasher.update(format!("{:o} ", file.mode.value()));
        hasher.update(&file.path);
        hasher.update(format!("\0{}\n", file.data.len()));
        hasher.update(&file.data);
    }
    Ok(hex(&hasher.finalize()))
}

struct RuleFile {
    path: BString,
    mode: gix::objs::tree::EntryMode,
    data: Vec<u8>,
}

fn collect(
    repo: &gix::Repository,
    path: BString,
    mode: gix::objs::tree::EntryMode,
    id: gix::ObjectId,
    files: &mut Vec<RuleFile>,
) -> Result<(), TrustedError> {
    if mode.is_commit() {
        // A submodule's content is elsewhere: its id stands for it.
        files.push(RuleFile { path, mode, data: id.as_slice().to_vec() });
        return Ok(());
    }
    let object = repo.find_object(id).map_err(|e| git_error(path.to_str_lossy(), &e))?;
    if !mode.is_tree() {
        files.push(RuleFile { path, mode, data: object.detach().data });
        return Ok(());
    }
    for entry in object.into_tree().iter() {
        let entry = entry.map_err(|e| git_error(path.to_str_lossy(), &e))?;
        let mut below = path.clone();
        below.push(b'/');
        below.extend_from_slice(entry.filename());
        collect(repo, below, entry.mode(), entry.object_id(), files)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
