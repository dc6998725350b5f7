//! `init`, `allow`, `trust`: what a person sets up for a repository.
//!
//! Contract: everything goes into the person's own settings and key directory; nothing tracked, no commit, no
//! repository configuration and no ref is written, with the one exception of `allow --commit` ([`commit`]). All that can be checked is checked while the plan is made;
//! writing comes last, and a dry run stops before it. Doing it again changes nothing. Refused inside a
//! supervised session: these are the rules an agent lives under.

mod commit;
mod lacking;
mod proposals;
mod signer;

use super::{
    Ledger, LedgerError,
    ack::SIGNING_KEY,
    gates::{PATH_KEY, settings_error},
};
use crate::{
    code::Code,
    domain::oid::Oid,
    sign::{
        choose::{ChooseKeyError, load_signing_key, own_key_file},
        key::{Named, SigningKey},
    },
    store::{
        Worktree,
        allowlist::{Origin, with_entry},
        program::FixedPath,
        settings::{KnownPath, RepoSettings, protected, read_optional, write_private},
        trusted::{Rules, Trust, TrustedError, default_ref, tip_of},
    },
};
use std::path::{Path, PathBuf};

pub(super) use commit::is_landing;
pub use commit::{AllowCommitted, AllowLanded, WorkingFile};
pub use lacking::Lacking;

/// What `init` is asked for.
#[derive(Clone, Debug, Default)]
pub struct InitAsk {
    /// The key file that is to sign; chosen when absent.
    pub key: Option<PathBuf>,
    /// Commands to allow at once.
    pub allow: Vec<Vec<String>>,
    /// Only tell what would be done.
    pub dry_run: bool,
}

/// What `init` saw to.
#[derive(Clone, Debug)]
pub struct InitDone {
    /// What is so now, in order, and whether it was not so before (in a dry run: is not so yet).
    pub steps: Vec<(String, bool)>,
    /// The repository id.
    pub repo_id: Oid,
    /// Full name of the trusted ref.
    pub trusted_ref: String,
    /// The key file that signs.
    pub key: String,
    /// The allowed-signers file in force, or path and ref.
    pub signers: String,
    /// Commands the repository is built with that are not allowed yet.
    pub proposals: Vec<String>,
}

/// What `allow` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowDone {
    /// The person's allowlist of this repository.
    pub file: PathBuf,
    /// The entry was not in it before.
    pub changed: bool,
    /// Why it could not run in this worktree now, although it may.
    pub absent: Option<String>,
}

/// What `trust` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesAccepted {
    /// Full name of the trusted ref.
    pub trusted_ref: String,
    /// The commit whose rule files were accepted.
    pub tip: Oid,
    /// SHA-256 over them.
    pub digest: String,
    /// They were not accepted before.
    pub changed: bool,
}

/// The key that signs from now on.
enum Key {
    There(Box<SigningKey>),
    ToMake(PathBuf),
}

/// A plan and what it is made from.
struct Setup<'a> {
    ledger: &'a Ledger,
    repo: gix::Repository,
    worktree: Worktree,
    trust: Trust,
    steps: Vec<(String, bool)>,
    known: Option<KnownPath>,
    settings_changed: bool,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Entries that are in the person's allowlist once this is written.
    allowed: Vec<Vec<String>>,
}

impl Ledger {
    /// Sets the repository up for the person.
    ///
    /// # Errors
    /// Inside a session; no trusted ref, no usable key, no identity; a file that exists and cannot be
    /// understood; nothing was written then. Also when the file system refuses.
    pub fn init(&self, ask: &InitAsk) -> Result<InitDone, LedgerError> {
        self.require_outside(Code::PersonOnly, "init")?;
        let trust = match self.trust() {
            Err(LedgerError::Trust(TrustedError::Gone(gone))) => self.trust_anew(gone)?,
            trust => (trust?, None),
        };
        let mut setup = self.setup("init", trust.0)?;
        setup.introduce(trust.1)?;
        setup.fix_path()?;
        setup.accept_first_rules()?;
        let key = setup.choose_key(ask.key.as_deref())?;
        let signers = setup.list_key(&key)?;
        setup.allow(&ask.allow)?;
        let proposals = setup.proposals()?;
        if !ask.dry_run {
            setup.write()?;
            setup.write_key(&key)?;
        }
        let Setup { trust, steps, .. } = setup;
        Ok(InitDone {
            steps,
            repo_id: trust.repo_id,
            trusted_ref: trust.trusted_ref,
            key: match key {
                Key::There(key) => key.shown(),
                Key::ToMake(path) => path.display().to_string(),
            },
            signers,
            proposals,
        })
    }

