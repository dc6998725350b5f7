//! Every bound of the program, with its unit in its name. Relations are checked at compile time.

/// Paths one commit policy may list (decisions 21).
pub const PATHS_PER_POLICY: usize = 512;
/// A file of ours that says one thing (writer id and path, last event, what was recovered or let go, what runs, where programs
/// were found), or one ref: a path or two fit in. Bytes.
pub const SMALL_FILE_BYTES: u64 = 256 * 1024;
/// A list of packs of ours, bytes.
pub const PACK_LIST_BYTES: u64 = 16 * 1024 * 1024;
/// A file of rules or settings that a person wrote, or the configuration of a repository, bytes.
pub const SETTINGS_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// A key file, bytes.
pub const KEY_FILE_BYTES: u64 = 1024 * 1024;
/// What git packed of refs, bytes: some ten million of them.
pub const PACKED_REFS_BYTES: u64 = 1024 * 1024 * 1024;
/// One loose object, pack or index of a pack that we read ourselves, bytes: what one candidate makes at most, and its heads.
pub const OBJECT_FILE_BYTES: u64 = CANDIDATE_BYTES + 256 * 1024 * 1024;
/// A stored output of a gate, bytes.
pub const LOG_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// One file of `/proc`, bytes: the environment of a process is the largest.
pub const PROC_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Most paths of one kind told in the notices of a command.
pub const NOTICES_OF_A_KIND: usize = 20;
/// Largest list of paths read with `--paths-from`, bytes.
pub const PATHS_FROM_BYTES: u64 = 16 * 1024 * 1024;
/// Largest file a commit policy takes, bytes: files are held in memory while they are hashed and packed.
pub const CANDIDATE_FILE_BYTES: u64 = 512 * 1024 * 1024;
/// All files of one commit policy together, bytes.
pub const CANDIDATE_BYTES: u64 = 1024 * 1024 * 1024;
/// Commit message after cleanup, bytes.
pub const MESSAGE_BYTES: usize = 64 * 1024;
/// Gate lines kept on one commit's note.
pub const GATE_LINES_PER_NOTE: usize = 20;
/// Sessions that one policy waits for.
pub const SESSIONS_PER_POLICY: usize = 64;
/// Policies that follow each other, the first one included (spec policies, `next`).
pub const POLICIES_IN_A_ROW: usize = 16;
/// A file that describes policies, bytes.
pub const POLICY_FILE_BYTES: u64 = 1024 * 1024;
/// Gates in one policy.
pub const GATES_PER_POLICY: usize = 16;
/// `session report --data`, bytes.
pub const REPORT_DATA_BYTES: usize = 16 * 1024;
/// Times the sessions of a policy are told of red gates, when nothing is said.
pub const RETRIES_DEFAULT: u32 = 2;
/// The same at most.
pub const RETRIES_MAX: u32 = 20;
/// What sessions are told of red gates, before the places in it are filled, bytes.
pub const NUDGE_BYTES: usize = 8 * 1024;
/// Prompts of a session that wait for a turn of their own.
pub const PROMPTS_QUEUED: usize = 16;
/// What a person says to a session at once, bytes.
pub const PROMPT_BYTES: usize = 32 * 1024;
/// The same with everything filled in that stands for something else, bytes: one variable of a process holds it.
pub const PROMPT_FILLED_BYTES: usize = 96 * 1024;
/// Words of an agent's command together, bytes.
pub const AGENT_ARGV_BYTES: usize = 64 * 1024;
/// `--key`s of `session report` remembered per session.
pub const KEYS_PER_SESSION: usize = 64;

