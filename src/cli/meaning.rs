//! What each code means and how one gets there, in words for people: `git agentproto help CODE`.
//!
//! Contract: exhaustive by `match`, so that a new code cannot go unexplained; one to three sentences each, which say
//! what happened and why that is in the way. What to do about it is [`Code::hint`], told behind them.

use crate::code::Code;

macro_rules! meanings {
    ($($name:ident $text:literal;)*) => {
        /// The explanation of a code.
        pub(super) fn meaning(code: Code) -> &'static str {
            match code { $(Code::$name => $text,)* }
        }
    };
}

meanings! {
    // what was typed
    Usage "The command line cannot be understood: a word is unknown, missing, or does not go with another one. Nothing was looked at and nothing was done.";
    UnknownField "A policy in a file has a field that this version does not know. It is refused rather than passed over, because what was meant by it would silently not hold.";
    NoPaths "A commit was asked for and no file to commit was named. Files are always listed by name: nothing is committed because it happened to be changed.";
    EmptyMessage "A commit was asked for without a message, or nothing was left of it once comments and blank lines were taken out, as git does.";
    AmbiguousDuration "A bare number is taken as milliseconds, and a small one rarely means that: 30 could be seconds or minutes. It is refused instead of guessed.";
    BadTime "A time or duration could not be read, or lies further away than is accepted.";
    TooMany "More was listed than one policy may hold: paths, gates, sessions, bytes of a message, or policies that follow each other. The limits keep every record small enough to be read whole.";

    // not there
    NoSuchSession "No session has this id, this beginning of an id, or this label. Sessions are known only in the clone that recorded them.";
    NoSuchPolicy "No policy has this id, this beginning of an id, or this label. Policies are known only in the clone that recorded them.";
    NoSuchRevision "git knows no commit by this name here. The history that has it may not have been fetched.";
    NoSuchCursor "The position is not one of this journal: it is later than the last event, of another clone, or of no event at all.";
    SegmentDropped "The journal once had this event and does not keep it any more: `gc` dropped that part, because it was older than agentproto.retention allows.";
    NoSuchSchema "No object that is answered or read has this name.";
    NoSuchEntity "Neither a session nor a policy has this id, this beginning of an id, or this label.";
    Ambiguous "The word fits several sessions or policies: a label that was given twice, or a beginning that many ids share. Which one is meant is not guessed.";

    // the repository
    NotARepository "The directory is in no git repository, or cannot be entered at all. Everything here is recorded inside a repository.";
    NotOwned "The git directory or the worktree belongs to another user. Like git, this program does not believe the configuration of such a repository, since it could name programs to run.";
    RefStorageUnsupported "The repository keeps its refs in a way that is neither files nor reftables. Nothing is written to what is not understood.";
    BareUnsupported "The repository has no worktree here, or the command was run where none is. Gates run in a worktree, and rules are set for work in one.";
    HistoryCut "The history seems to begin later than it does, because of a shallow file or a graft. Judged by a part of it, a commit could pass for something it is not.";
    ShallowUnsupported "The clone was made with a limited depth, so that what came before is missing. Its identity and its proofs hang on the whole history.";
    PartialCloneUnsupported "The clone leaves objects out until they are asked for. A candidate or a proof could then depend on a network that is not there.";
    RepositoryFormatUnsupported "The repository's format or one of its extensions is unknown here, so it cannot be told what a write would do to it. As git, this program leaves it alone.";
    WorktreeNameUnsupported "The name that git gave this worktree is not UTF-8, and records name worktrees as text.";
    ObjectDirectoryUnsupported "GIT_OBJECT_DIRECTORY sends objects elsewhere than the repository keeps them. What is recorded would not be where others look for it.";
    NamespaceUnsupported "GIT_NAMESPACE is set, which gives every ref another name. Records under such names would be found by nobody else.";
    Quarantine "The command runs inside a push that is not accepted yet. What is written there may vanish with it.";
    NoCommitsYet "The repository, or the current branch, has no commit. There is no parent to build on and no trusted branch to read rules from.";
    NewerFormat "A newer version of this program wrote this, in a form this one does not know. It is read where it can be, and never written over.";

    // the store
    StoreUnusable "The journal's files or git's objects cannot be used as they are: something is missing, damaged, or contradicts itself. Nothing is guessed and nothing is written until that is put right.";
    JournalDiverged "Two histories of one journal contradict each other: the ref names one and the log of this clone proves another. Somebody moved the ref, or put an older copy in place.";
    JournalCorrupt "An event of the journal cannot be read, or is one that this program would never have written. What comes after it cannot be relied on.";
    ReadOnly "The git directory cannot be written: by its permissions, its owner, or how its disk is mounted. Looking works, recording does not.";
    LockTimeout "Another process of this program held the lock of this clone all the time that was waited. It may be at work, or be stopped.";
    NotesContended "Another program rewrote the notes between our look and our write, again and again. Its notes are never written over, so ours had to wait.";
    NotRegular "In the place of a file of this program or of git lies something else: a directory, a link, a pipe, a device. Reading it could wait for ever or leave the repository.";
    OverLimit "A file is far larger than such files ever get. It is not read into memory, because it cannot be what it should be.";
    Io "The operating system refused: a disk is full, a file is not accessible, a device fails. Its own words are in the message.";
    GitFailed "git was asked to do something and failed, or could not be started. Its own words are in the message.";

    // sessions
    Terminal "The session or policy is over, and what is over takes part in nothing any more.";
    TurnOver "The report names a turn that has ended already and is not the last one.";
    TurnGap "The report names a turn that has not begun: some in between were never reported.";
    NoSuchRequest "The session has no open request by this id: it was answered already, or was never made.";
    BadData "What was given with a report is no JSON, not of the form that this event takes, or too large.";
    CwdNotInWorktree "The directory belongs to no worktree of this repository, so no session can be at work there.";
    MembersApart "The sessions work in different worktrees, and a commit is made in one. Policies that only run gates may span worktrees.";
    SessionOwned "The agent of this session was started by the program, which sees itself when its runs begin and end. What somebody else says about that counts for nothing.";
    NotLaunched "The agent of this session was started by somebody else. The program has none of its output and could end nothing of it, so it does not act as if.";
    NotPromptable "The agent of this session was started by somebody else, and the program has no way to tell it anything. A policy that is to tell its sessions of red gates needs one that it can.";
    MidTurn "The agent is at work on a turn. What is said in the middle of one would be taken differently by every agent, or lost.";
    WorktreeBusy "Another session is at work in this worktree. Two agents that write the same files undo each other's work, and what a gate sees would be nobody's.";
    AgentNotFound "The program of the agent was looked for as a shell would, by its path or on your PATH, and is not there or is no program.";
    LabelLooksLikeId "The label could be taken for an id of a session or policy. Then nobody could tell which of them a command means.";

    // rules at attach
    GateEnvDenied "A gate was to get a variable that points git elsewhere, loads code into every program, or is ours to set. A gate that could be led astray like that would prove nothing.";
    NotAllowlisted "Nothing runs as a gate that no person allowed: neither the rule files of the trusted branch nor your own settings list this command. An agent could otherwise have anything run by naming it a gate.";
    AllowlistInvalid "A list of allowed commands cannot be understood, and then none of it counts: half a list could allow what was taken back.";
    GateRequired "A commit was asked for and no gate was named. That a commit is made without one has to be said.";
    GateNeedsShell "The gate has words that only a shell understands, such as && or |. Gates are programs with arguments and no shell reads them, so these words would be handed on as plain text.";
    GateNotFound "The gate is allowed and its program is not there: not on the fixed PATH where gates are found, not executable, or not readable. The PATH of the caller does not count, because an agent can set it.";
    GateTimeoutTooLong "The deadline of a gate is longer than a day. A run that nobody expects to end holds up everything behind it.";
    CwdEscapes "The directory where gates shall run is outside of the worktree, by itself or through a link, or is git's own.";
    NoSuchCwd "The directory where gates shall run is not there, or is no directory; or the worktree itself is gone.";
    NoAckNotAllowed "A commit without anybody's answer is possible only where a person's own configuration allows it, and never from inside a session.";
    PathEmpty "A listed path has no name at all.";
    PathIsDirectory "A directory was listed. What it holds when the commit is built could be more than was meant, so files are listed one by one, or --recursive fixes them at once.";
    PathOutside "The path leads out of the worktree.";
    PathInGitDir "The path is in a git directory, whose files git itself never commits.";
    PathHasNul "The path holds a NUL byte, which no file name can.";
    PathThroughSymlink "A directory on the way to the file is a link. The file that is committed would be another one than the path says.";
    PathInSubmodule "The file is inside another repository, which commits its own files.";
    PathIsSubmodule "The path is a repository of its own. A commit of it records which commit that one is on, which has to be meant.";
    PathIgnored "An ignore rule covers the file, as a build product or a secret often is. git add would refuse it, too.";
    NothingToAdd "The listed directory has nothing that git add would add.";
    PathSpecialFile "The path is neither a file nor a link: a pipe, a socket or a device. git cannot hold such a thing.";
    PathSymlinkEscapes "The listed link points out of the worktree, to something that is not in the repository and could be anything elsewhere.";
    PathOutsideSparse "The sparse checkout of this worktree leaves the path out, so what is on disk is not all there is of it.";
    IdentityMissing "git does not know in whose name to commit or to list a key: user.name and user.email are not set.";
    TooFewSigners "More approvals are asked for than keys are listed whose answer counts. Such a policy could never land.";
    SignersMissing "Somebody has to approve, and no file says whose key counts. Whoever signed, it would prove nothing.";
    MergeInProgress "A merge is not finished in this worktree. Its other parent would be lost by a commit made beside it.";
    RebaseInProgress "A rebase is not finished in this worktree. The branch is about to be rewritten.";
    CherryPickInProgress "A cherry-pick is not finished in this worktree.";
    RevertInProgress "A revert is not finished in this worktree.";
    BisectInProgress "A bisect goes on in this worktree, which stands on a commit of the past.";
    UnmergedIndex "Files in the index have conflicts that nobody resolved, so it cannot be told what they shall be.";
    DetachedHead "HEAD is on no branch, so a commit would be on none either and easily get lost. That it is meant has to be said.";
    CommitHooksUnsupported "The repository has commit hooks that may refuse or rewrite, and `allow --commit` makes its commit without running them.";
    CommitSigningUnusable "Commits are to be signed here, and what your own configuration names to do that does not work: key, format or program. The repository's own configuration does not count for it.";
    SigningNeedsPerson "The commit is to be signed with a key that asks for a passphrase or a touch, and nobody was there to give it. The candidate waits.";
    CommitSigningUnsupported "Commits are to be signed here, and `allow --commit` makes its commit without a signature.";
    PersonOnly "The command sets the rules that an agent works under, or speaks for a person, and was called from inside a session: AGENTPROTO_SESSION_ID is set.";

    // gates
    OutOfScope "A file differs from the commit the session started from, and lies outside of what --scope allows it to touch. The files are listed with the gate.";
    ScopeWithoutBase "Where a session started from is not known, or cannot be read any more, so that nobody can tell what it changed.";
    ScopeDirtyBase "When the session was registered its worktree held changes already, and no revision was named. What is the session's and what was there before cannot be told apart.";
    NudgeFailed "The gates were red and the session was to be told of it, but it ended before that, or its agent could not be started again.";
    GateRed "A gate ran to its end and said no: it exited with another status than 0, ended by a signal, or did not end in time. Nothing is committed.";
    GateNotRunnable "The gate could not be started, so it said neither yes nor no: the file is no program this system can run, or its interpreter is missing.";
    ProgramChanged "The file that the gate would start is not the one that was there when the policy was attached. Somebody replaced it in between.";
    OutputMissing "The gate exited with 0, but printed no line that --require-output asks for. A run that tested nothing looks just like that.";
    ProtectedPathChanged "Files that --protect covers are not as on the trusted branch. A gate whose tests were changed with the work proves little.";
    TreeChanged "The listed files were written while the gate ran, twice in a row. It cannot be told which content it saw.";
    BranchSwitched "The worktree is on another branch now than the policy commits to.";
    NoSuchPath "A listed path is neither on disk nor in the last commit, so there is nothing to commit by this name.";
    PathConflicts "Where a listed path shall be, the last commit has a file or directory that is not listed. One of them has to give way, and nothing unlisted is changed.";
    CommitHookRefused "A commit hook of the repository refused, which counts as a red gate. Nothing is committed.";
    HooksChanged "A commit hook of the repository changed files beside those that were listed. What would be committed is not what it made.";
    ConflictMarkers "A listed file holds the three kinds of line that git puts around a conflict, in their order. It looks like a merge that was left unfinished.";
    FileTooLarge "A listed file, or all of them together, is larger than is built into a candidate.";
    RunnerFailed "The process that watches over a gate ended or could not be started, so it cannot be told how the gate ended.";
    GitBusy "An operation of git was begun in the worktree after the policy was attached: a merge, a rebase, or the like.";
    CandidateFailed "The commit could not be built: an object, a filter or the repository refused. The message names it.";
    CandidateUnreadable "Objects of the commit that shall be approved are gone or damaged. Nobody can know what would be approved.";
    SecretEnv "A gate's variable has a name that your settings call a secret. Such values would be recorded for everybody to read.";

    // policies and acks
    NotAwaiting "The policy does not wait for an answer: its gates have not passed yet, or it is decided already.";
    NotOver "Asking once more is for what is over, and this policy still goes on.";
    NotBlocked "Only a blocked policy is dismissed: that says that a person knows of it and is done with it.";
    Committing "The policy was approved and its commit is about to land. From there it is not taken back.";
    WriterLives "The policy belongs to the repository that this one is a copy of, and that one is still there. Two owners could both land it, each without the other's answers.";
    NotOwner "The policy was recorded by another clone, and only that clone can land its commit.";
    StaleCandidate "Since the candidate was built, the branch has moved. What was gated and approved is not what would come of it.";
    IndexLocked "Another git process holds the lock of the index. The commit lands as soon as it lets go.";
    LandingRefused "The commit was approved and could not be put on its branch: a hook, a lock, or a changed worktree refused.";
    AckFromSession "An answer was given from inside a session, where AGENTPROTO_SESSION_ID is set. Whoever did the work does not approve it.";
    Forged "The signature does not fit what it is said to sign, or was made with another key than it names. Such a line proves nothing.";
    Unauthorized "The signature is good, and the allowed-signers file does not let this key answer: not listed, not for this purpose, not at this time, or left out by agentproto.ackExclude.";
    Replayed "The answer was made for a request that is answered already. An answer counts once.";
    Stale "The answer is for another candidate than the one that waits now: it was built anew since, or something else was looked at.";
    Expired "The answer's time is over, or has not begun; or the policy itself had an end, and it has come.";
    Orphan "The answer is to a request that this journal never made.";
    Malformed "What should be a signed answer cannot be read as one.";
    ConfirmationNeeded "The command wants a clear yes and nobody could be asked, because there is no terminal.";

    // keys and settings
    NoSigningKey "Answers are signed, and no setting names a key to do it with.";
    KeyUnreadable "The key that shall sign cannot be read: the file is not there, not accessible, or no ssh private key.";
    SigningFailed "The program that shall sign failed, did not answer in time, or made something that is no signature by that key.";
    KeyTypeUnsupported "Keys of this type are not used to sign answers.";
    CertAuthorityUnsupported "The allowed-signers file lists a certificate authority instead of the key. Certificates are not evaluated here, and what is not evaluated is not believed.";
    SignersInvalid "The allowed-signers file cannot be read or understood, and then nobody's answer counts.";
    ProtectedSetting "The setting could weaken a rule, and stands where an agent can write: in the repository, a worktree or on the command line. There it has no effect.";
    BadSetting "A setting has a value that does not fit it. What was meant by it is not guessed.";
    DirNotEmpty "The directory for the demo has something in it, which is left alone.";
    TrustedRefRemote "The trusted branch is one of a remote, and `allow --commit` can only commit on a local one.";
    RuleFileStaged "The list of allowed commands is staged with changes, which a commit of another version of it would mix up.";
    NoTrustedRef "It cannot be told on which branch the rules of this repository stand: the one that was fixed is gone, or none fits.";

    // waiting and checking
    Timeout "What was waited for did not happen in time. Nothing was changed by waiting.";
    CanNeverBe "What is waited for can never happen any more: what it depends on has ended in another way.";
    SessionFailed "A session of the policy ended without finishing its turn, so there is nothing whole to judge.";
    NotGoverned "At least one commit is not proven: nobody gated it, nobody approved it, or its records do not hold.";
    Internal "The program met a state that it takes to be impossible, and stopped before it wrote anything. That is a defect of the program.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_code_is_explained_by_sentences_of_its_own() {
        let mut seen = HashSet::new();
        for code in Code::ALL.iter().copied() {
            let text = meaning(code);
            assert!(text.len() > 30 && text.ends_with('.'), "{code}: {text}");
            assert!(text.split(". ").count() <= 3, "{code}: too long");
            assert!(text.starts_with(char::is_uppercase) || text.starts_with("git "), "{code}");
            assert_ne!(text, code.hint());
            assert!(seen.insert(text), "{code} is explained by the words of another one");
        }
    }
}