    /// Adds a command with its first arguments to the person's allowlist of this repository.
    ///
    /// # Errors
    /// Inside a session; the command cannot be an entry; the list cannot be understood or written.
    pub fn allow(&self, argv: &[String]) -> Result<AllowDone, LedgerError> {
        self.require_outside(Code::PersonOnly, "allow")?;
        let mut setup = self.setup("allow", self.trust()?)?;
        setup.fix_path()?;
        let changed = setup.allow(&[argv.to_vec()])?;
        setup.write()?;
        let file = setup.trust.settings.allowlist_file();
        Ok(AllowDone { file, changed, absent: self.absent(argv, &setup.worktree) })
    }

    /// Why a command that was just allowed could not run as a gate of this worktree now. It stays allowed, so what
    /// cannot be told is said and fails nothing.
    fn absent(&self, argv: &[String], worktree: &Worktree) -> Option<String> {
        match self.trust().and_then(|trust| self.gate_rules(worktree, &trust)) {
            Ok(rules) => rules.find(argv, worktree, "allow").err().map(|problem| problem.why),
            Err(error) => Some(error.to_string()),
        }
    }

    /// `trust`: accepts the rule files of the trusted ref as they are now.
    ///
    /// # Errors
    /// Inside a session; the files cannot be read or understood; the settings cannot be written.
    pub fn accept_rules(&self) -> Result<RulesAccepted, LedgerError> {
        self.require_outside(Code::PersonOnly, "trust")?;
        // What nobody can read, nobody can have looked at.
        self.allowed()?;
        let mut setup = self.setup("trust", self.trust()?)?;
        let (digest, changed) = match setup.trust.rules(&setup.repo)? {
            Rules::Accepted { now } => (now, false),
            Rules::NeverAccepted { now } | Rules::Changed { now, .. } => (now, true),
        };
        if changed {
            setup.set("agentproto.trustedRules", &digest)?;
        }
        setup.write()?;
        let Trust { trusted_ref, tip, .. } = setup.trust;
        Ok(RulesAccepted { trusted_ref, tip, digest, changed })
    }

    /// Whether the rule files are still those a person accepted.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn rules(&self) -> Result<Rules, LedgerError> {
        Ok(self.trust()?.rules(&self.repo()?)?)
    }

    /// The trusted ref chosen again by the default rule, because the one a person fixed is gone. Nothing but
    /// `init` does this: a ref that went away is no reason for anybody else to trust another one.
    fn trust_anew(&self, gone: String) -> Result<(Trust, Option<String>), LedgerError> {
        let repo = self.repo()?;
        let known = KnownPath::load(&self.env, &self.store.location().common_dir);
        let Some(KnownPath { repo_id, .. }) = known.map_err(settings_error)? else {
            return Err(TrustedError::Gone(gone).into());
        };
        let trusted_ref = default_ref(&repo, &self.session_branches()?)?;
        let tip = tip_of(&repo, &trusted_ref)?.ok_or(TrustedError::Gone(trusted_ref.clone()))?;
        let settings = RepoSettings::load(&self.env, repo_id).map_err(settings_error)?;
        Ok((Trust { repo_id, trusted_ref, tip, known_path: false, settings }, Some(gone)))
    }

    fn setup(&self, command: &str, trust: Trust) -> Result<Setup<'_>, LedgerError> {
        let worktree = self.store.location().worktree.clone().ok_or_else(|| {
            let why = "there is no worktree here, and the rules are for work in one";
            LedgerError::refused(Code::BareUnsupported, command, why)
        })?;
        Ok(Setup {
            ledger: self,
            repo: self.repo()?,
            worktree,
            trust,
            steps: vec![],
            known: None,
            settings_changed: false,
            files: vec![],
            allowed: vec![],
        })
    }
}