/// Default and longest gate deadline, milliseconds.
pub const GATE_TIMEOUT_DEFAULT_MS: u64 = 10 * 60 * 1000;
/// Longest gate deadline, milliseconds.
pub const GATE_TIMEOUT_MAX_MS: u64 = 24 * 3600 * 1000;
/// Policies whose gates run at once in a repository, unless a person says otherwise with `agentproto.gateConcurrency`.
pub const GATE_CONCURRENCY: u32 = 8;
/// The same at most.
pub const GATE_CONCURRENCY_MAX: u32 = 1024;
/// Between two looks of a policy whether its gates may run, milliseconds.
pub const SLOT_POLL_MS: u64 = 50;
/// Bytes of unlisted files that are read before and after commit hooks to tell what these changed; what is beyond is told
/// from stat data.
pub const HOOK_WATCHED_BYTES: u64 = 256 * 1024 * 1024;
/// Names of files that a reason lists, the rest is counted.
pub const NAMES_SHOWN: usize = 5;
/// Between SIGTERM and SIGKILL at a gate's deadline, milliseconds.
pub const GATE_KILL_GRACE_MS: u64 = 2_000;
/// Until every process of a killed tree must be gone, milliseconds; then the run is an error.
pub const TREE_KILL_MS: u64 = 10_000;
/// Beyond the deadline and both kills a runner has of its own, until its owner calls it lost and kills
/// it, milliseconds: a second sweep fits in.
pub const RUNNER_MARGIN_MS: u64 = 15_000;
/// Longest wait for the runner of a cancelled gate to end, milliseconds.
pub const CANCEL_WAIT_MS: u64 = 15_000;
/// Read from a gate's pipe after its whole tree is gone, bytes: more than the largest pipe holds.
pub const OUTPUT_DRAIN_BYTES: usize = 4 * 1024 * 1024;
/// Head of each output stream kept, bytes.
pub const OUTPUT_HEAD_BYTES: usize = 64 * 1024;
/// Tail of each output stream kept, bytes.
pub const OUTPUT_TAIL_BYTES: usize = 192 * 1024;
/// One file of the kept output of an agent, bytes.
pub const OUTPUT_FILE_BYTES: u64 = 256 * 1024;
/// Such files of one session.
pub const OUTPUT_FILES: usize = 16;
/// Between two looks of whoever shows how an agent gets on, milliseconds.
pub const PROGRESS_MS: u64 = 120;
/// Output of an agent shown at once, bytes.
pub const OUTPUT_SHOWN_BYTES: usize = 64 * 1024;
/// Longest run of an agent, milliseconds: a month, so that none is forgotten for ever.
pub const AGENT_RUN_MAX_MS: u64 = 30 * 24 * 3600 * 1000;
/// Between SIGTERM and SIGKILL when an agent is ended, unless a person says otherwise, milliseconds.
pub const AGENT_KILL_GRACE_MS: u64 = 5_000;
/// The same at most, milliseconds.
pub const AGENT_KILL_GRACE_MAX_MS: u64 = 10 * 60 * 1000;
/// Tail of the output shown in answers, bytes.
pub const TAIL_SHOWN_BYTES: usize = 4 * 1024;
/// Last lines of it that people are shown.
pub const TAIL_SHOWN_LINES: usize = 40;
/// The same below the answer of another command.
pub const TAIL_BRIEF_LINES: usize = 10;
/// Characters of one such line; of a longer one the beginning is shown.
pub const TAIL_LINE_CHARS: usize = 240;

