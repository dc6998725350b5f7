//! The rules a commit policy must meet before it is attached.
//!
//! Contract: everything that can be told now is told now, all of it at once; what the agent can still change
//! before the gate (paths, operations in progress) is judged again by the candidate and the landing.

use super::{
    CommitAsk, Ledger, LedgerError, Problem,
    ack::SESSION_VARIABLE,
    ack_rules::AckRules,
    attach::Site,
    gates::settings_error,
    problems::{NO_NUL, Problems},
};
use crate::{
    code::Code,
    domain::{
        path::{RepoPath, quoted},
        policy::CommitSpec,
    },
    limits,
    sign::choose::SignersInForce,
    store::{
        candidate::{
            message::{self, MessageError},
            signing::Signer,
        },
        expand::{ExpandError, Expanded, LeftOut, expand},
        git::Git,
        identity,
        paths::{self, Allow, PathProblem},
        refs::head_name,
        settings::protected_bool,
        trusted::Trust,
        worktree_state::{Head, Operation, StateError, head, is_unmerged, operation_in_progress},
    },
};
use std::{collections::HashSet, ffi::OsStr, os::unix::ffi::OsStrExt};

const PATHS: &str = "commit.paths";
const MESSAGE: &str = "commit.message";
const ACK: &str = "commit.requireHumanAck";
const WORKTREE: &str = "worktree";

/// The user's own leave to commit without an ack.
const ALLOW_NO_ACK: &str = "agentproto.allowNoAck";

impl Ledger {
    /// Checks the commit part of what is asked; what cannot be checked without a worktree is left out when
    /// there is none, which is a problem of its own.
    pub(super) fn commit_spec(
        &self,
        ask: &CommitAsk,
        (site, trust): (Option<&Site>, Option<&Trust>),
        problems: &mut Problems,
        left_out: &mut Vec<LeftOut>,
    ) -> Option<CommitSpec> {
        if ask.paths.is_empty() {
            problems.say(Code::NoPaths, PATHS, "a commit policy lists the files it commits");
        }
        let message = check_message(&ask.message, problems);
        let site = site?;
        let branch = self.check_worktree(site, ask.detached_ok, problems);
        let paths = self.check_paths(ask, site, problems, left_out);
        let rules = trust.and_then(|trust| {
            let refused = self.check_ack(ask, &paths, (site, trust));
            problems.note(ACK, refused);
            problems.note(ACK, self.check_rules(ask, site, trust))
        });
        Some(CommitSpec {
            paths,
            message: message?,
            require_human_ack: !ask.no_ack,
            branch: branch?,
            allow_markers: ask.allow_markers,
            force_ignored: ask.force_ignored,
            allow_submodule: ask.allow_submodule,
            detached_ok: ask.detached_ok,
            ack_quorum: rules.as_ref().map_or(1, |rules| rules.quorum),
            ack_exclude: rules.map_or_else(Vec::new, |rules| rules.exclude),
        })
    }

    fn check_paths(
        &self,
        ask: &CommitAsk,
        site: &Site,
        problems: &mut Problems,
        left_out: &mut Vec<LeftOut>,
    ) -> Vec<RepoPath> {
        let (mut good, mut seen) = (Vec::new(), HashSet::new());
        for typed in &ask.paths {
            match self.resolve_path(directory_or_file(typed, ask.recursive), ask.from_top, site) {
                Ok(path) if seen.insert(path.clone()) => good.push(path),
                Ok(_) => {}
                Err(bad) => say_path(problems, &bad),
            }
        }
        let allow = Allow { ignored: ask.force_ignored, submodules: ask.allow_submodule };
        if ask.recursive {
            let expanded = problems.note(PATHS, self.expanded(site, &good, allow));
            let Expanded { listed, empty, left_out: out } = expanded.unwrap_or_default();
            empty.iter().for_each(|bad| say_path(problems, bad));
            left_out.extend(out);
            good = listed;
        }
        if good.len() > limits::PATHS_PER_POLICY {
            let why =
                format!("{} paths, at most {} are accepted", good.len(), limits::PATHS_PER_POLICY);
            problems.say(Code::TooMany, PATHS, why);
            return good;
        }
        let found = paths::check(&site.repo, &good, allow).map_err(LedgerError::from);
        for bad in problems.note(PATHS, found).unwrap_or_default() {
            say_path(problems, &bad);
        }
        good
    }

