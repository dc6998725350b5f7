//! What a repository must be like to be worked with: one probe, at open.
//!
//! Contract: everything that would be silent damage later is refused by name now. Only the
//! repository's own configuration is read for that, without includes, as git does for its format check;
//! ownership may be waived by `safe.directory` in system or user configuration only.

use crate::store::{
    location::{Location, OpenError},
    refs::RefFormat,
};
use crate::{
    code::Code,
    domain::oid::HashKind,
    limits,
    sys::{env::Env, files},
};
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Extensions of repository format 1 that nothing here stumbles over, or that have a refusal of their own.
const EXTENSIONS: [&str; 8] = [
    "noop",
    "noop-v1",
    "objectformat",
    "partialclone",
    "preciousobjects",
    "refstorage",
    "relativeworktrees",
    "worktreeconfig",
];

/// Configuration of the repository itself: `config`, then `config.worktree` where that is in force.
pub(in crate::store) struct RepoConfig(Vec<gix::config::File>);

impl RepoConfig {
    /// Reads it.
    ///
    /// # Errors
    /// It is there and unreadable or malformed.
    pub(in crate::store) fn load(common_dir: &Path) -> Result<Self, OpenError> {
        let mut config = Self(Vec::from_iter(parse(&common_dir.join("config"))?));
        if config.is_true("extensions.worktreeConfig") {
            config.0.extend(parse(&common_dir.join("config.worktree"))?);
        }
        Ok(config)
    }

    /// The last value of a key.
    pub(in crate::store) fn text(&self, key: &str) -> Option<String> {
        self.0.iter().rev().find_map(|f| f.string(key)).map(|v| v.to_string())
    }

    /// True when the key is set to a true value. Malformed values are git's to report.
    pub(in crate::store) fn is_true(&self, key: &str) -> bool {
        let value = |f: &gix::config::File| f.boolean(key).ok().flatten();
        self.0.iter().rev().find_map(value).unwrap_or(false)
    }

    /// The hash of the repository's objects; as git, that of a repository that names none is SHA-1.
    fn hash(&self, common_dir: &Path) -> Result<HashKind, OpenError> {
        let Some(name) = self.text("extensions.objectFormat") else { return Ok(HashKind::Sha1) };
        HashKind::ALL.into_iter().find(|h| h.name() == name).ok_or_else(|| OpenError::Malformed {
            path: common_dir.join("config"),
            reason: format!("extensions.objectFormat names no hash: '{name}'"),
        })
    }

    /// What of the repository's format neither git's rules nor this version know, in words.
    fn unknown_format(&self) -> Option<String> {
        let version = self.text("core.repositoryFormatVersion").unwrap_or_default();
        match version.trim() {
            // An old git ignores extensions there, and so do we but for those the probe asks for by name.
            "" | "0" => None,
            "1" => {
                let mut names = self.extensions().into_iter();
                names.find(|name| !EXTENSIONS.contains(&name.as_str()))
            }
            newer => return Some(format!("repository format '{newer}'")),
        }
        .map(|name| format!("the extension '{name}'"))
    }

    /// Names of all `extensions.*` that are set, in lower case.
    fn extensions(&self) -> Vec<String> {
        let sections = self.0.iter().filter_map(|f| f.sections_by_name("extensions")).flatten();
        let mut names = Vec::new();
        for section in sections {
            names.extend(section.value_names().map(|name| name.to_string().to_lowercase()));
        }
        names
    }

    fn has_promisor(&self) -> bool {
        let remotes = self.0.iter().filter_map(|f| f.sections_by_name("remote")).flatten();
        remotes
            .filter_map(|s| s.value("promisor"))
            .any(|v| !matches!(v.to_string().to_lowercase().as_str(), "false" | "no" | "off" | "0"))
    }
}

fn parse(path: &Path) -> Result<Option<gix::config::File>, OpenError> {
    let Some(data) = files::read_optional(path, limits::SETTINGS_FILE_BYTES)? else {
        return Ok(None);
    };
    let meta = gix::config::file::Metadata::from(gix::config::Source::Local);
    gix::config::File::from_bytes_no_includes(
        &data,
        meta,
        gix::config::file::init::Options::default(),
    )
    .map(Some)
    .map_err(|e| OpenError::Malformed { path: path.to_owned(), reason: e.to_string() })
}