/// Events of one segment of a journal. Part of the format: the number of a segment is told from it.
pub const SEGMENT_EVENTS: u64 = 65_536;
/// Positions above the lowest one at which the first entry of a segment is looked for before the segment is walked
/// through, events: a batch rarely runs over by more.
pub const SEEK_OVERRUN_EVENTS: usize = 64;
/// Journal entries read at a time while a page is put together, events.
pub const PAGE_CHUNK_EVENTS: usize = 256;
/// Most a clock may have been set back for `--since TIME` to leave out nothing later, milliseconds.
pub const CLOCK_SET_BACK_MS: i64 = 24 * 3600 * 1000;
/// How much earlier by its time than the event before it an event is when the clock was set back, milliseconds. The
/// time is taken before the turn to write comes, so writers that wait for each other differ by less without that.
pub const CLOCK_STEP_MS: i64 = 60_000;
/// WAL frames that make a checkpoint due (storage C).
pub const CHECKPOINT_FRAMES: usize = 256;
/// WAL bytes that make a checkpoint due (storage C).
pub const CHECKPOINT_BYTES: u64 = 1024 * 1024;
/// Most loose objects of ours at any time: git's own `gc` begins near 6,700.
pub const LOOSE_OBJECTS: u64 = 2_000;
/// Objects in the log that make a checkpoint due: each has a loose copy until it is packed.
pub const CHECKPOINT_OBJECTS: u64 = 1_350;
/// The same while as many still wait for their pack; then appending waits for that.
pub const CHECKPOINT_OBJECTS_BESIDE: u64 = 400;
/// Objects that may come on top, by one frame each of those who append at the same time.
pub const CHECKPOINT_OBJECTS_OVER: u64 = 125;
/// Entries in one frame from which git sees them as one pack instead of loose objects (storage A).
pub const BATCH_ENTRIES: u32 = 4;
/// Packs of batches that make a checkpoint due: as many may be beside them until that one is made, and git's own `gc`
/// begins at 50.
pub const CHECKPOINT_BATCHES: u64 = 16;
/// Last frames whose objects each append looks for again (storage H).
pub const HEAL_RECENT: usize = 2;
/// Appends within which the objects of every frame are looked for again (storage H).
pub const HEAL_TURNS: usize = 32;
/// Longest wait for whoever packs, by those who must not append more before, milliseconds.
pub const PACK_LOCK_WAIT_MS: u64 = 10_000;
/// WAL file preallocation, bytes (storage W).
pub const WAL_PREALLOCATED_BYTES: u64 = 4 * 1024 * 1024;
/// Largest WAL frame payload accepted, bytes.
pub const WAL_FRAME_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes behind a damaged place of the log that are looked through for frames, and most of them that are checksummed
/// in vain: a torn write leaves less, and beyond it the log counts as corrupt.
pub const WAL_SEARCH_BYTES: u64 = 128 * 1024 * 1024;
/// Threads whose appends become durable together.
pub const GROUP_MEMBERS: usize = 128;
/// Journal entries that become durable together, but for one append that brings more.
pub const GROUP_ENTRIES: usize = 512;
/// Bytes of objects that become durable together, but for one append that brings more.
pub const GROUP_BYTES: u64 = 1024 * 1024;
/// Delta chain length in our own packs (storage P).
pub const PACK_DELTA_DEPTH: u8 = 40;
/// Delta chain length in merged packs: what had begun a chain in its own pack may hang on an earlier one.
pub const PACK_MERGED_DEPTH: u8 = 60;
/// Each merged pack is at least so many times as large as all smaller ones together (storage C).
pub const PACK_MERGE_FACTOR: u64 = 4;
/// Largest pack that a merge makes, bytes: it is held in memory.
pub const PACK_MERGED_BYTES: u64 = 32 * 1024 * 1024;
/// Age from which a directory for one piece of work that nobody holds belongs to nothing under way, milliseconds.
pub const SCRATCH_STALE_MS: u64 = 3600 * 1000;
/// Age from which a pack that was kept for a pin belongs to nothing under way, milliseconds.
pub const PACK_STALE_MS: u64 = 24 * 3600 * 1000;
/// Patterns of protected paths that a policy may have.
pub const PROTECT_PATTERNS: usize = 64;
/// Files beside the listed ones that a gate which did not pass is told with.
pub const BESIDE_NAMED: usize = 5;
/// Patterns of one scope gate.
pub const SCOPE_PATTERNS: usize = 256;
/// Paths outside the scope that the kept output of a scope gate lists.
pub const SCOPE_LISTED: usize = 1000;
/// Longest regular expression for a gate's output, bytes.
pub const REQUIRE_OUTPUT_BYTES: usize = 1024;
/// Largest program that such an expression may become, bytes.
pub const REQUIRE_OUTPUT_PROGRAM_BYTES: usize = 1024 * 1024;
/// Largest multi-pack index that is looked into, bytes; beside a larger one nothing is merged.
pub const MIDX_BYTES: u64 = 64 * 1024 * 1024;
/// Longest wait for the journal lock of another process, milliseconds.
pub const JOURNAL_LOCK_WAIT_MS: u64 = 30_000;
/// Longest wait for another repository of the same user that claims a writer id, milliseconds.
pub const CLAIM_LOCK_WAIT_MS: u64 = 5_000;
/// Notes in one directory of a notes tree before it is split, as git does near this number.
pub const NOTES_PER_DIRECTORY: usize = 256;
/// Longest wait for somebody else's ref lock, milliseconds (storage L).
pub const REF_LOCK_WAIT_MS: u64 = 5_000;
/// How often a ref lock of somebody else is looked at that git waits for in our name, milliseconds.
pub const REF_RETRY_MS: u64 = 20;
/// Until a list of reftables that names a missing one counts as damaged, milliseconds: git replaces both.
pub const REFTABLE_RELOAD_MS: u64 = 3_000;
/// Longest wait at landing for what is at work in worktrees on other branches, milliseconds: it could be a `git checkout` of
/// this one.
pub const OTHERS_INDEX_WAIT_MS: u64 = 1_000;
/// Times a landing begins anew because a worktree came onto the branch meanwhile.
pub const LANDING_TRIES: usize = 10;
/// Longest wait for a worktree's `index.lock` at landing, milliseconds.
pub const INDEX_LOCK_WAIT_MS: u64 = 10_000;
/// Attempts to show a ref to a git that does not find its object, which is written again in between.
pub const SHOW_TRIES: u32 = 20;
/// Attempts of a compare-and-swap on a notes ref.
pub const NOTES_CAS_TRIES: u32 = 200;