    fn expanded(
        &self,
        site: &Site,
        paths: &[RepoPath],
        allow: Allow,
    ) -> Result<Expanded, LedgerError> {
        let refused = |e: ExpandError| LedgerError::refused(e.code(), "--recursive", e.to_string());
        let git = Git::new(&self.env, &site.worktree).map_err(ExpandError::from);
        git.and_then(|git| expand(&site.repo, &git, paths, allow)).map_err(refused)
    }

    /// A path typed in another worktree of the repository means the same place in the session's worktree.
    fn resolve_path(
        &self,
        typed: &OsStr,
        from_top: bool,
        site: &Site,
    ) -> Result<RepoPath, PathProblem> {
        if from_top && !typed.as_bytes().starts_with(b"/") {
            return RepoPath::resolve(b"", typed.as_bytes())
                .map_err(|bad| PathProblem::of(typed.as_bytes(), bad));
        }
        let location = self.store.location();
        let elsewhere = location.worktree.as_ref().is_some_and(|w| w.id != site.worktree.id);
        if !elsewhere || typed.as_bytes().starts_with(b"/") {
            return paths::from_typed(typed, self.env.cwd(), &site.worktree.top);
        }
        RepoPath::resolve(&location.prefix, typed.as_bytes())
            .map_err(|bad| PathProblem::of(typed.as_bytes(), bad))
    }

    /// The rules about answers, when enough keys are left to meet them.
    fn check_rules(
        &self,
        ask: &CommitAsk,
        site: &Site,
        trust: &Trust,
    ) -> Result<AckRules, LedgerError> {
        let rules = self.ack_rules(&site.repo, trust)?;
        let is_plain = rules.quorum == 1 && rules.exclude.is_empty();
        // Both have a problem of their own when they cannot be told.
        let (Ok(found), Ok(who)) =
            (SignersInForce::load(&site.repo, &self.env, trust), identity::identity(&site.repo))
        else {
            return Ok(rules);
        };
        let commit = format!("author {} 0 +0000\n", who.author);
        let voices = rules.voices(&found.signers, commit.as_bytes());
        if ask.no_ack || is_plain || u32::try_from(voices).unwrap_or(u32::MAX) >= rules.quorum {
            return Ok(rules);
        }
        let why = format!(
            "approvals by {} different keys are asked for, and {voices} of those in {} may give one",
            rules.quorum, found.place
        );
        Err(LedgerError::refused(Code::TooFewSigners, "signers", why))
    }

    /// Either the user's own leave to go without an ack, or somebody who could give one.
    fn check_ack(
        &self,
        ask: &CommitAsk,
        paths: &[RepoPath],
        (site, trust): (&Site, &Trust),
    ) -> Result<(), LedgerError> {
        if !ask.no_ack {
            let none = |code, why: String| LedgerError::refused(code, "signers", why);
            let found = SignersInForce::load(&site.repo, &self.env, trust)
                .map_err(|e| none(e.code(), e.to_string()))?;
            if found.signers.lists_a_key() {
                return Ok(());
            }
            let why = format!("{} lists nothing but certificate authorities", found.place);
            return Err(none(Code::CertAuthorityUnsupported, why));
        }
        let refused =
            |because: String| Err(LedgerError::refused(Code::NoAckNotAllowed, "--no-ack", because));
        // A session chooses its own GIT_CONFIG_GLOBAL, so what is set there is not the person's word.
        if self.env.get(SESSION_VARIABLE).is_some() {
            let why = "a person asks for it, outside of sessions";
            return refused(format!("{SESSION_VARIABLE} is set here: {why}"));
        }
        if let Some(rule) = paths.iter().find(|p| p.is_rule()) {
            return refused(format!("'{rule}' is a rule file: its changes always need an ack"));
        }
        let allowed = protected_bool(&site.repo, &trust.settings, ALLOW_NO_ACK);
        if allowed.map_err(settings_error)? {
            return Ok(());
        }
        refused(format!("{ALLOW_NO_ACK} is not true in a scope of yours"))
    }