impl Setup<'_> {
    fn step(&mut self, changed: bool, what: impl Into<String>) {
        self.steps.push((what.into(), changed));
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), LedgerError> {
        self.settings_changed = true;
        self.trust.settings.set(key, value).map_err(settings_error)
    }

    /// Writes what was planned and differs from what is there.
    fn write(&mut self) -> Result<(), LedgerError> {
        let Self { ledger, known, files, .. } = self;
        if let Some(known) = known.take() {
            let common = &ledger.store.location().common_dir;
            known.save(&ledger.env, common).map_err(settings_error)?;
        }
        for (path, bytes) in files.drain(..) {
            write_private(&path, &bytes).map_err(settings_error)?;
        }
        if std::mem::take(&mut self.settings_changed) {
            self.trust.settings.save().map_err(settings_error)?;
        }
        Ok(())
    }

    /// Fixes id and trusted ref of this clone: from now on its refs have no say in them. `gone` was fixed before.
    fn introduce(&mut self, gone: Option<String>) -> Result<(), LedgerError> {
        let Trust { repo_id, trusted_ref, .. } = &self.trust;
        let (repo_id, trusted_ref) = (*repo_id, trusted_ref.clone());
        let fixed = self.trust.settings.trusted_ref().map_err(settings_error)?;
        let mut new = false;
        // Another clone may have fixed a ref that is not here: its choice stays its own.
        if fixed.is_none() || fixed == gone {
            self.set("agentproto.trustedRef", &trusted_ref)?;
            new = true;
        }
        if !self.trust.known_path {
            self.known = Some(KnownPath { repo_id, trusted_ref: trusted_ref.clone() });
            // What follows is planned for the clone as it will be.
            self.trust.known_path = true;
            new = true;
        }
        let instead = gone.map(|gone| format!(" instead of {gone}, which is gone"));
        let instead = instead.unwrap_or_default();
        self.step(new, format!("rules are read from {trusted_ref}{instead}"));
        Ok(())
    }

    /// The person's own `PATH` becomes the one of gates, unless one is set.
    fn fix_path(&mut self) -> Result<(), LedgerError> {
        let set = protected(&self.repo, &self.trust.settings, PATH_KEY).map_err(settings_error)?;
        if let Some(path) = set {
            self.step(false, format!("programs of gates are found on {path}"));
            return Ok(());
        }
        let excluded = self.ledger.never_on_path(&self.worktree)?;
        let own = self.ledger.env.text("PATH");
        let path = own.map(|path| FixedPath::new(Some(path), &excluded).as_variable());
        match path.filter(|path| !path.is_empty()) {
            Some(path) => {
                self.set(PATH_KEY, &path)?;
                self.step(true, format!("programs of gates are found on {path}"));
            }
            None => self.step(false, "programs of gates are found on the system's default PATH"),
        }
        Ok(())
    }

    /// The rule files a person starts with are accepted; a later change waits for `trust`.
    fn accept_first_rules(&mut self) -> Result<(), LedgerError> {
        match self.trust.rules(&self.repo)? {
            Rules::NeverAccepted { now } => {
                self.set("agentproto.trustedRules", &now)?;
                self.step(true, "the rule files are accepted as they are");
            }
            Rules::Accepted { .. } => self.step(false, "the rule files are accepted as they are"),
            Rules::Changed { .. } => {
                self.step(false, "the rule files changed: look at them, then git agentproto trust");
            }
        }
        Ok(())
    }

    /// The key that signs: the one named, else the one in force, else a new one.
    fn choose_key(&mut self, named: Option<&Path>) -> Result<Key, LedgerError> {
        if let Some(named) = named {
            return self.take_key(named);
        }
        let set = self.trust.settings.get(SIGNING_KEY).map_err(settings_error)?;
        let env = &self.ledger.env;
        if set.is_none()
            && let Err(ChooseKeyError::None(_)) = load_signing_key(&self.repo, env, None)
        {
            let path = own_key_file(env).map_err(settings_error)?;
            self.email()?;
            // Named, so that a key that git signs commits with some day does not take its place.
            if let Some(value) = path.to_str() {
                self.set(SIGNING_KEY, value)?;
            }
            self.step(true, format!("acks are signed with a new key, {}", path.display()));
            return Ok(Key::ToMake(path));
        }
        let key = self.ledger.signing_key(&self.repo, &self.trust, None)?;
        let own = own_key_file(env).map_err(settings_error)?;
        if let (None, Named::File(file), Some(value)) = (&set, key.named(), own.to_str())
            && *file == own
        {
            self.set(SIGNING_KEY, value)?;
        }
        self.step(false, format!("acks are signed with {}", key.shown()));
        Ok(Key::There(Box::new(key)))
    }

    fn take_key(&mut self, named: &Path) -> Result<Key, LedgerError> {
        let file = self.ledger.env.cwd().join(named);
        let key = self.ledger.signing_key(&self.repo, &self.trust, Some(file.clone()))?;
        let value = file.to_str().ok_or_else(|| {
            let because = "its name is not UTF-8 and cannot be set";
            LedgerError::refused(Code::KeyUnreadable, &file.display().to_string(), because)
        })?;
        let before = self.trust.settings.get(SIGNING_KEY).map_err(settings_error)?;
        let changed = before.as_deref() != Some(value);
        if changed {
            self.set(SIGNING_KEY, value)?;
        }
        self.step(changed, format!("acks are signed with {value}"));
        Ok(Key::There(Box::new(key)))
    }

    /// Adds entries to the person's allowlist; true when one of them was not there.
    fn allow(&mut self, commands: &[Vec<String>]) -> Result<bool, LedgerError> {
        let file = self.trust.settings.allowlist_file();
        let name = file.display().to_string();
        let mut text = read_optional(&file).map_err(settings_error)?;
        let mut any = false;
        for argv in commands {
            let more = with_entry(&name, text.as_deref(), argv, Origin::User)
                .map_err(|e| LedgerError::refused(e.code(), "allow", e.to_string()))?;
            self.step(more.is_some(), format!("{} is allowed in {name}", shell_words::join(argv)));
            if let Some(more) = more {
                text = Some(more.into_bytes());
                any = true;
            }
        }
        self.allowed.extend_from_slice(commands);
        self.files.extend(text.filter(|_| any).map(|text| (file, text)));
        Ok(any)
    }
}

#[cfg(test)]
mod tests;