/// Largest file whose lines a review counts, bytes.
pub const REVIEW_BLOB_BYTES: usize = 16 * 1024 * 1024;
/// Most added and deleted lines a review counts in one file; the cost grows with the square.
pub const REVIEW_LINE_EDITS: usize = 8_000;

/// Default life of an ack, milliseconds (decisions 14).
pub const ACK_EXPIRES_DEFAULT_MS: u64 = 24 * 3600 * 1000;
/// Longest life of an ack, milliseconds: ten years.
pub const ACK_EXPIRES_MAX_MS: u64 = 10 * 366 * 24 * 3600 * 1000;
/// How far the clock of whoever signed an ack may be ahead of ours, milliseconds.
pub const ACK_AHEAD_MS: i64 = 600_000;
/// Longest life of a policy, milliseconds: ten years.
pub const POLICY_LIFE_MAX_MS: u64 = 10 * 366 * 24 * 3600 * 1000;
/// Approvals by distinct keys that a rule may require.
pub const ACK_QUORUM_MAX: u32 = 16;
/// Lines of an acks note that one look judges.
pub const NOTE_ACKS_PER_LOOK: usize = 20;
/// Judged lines that a policy remembers; then lines in notes are looked at no more.
pub const JUDGED_LINES: usize = 256;
/// Longest line of a note that is judged as it is, bytes; of a longer one only so much is kept.
pub const NOTE_ACK_BYTES: usize = 64 * 1024;
/// Times a policy is gated again by itself because its branch moved while it was gated or landed.
pub const REGATES_MAX: u32 = 5;
/// A session that reported nothing for so long is told of by `doctor`, milliseconds.
pub const SESSION_IDLE_MS: i64 = 7 * 24 * 3600 * 1000;
/// Default of `wait --timeout`, milliseconds.
pub const WAIT_DEFAULT_MS: u64 = 3600 * 1000;
/// How often it is looked at what is neither in the journal nor watched, such as an agent's output, milliseconds.
pub const WAIT_POLL_MS: u64 = 50;
/// How often a waiter tries again what could not be done, milliseconds.
pub const WAIT_RETRY_MS: u64 = 500;
/// How often a waiter looks at what leaves no trace in the journal (who performs, the notes, branches), milliseconds.
pub const WAIT_OUTSIDE_MS: u64 = 1_500;
/// How soon a waiter looks again at the files that show appends, at the least, milliseconds.
pub const WAIT_LEAST_MS: u64 = 10;
/// The same at the longest where the kernel watches them, milliseconds.
pub const WAIT_LONGEST_WATCHED_MS: u64 = 2_000;
/// The same where it does not, milliseconds.
pub const WAIT_LONGEST_MS: u64 = 1_000;
/// Which part of the time since something happened passes until then, where the kernel watches.
pub const WAIT_PART_WATCHED: u32 = 4;
/// The same where it does not: an event is noticed late by no more than this part of the time it was waited for.
pub const WAIT_PART: u32 = 20;
/// How often a waiter looks at the journal whatever its files say, milliseconds: milliseconds of work, so rarely.
pub const WAIT_ANYWAY_MS: u64 = 300_000;
/// How often it performs again what may be due unseen, whatever a look said, milliseconds.
pub const WAIT_PERFORM_MS: u64 = 30_000;
/// A file written less than this long ago may be written again without looking another, milliseconds.
pub const STAMP_FRESH_MS: i64 = 50;
/// How long a waiter gives a performer that it started to begin, milliseconds.
pub const HAND_OVER_MS: u64 = 2_000;
/// Default of `events --limit`, events.
pub const EVENTS_LIMIT_DEFAULT: usize = 200;
/// Age at which logs of gate output are removed where nothing is set, milliseconds.
pub const LOG_RETENTION_MS: u64 = 30 * 24 * 3600 * 1000;

