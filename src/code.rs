//! Stable codes of everything that can be refused or fail, each with its exit code and what to do.
//!
//! Codes are kebab-case, never renamed, never reused. The exit codes are the one table of `spec` (cli).

/// Exit codes, one table for all commands.
pub mod exit {
    /// Done; the awaited condition is true.
    pub const DONE: u8 = 0;
    /// A clear no.
    pub const NO: u8 = 1;
    /// Broken, or cannot tell.
    pub const BROKEN: u8 = 2;
    /// Time ran out.
    pub const TIME: u8 = 3;
    /// Not found, or the condition can never be true.
    pub const NOT_FOUND: u8 = 4;
    /// Waiting for a person.
    pub const PERSON: u8 = 5;
    /// Refused by a rule.
    pub const REFUSED: u8 = 6;
    /// Fatal environment error, as git.
    pub const FATAL: u8 = 128;
    /// Usage error, as git.
    pub const USAGE: u8 = 129;
}

macro_rules! codes {
    ($($name:ident $text:literal $exit:ident $hint:literal;)*) => {
        /// A stable code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $hint] $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is shown and stored.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The exit code of a command that ends with this code.
            #[must_use]
            pub fn exit(self) -> u8 {
                match self { $(Self::$name => exit::$exit,)* }
            }

            /// What to do next, where nothing more exact is known.
            #[must_use]
            pub fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    // what was typed
    Usage "usage" USAGE "see `git agentproto help`";
    UnknownField "unknown-field" USAGE "see which there are: git agentproto help policy-file";
    NoPaths "no-paths" USAGE "name the files to commit with --path";
    EmptyMessage "empty-message" USAGE "give the commit message with -m";
    AmbiguousDuration "ambiguous-duration" USAGE "write the unit: 30s, 500ms, 5m";
    BadTime "bad-time" USAGE "write 30s, 5m or 2026-01-31T12:00:00Z";
    TooMany "too-many" REFUSED "split it into several policies";

    // not there
    NoSuchSession "no-such-session" NOT_FOUND "list them: git agentproto session list";
    NoSuchPolicy "no-such-policy" NOT_FOUND "list them: git agentproto policy list --all";
    NoSuchRevision "no-such-revision" NOT_FOUND "check the name with git rev-parse";
    NoSuchCursor "no-such-cursor" NOT_FOUND "take a cursor from git agentproto events --since tip";
    SegmentDropped "segment-dropped" NOT_FOUND "what was before is not kept any more: leave out --since to begin at the first kept event";
    NoSuchSchema "no-such-schema" NOT_FOUND "list them: git agentproto schema";
    NoSuchEntity "no-such-entity" NOT_FOUND "list them: git agentproto status";
    Ambiguous "ambiguous" REFUSED "use an id";

    // the repository
    NotARepository "not-a-repository" FATAL "run it inside a git repository, or name one with -C; git init makes one";
    NotOwned "foreign-owned-repository" FATAL "the repository belongs to another user; add it to safe.directory if you trust it";
    RefStorageUnsupported "ref-storage-unsupported" REFUSED "git refs migrate --ref-format=files, or update git-agentproto";
    BareUnsupported "bare-unsupported" REFUSED "run it in a worktree of the repository; git worktree add DIR BRANCH makes one";
    HistoryCut "history-cut" BROKEN "have git look at the whole history again: git fetch --unshallow, or remove that file if no git wrote it";
    ShallowUnsupported "shallow-unsupported" REFUSED "fetch the whole history: git fetch --unshallow";
    PartialCloneUnsupported "partial-clone-unsupported" REFUSED "clone without --filter";
    RepositoryFormatUnsupported "repository-format-unsupported" REFUSED "update git-agentproto: this kind of repository is newer than it";
    WorktreeNameUnsupported "worktree-name-unsupported" REFUSED "make the worktree again under a name that is UTF-8";
    ObjectDirectoryUnsupported "object-directory-unsupported" REFUSED "unset GIT_OBJECT_DIRECTORY";
    NamespaceUnsupported "namespace-unsupported" REFUSED "unset GIT_NAMESPACE";
    Quarantine "quarantine" REFUSED "write again after the push is through";
    NoCommitsYet "no-commits-yet" REFUSED "make the first commit with git: git commit; then try again";
    NewerFormat "newer-format" BROKEN "a newer version wrote this: update git-agentproto";

    // the store
    StoreUnusable "store-unusable" BROKEN "run git agentproto fsck";
    JournalDiverged "journal-diverged" BROKEN "see both sides and what to do: git agentproto fsck";
    JournalCorrupt "journal-corrupt" BROKEN "see what is wrong and what can be done: git agentproto fsck";
    ReadOnly "read-only" BROKEN "make the repository writable for you";
    LockTimeout "lock-timeout" BROKEN "another process holds the lock; try again";
    NotesContended "notes-contended" BROKEN "somebody keeps rewriting the notes ref; try again";
    NotRegular "not-a-regular-file" BROKEN "something else lies where a file belongs: move it away, or see what can be done, git agentproto fsck";
    OverLimit "file-over-limit" BROKEN "no such file is ever that large: move it away, or see what can be done, git agentproto fsck";
    Io "io-error" BROKEN "mend what the operating system names, then try again";
    GitFailed "git-failed" BROKEN "mend what git names, then try again";

    // sessions
    Terminal "terminal" REFUSED "it is over: adopt a new session, or attach a new policy";
    TurnOver "turn-over" REFUSED "leave out --turn, or report the turn that runs: git agentproto session show SESSION";
    TurnGap "turn-gap" REFUSED "report its turn-start first, or leave out --turn";
    NoSuchRequest "no-such-request" REFUSED "see what is open: git agentproto session show SESSION";
    BadData "bad-data" USAGE "--data takes the JSON the event needs, at most 16 KiB";
    CwdNotInWorktree "cwd-not-in-worktree" REFUSED "name a directory inside a worktree of this repository";
    MembersApart "members-in-different-worktrees" REFUSED "commit in one worktree at a time: attach to the sessions of one";
    SessionOwned "session-owned" REFUSED "its runs are seen by the program itself; to end it: git agentproto session kill SESSION";
    NotLaunched "not-launched" REFUSED "end its agent where it runs, then tell of it: git agentproto session report SESSION exited";
    NotPromptable "not-promptable" REFUSED "talk to its agent where it runs, or have this program start one: git agentproto session start";
    MidTurn "mid-turn" REFUSED "wait for its turn to end, or say --queue or --interrupt";
    WorktreeBusy "worktree-busy" REFUSED "work in another worktree, or end that session first: git agentproto session kill SESSION";
    AgentNotFound "agent-not-found" REFUSED "install the program, or name it by its path";
    NudgeFailed "nudge-failed" NO "the session could not be told of the red gate: see it, git agentproto session show SESSION";
    LabelLooksLikeId "label-looks-like-id" REFUSED "choose another label";

    // rules at attach
    NotAllowlisted "not-allowlisted" REFUSED "a person allows it: git agentproto allow -- CMD";
    AllowlistInvalid "allowlist-invalid" REFUSED "correct the allowlist file";
    GateRequired "gate-required" REFUSED "name a gate after --, or say --ungated";
    GateNeedsShell "gate-needs-shell" REFUSED "several gates: repeat --gate; else name a script, or have a person allow a shell: --gate \"sh -c 'A && B'\"";
    GateNotFound "gate-not-found" REFUSED "install it, or set agentproto.path in your own settings to where it is";
    GateEnvDenied "gate-env-denied" REFUSED "leave the variable out: gates get it from nobody, or from us";
    OutOfScope "out-of-scope" NO "take back what lies outside of --scope, or attach with a wider one";
    ScopeWithoutBase "scope-without-base" BROKEN "adopt a session anew that names where it starts: git agentproto session adopt --base REV";
    ScopeDirtyBase "scope-dirty-base" REFUSED "adopt a session anew that names where it starts: git agentproto session adopt --base REV";
    GateTimeoutTooLong "gate-timeout-too-long" REFUSED "ask for at most 24h with --gate-timeout";
    CwdEscapes "cwd-escapes-worktree" REFUSED "name a directory inside the session's worktree";
    NoSuchCwd "no-such-cwd" REFUSED "make the directory, or name another one";
    NoAckNotAllowed "no-ack-not-allowed" REFUSED "a person must set agentproto.allowNoAck=true in their global configuration and ask outside of sessions";
    PathEmpty "path-empty" REFUSED "name a file";
    PathIsDirectory "path-is-directory" REFUSED "list the files themselves, or say --recursive";
    PathOutside "path-outside-worktree" REFUSED "name a file inside the worktree";
    PathInGitDir "path-in-git-dir" REFUSED "git's own directory is never committed";
    PathHasNul "path-has-nul" REFUSED "name the file without a NUL byte";
    PathThroughSymlink "path-through-symlink" REFUSED "name the file by its real path";
    PathInSubmodule "path-in-submodule" REFUSED "commit it inside that repository";
    PathIsSubmodule "path-is-submodule" REFUSED "declare it in .gitmodules and say --allow-submodule";
    PathIgnored "path-ignored" REFUSED "take it out of the ignore rules first, or say --force-ignored";
    NothingToAdd "nothing-to-add" REFUSED "see what git would add: git status";
    PathSpecialFile "path-special-file" REFUSED "list files and symlinks only";
    PathSymlinkEscapes "path-symlink-escapes" REFUSED "let the link point to something inside the worktree";
    PathOutsideSparse "path-outside-sparse-checkout" REFUSED "add it to the sparse checkout first";
    IdentityMissing "identity-missing" REFUSED "git config --global user.name NAME && git config --global user.email ADDRESS";
    TooFewSigners "too-few-signers" REFUSED "list more keys in the allowed-signers file, or ask for fewer: agentproto.ackQuorum, agentproto.ackExclude";
    SignersMissing "signers-missing" REFUSED "no allowed-signers file is in force: run git agentproto init";
    MergeInProgress "merge-in-progress" REFUSED "finish or abort it first";
    RebaseInProgress "rebase-in-progress" REFUSED "finish or abort it first";
    CherryPickInProgress "cherry-pick-in-progress" REFUSED "finish or abort it first";
    RevertInProgress "revert-in-progress" REFUSED "finish or abort it first";
    BisectInProgress "bisect-in-progress" REFUSED "end it first: git bisect reset";
    UnmergedIndex "unmerged-index" REFUSED "resolve the conflicts first";
    DetachedHead "detached-head" REFUSED "check out a branch first, or say --detached-ok";
    CommitHooksUnsupported "commit-hooks-unsupported" REFUSED "commit the allowlist with git itself, which runs the hooks";
    CommitSigningUnusable "commit-signing-unusable" REFUSED "commits are signed with what git config --global says: user.signingKey, gpg.format and the programs";
    SigningNeedsPerson "signing-needs-person" PERSON "sign it in a terminal: git agentproto ack POLICY";
    CommitSigningUnsupported "commit-signing-unsupported" REFUSED "commit the allowlist with git itself, which signs it";
    PersonOnly "person-only" REFUSED "run it outside the supervised session";

    // gates
    GateRed "gate-red" NO "see the tail of the gate: git agentproto policy show POLICY";
    GateNotRunnable "gate-not-runnable" BROKEN "correct the program, then attach again";
    ProgramChanged "program-changed" BROKEN "look at the program, then attach again";
    OutputMissing "output-missing" BROKEN "make the gate print a line that --require-output asks for, then attach again";
    ProtectedPathChanged "protected-path-changed" BROKEN "put the protected files back to what the trusted ref has, or have the change to them landed first";
    TreeChanged "tree-changed-during-gate" BROKEN "let nobody write the listed files while the gate runs, then attach again";
    BranchSwitched "branch-switched" BROKEN "check the policy's branch out again in the session's worktree, then ask again";
    NoSuchPath "no-such-path" BROKEN "check the path, then ask again";
    PathConflicts "path-conflicts-unlisted" BROKEN "list the paths that give way, too";
    CommitHookRefused "commit-hook-refused" NO "do what the hook asks for: git agentproto policy show POLICY";
    HooksChanged "hooks-changed-worktree" BROKEN "list the files the commit hooks change, or have the hooks leave them alone, then attach again";
    ConflictMarkers "conflict-markers" NO "resolve the conflict markers in the listed files";
    FileTooLarge "file-too-large" BROKEN "a listed file holds at most 512 MiB, all of them 1 GiB: commit it with git itself";
    RunnerFailed "runner-failed" BROKEN "attach again; if it stays, please report it";
    GitBusy "git-operation-in-progress" BROKEN "finish or abort the operation in progress";
    CandidateFailed "candidate-failed" BROKEN "correct what the reason names, then attach again";
    CandidateUnreadable "candidate-unreadable" BROKEN "objects of the candidate are missing or damaged: attach again, or get them back first (git fsck)";
    SecretEnv "secret-env" REFUSED "give the variable another name, or leave it out";

    // policies and acks
    NotAwaiting "not-awaiting" REFUSED "see where it stands: git agentproto policy show POLICY";
    NotOver "not-over" REFUSED "it still goes on: git agentproto policy show POLICY; to stop it: git agentproto policy cancel POLICY";
    NotBlocked "not-blocked" REFUSED "only what is blocked is dismissed; to stop it: git agentproto policy cancel POLICY";
    Committing "committing" REFUSED "let it land: git agentproto wait POLICY";
    WriterLives "writer-lives" REFUSED "work with it there, or let this copy go on with policies of its own";
    NotOwner "not-owner" REFUSED "answer in the clone that owns the policy";
    StaleCandidate "stale-candidate" NO "the branch moved: attach again";
    IndexLocked "index-locked" BROKEN "another process holds the index lock; the commit will be retried";
    LandingRefused "landing-refused" NO "correct what the reason names, then attach again";
    AckFromSession "ack-from-session" REFUSED "a person answers, outside the session";
    Forged "forged" REFUSED "trust nothing about it; a person answers anew: git agentproto ack POLICY";
    Unauthorized "unauthorized" REFUSED "sign with a listed key (--key), or have this one listed in the allowed-signers file";
    Replayed "replayed" REFUSED "answer the request that is open now: git agentproto ack POLICY";
    Stale "stale" REFUSED "review what is there now, then answer that: git agentproto policy show POLICY";
    Expired "expired" REFUSED "an answer: give it again, git agentproto ack POLICY; a policy: attach it again with a later --expires";
    Orphan "orphan" REFUSED "answer in the clone that made the request";
    Malformed "malformed" REFUSED "have a person answer anew: git agentproto ack POLICY";
    ConfirmationNeeded "confirmation-needed" PERSON "review it, then answer with --yes (and --candidate OID)";

    // keys and settings
    NoSigningKey "no-signing-key" REFUSED "run git agentproto init";
    KeyUnreadable "key-unreadable" REFUSED "name a readable ssh private key";
    SigningFailed "signing-failed" REFUSED "mend the program that signs, or name another: gpg.ssh.program of git config --global";
    KeyTypeUnsupported "key-type-unsupported" REFUSED "use an ed25519 or ecdsa-p256 key";
    CertAuthorityUnsupported "cert-authority-unsupported" REFUSED "list the key itself in the allowed-signers file";
    SignersInvalid "signers-invalid" REFUSED "correct the allowed-signers file";
    ProtectedSetting "protected-setting" REFUSED "set it in global configuration";
    BadSetting "bad-setting" BROKEN "correct the value";
    DirNotEmpty "dir-not-empty" REFUSED "name a directory that does not exist or is empty";
    TrustedRefRemote "trusted-ref-remote" REFUSED "commit the file on that branch of the remote";
    RuleFileStaged "rule-file-staged" REFUSED "commit it or unstage it first";
    NoTrustedRef "no-trusted-ref" REFUSED "name it: git agentproto init";

    // waiting and checking
    Timeout "timeout" TIME "wait longer with --timeout";
    CanNeverBe "can-never-be" NOT_FOUND "see how it ended: git agentproto status";
    SessionFailed "session-failed" NO "the session ended without finishing: start another one";
    NotGoverned "not-governed" NO "see the reason of each commit";
    Internal "internal-error" BROKEN "please report this";
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Code {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|c| c.as_str() == text)
            .ok_or_else(|| format!("unknown code '{text}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_kebab_case_and_unique() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
            assert!(seen.insert(text), "{text} twice");
            assert_eq!(text.parse::<Code>().as_ref(), Ok(code));
        }
    }
}