/// Why the repository's own configuration may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Owner {
    /// It belongs to the user.
    Ourselves,
    /// It belongs to somebody else and the user's `safe.directory` names it.
    DeclaredSafe,
}

/// What the repository is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Probed {
    pub(in crate::store) owner: Owner,
    pub(in crate::store) hash: HashKind,
    pub(in crate::store) refs: RefFormat,
}

/// Refuses by name what this version cannot work with.
///
/// # Errors
/// See [`OpenError`].
pub(in crate::store) fn probe(location: &Location, env: &Env) -> Result<Probed, OpenError> {
    let owner = check_owner(location, env)?;
    let config = RepoConfig::load(&location.common_dir)?;
    let refuse = |what: String, code| Err(OpenError::Unsupported { what, code });
    if let Some(what) = config.unknown_format() {
        return refuse(what, Code::RepositoryFormatUnsupported);
    }
    let refs = RefFormat::named(config.text("extensions.refStorage").as_deref())?;
    if config.text("extensions.partialClone").is_some() || config.has_promisor() {
        return refuse("a partial clone".to_owned(), Code::PartialCloneUnsupported);
    }
    Ok(Probed { owner, hash: config.hash(&location.common_dir)?, refs })
}

fn check_owner(location: &Location, env: &Env) -> Result<Owner, OpenError> {
    let worktree = location.worktree.as_ref();
    let dirs = [Some(&location.common_dir), worktree.map(|w| &w.git_dir), worktree.map(|w| &w.top)];
    for dir in dirs.into_iter().flatten() {
        if !owned(dir, env)? {
            let named = worktree.map_or(&location.common_dir, |w| &w.top);
            return if declared_safe(named, env)? {
                Ok(Owner::DeclaredSafe)
            } else {
                Err(OpenError::NotOwned { path: dir.clone() })
            };
        }
    }
    Ok(Owner::Ourselves)
}

fn owned(dir: &Path, env: &Env) -> Result<bool, OpenError> {
    let missing = || files::FileError::new("look at", dir, std::io::ErrorKind::NotFound.into());
    let owner = files::look(dir)?.ok_or_else(missing)?.uid();
    let me = rustix::process::geteuid().as_raw();
    // As git: root by way of sudo may work on what belongs to the person behind it.
    let behind_sudo = (me == 0).then(|| env.text("SUDO_UID")?.parse::<u32>().ok()).flatten();
    Ok(owner == me || behind_sudo == Some(owner))
}

fn declared_safe(dir: &Path, env: &Env) -> Result<bool, OpenError> {
    let mut safe = false;
    for path in user_config_files(env) {
        let Some(file) = parse(&path)? else { continue };
        for value in file.strings("safe.directory").unwrap_or_default() {
            let value = value.to_string();
            safe = match value.as_str() {
                "" => false,
                "*" => true,
                text => safe || names_dir(text, dir),
            };
        }
    }
    Ok(safe)
}

fn names_dir(value: &str, dir: &Path) -> bool {
    match value.strip_suffix("/*") {
        Some(above) => Path::new(above).is_absolute() && dir.starts_with(above),
        None => files::real(Path::new(value)).is_ok_and(|named| named == dir),
    }
}

fn user_config_files(env: &Env) -> Vec<PathBuf> {
    let mut list = Vec::new();
    if env.text("GIT_CONFIG_NOSYSTEM").is_none() {
        let system = env.text("GIT_CONFIG_SYSTEM").unwrap_or("/etc/gitconfig");
        list.push(PathBuf::from(system));
    }
    match env.text("GIT_CONFIG_GLOBAL") {
        Some(path) => list.push(PathBuf::from(path)),
        None => {
            let xdg = env.text("XDG_CONFIG_HOME").map(PathBuf::from);
            let below_home = env.home().map(|h| h.join(".config"));
            list.extend(xdg.or(below_home).map(|d| d.join("git/config")));
            list.extend(env.home().map(|h| h.join(".gitconfig")));
        }
    }
    list
}