/// How long what signs may take where nobody can be asked, milliseconds: an agent may well wait for a touch.
pub const SIGN_ALONE_MS: u64 = 30_000;
/// How long it may take at the least, all of it together, for who waits no longer, milliseconds.
pub const SIGN_LEAST_MS: u64 = 1_000;
/// How long a person may take to let something be signed, milliseconds.
pub const SIGN_PERSON_MS: u64 = 180_000;
/// How much is shown of what a program made in the place of a signature, bytes.
pub const SHOWN_GARBAGE_BYTES: usize = 80;
/// Deadline of one call of the user's git, milliseconds.
pub const GIT_CALL_MS: u64 = 120_000;
/// After a called program ended, how long its output may be held open by others, milliseconds.
pub const CALL_DRAIN_MS: u64 = 500;

const _: () = assert!((2 * (OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES) as u64) < LOG_FILE_BYTES);
const _: () = assert!(PACK_MERGED_BYTES < OBJECT_FILE_BYTES);
const _: () = assert!(NOTE_ACKS_PER_LOOK < JUDGED_LINES);
const _: () = assert!(GATE_TIMEOUT_DEFAULT_MS <= GATE_TIMEOUT_MAX_MS);
const _: () = assert!(CANDIDATE_FILE_BYTES <= CANDIDATE_BYTES);
const _: () = assert!(ACK_EXPIRES_DEFAULT_MS <= ACK_EXPIRES_MAX_MS);
const _: () = assert!(CHECKPOINT_BYTES < WAL_PREALLOCATED_BYTES);
const _: () = assert!(REF_RETRY_MS < REF_LOCK_WAIT_MS);
const _: () = assert!(
    CHECKPOINT_OBJECTS + CHECKPOINT_OBJECTS_BESIDE + 2 * CHECKPOINT_OBJECTS_OVER <= LOOSE_OBJECTS
);
const _: () = assert!(PACK_DELTA_DEPTH < PACK_MERGED_DEPTH);
const _: () = assert!(HEAL_RECENT < HEAL_TURNS && HEAL_TURNS < CHECKPOINT_FRAMES);
const _: () = assert!(GROUP_BYTES + CHECKPOINT_BYTES < WAL_PREALLOCATED_BYTES);
const _: () = assert!(GROUP_BYTES < WAL_FRAME_BYTES);
const _: () = assert!(WAL_FRAME_BYTES + WAL_PREALLOCATED_BYTES < WAL_SEARCH_BYTES);
const _: () = assert!(TREE_KILL_MS < CANCEL_WAIT_MS);
const _: () = assert!(WAIT_LEAST_MS < WAIT_LONGEST_MS && WAIT_OUTSIDE_MS < 2_000);
const _: () = assert!(JOURNAL_LOCK_WAIT_MS < CLOCK_STEP_MS.unsigned_abs());
const _: () = assert!(CLOCK_STEP_MS < CLOCK_SET_BACK_MS);
const _: () = assert!(TREE_KILL_MS < RUNNER_MARGIN_MS);
const _: () = assert!(TAIL_SHOWN_BYTES <= OUTPUT_TAIL_BYTES);