    /// What the worktree is in the middle of, who commits, and what this version cannot do; the branch to move.
    fn check_worktree(
        &self,
        site: &Site,
        detached_ok: bool,
        problems: &mut Problems,
    ) -> Option<String> {
        let Site { worktree, repo, .. } = site;
        let operation = operation_in_progress(repo, &worktree.git_dir).map_err(LedgerError::from);
        if let Some(Some(operation)) = problems.note(WORKTREE, operation) {
            problems.say(operation.code(), WORKTREE, operation.to_string());
        }
        let unmerged: Result<bool, StateError> = is_unmerged(repo);
        if problems.note(WORKTREE, unmerged.map_err(LedgerError::from)) == Some(true) {
            problems.say(Code::UnmergedIndex, WORKTREE, Operation::Conflict.to_string());
        }
        let branch = check_head(repo, detached_ok, problems);
        match identity::identity(repo) {
            Ok(who) => {
                let signer = Signer::read(repo, &self.env, worktree, &who.committer.to_string());
                if let Err(e) = signer {
                    problems.say(e.code(), "commit.gpgSign", e.to_string());
                }
            }
            Err(e) => problems.say(e.code(), "identity", e.to_string()),
        }
        branch
    }
}

/// With `--recursive` a slash at the end says what is meant anyway.
fn directory_or_file(typed: &OsStr, recursive: bool) -> &OsStr {
    let bytes = typed.as_bytes();
    let mut end = bytes.iter().rposition(|b| *b != b'/').map_or(bytes.len(), |at| at + 1);
    while let Some(shorter) = bytes[..end].strip_suffix(b"/.") {
        end = shorter.iter().rposition(|b| *b != b'/').map_or(end, |at| at + 1);
        if shorter.is_empty() {
            break;
        }
    }
    if recursive { OsStr::from_bytes(&bytes[..end]) } else { typed }
}

fn say_path(problems: &mut Problems, bad: &PathProblem) {
    let field = format!("{PATHS}: {}", quoted(&bad.path));
    let hint = bad.hint.map(str::to_owned);
    problems.add(Problem { code: bad.code, field, why: bad.to_string(), hint });
}

fn check_message(raw: &[u8], problems: &mut Problems) -> Option<String> {
    let cleaned = match message::clean(raw) {
        Ok(cleaned) => cleaned,
        Err(e) => {
            let hint = matches!(e, MessageError::Nul { .. }).then(|| NO_NUL.to_owned());
            let (code, field, why) = (e.code(), MESSAGE.to_owned(), e.to_string());
            problems.add(Problem { code, field, why, hint });
            return None;
        }
    };
    let text = String::from_utf8(cleaned)
        .map_err(|e| LedgerError::refused(Code::Malformed, "the commit message", e.to_string()));
    problems.note(MESSAGE, text)
}

fn check_head(
    repo: &gix::Repository,
    detached_ok: bool,
    problems: &mut Problems,
) -> Option<String> {
    match problems.note(WORKTREE, head(repo).map_err(LedgerError::from))? {
        Head::Branch { name, .. } => Some(name),
        Head::Unborn { name } => {
            let why =
                format!("{name} has no commit yet: there is nothing a candidate could stand on");
            problems.say(Code::NoCommitsYet, WORKTREE, why);
            None
        }
        Head::Detached { .. } if detached_ok => {
            problems.note(WORKTREE, head_name(repo).map_err(LedgerError::from))
        }
        Head::Detached { at } => {
            problems.say(Code::DetachedHead, WORKTREE, format!("HEAD is detached at {at}"));
            None
        }
    }
}
