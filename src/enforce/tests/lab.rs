//! A repository whose journal is written by the real ledger, and git to tamper with it.

use crate::{
    domain::{
        ack::{AckStatement, Decision},
        digest::sha256,
        event::SessionStarted,
        gate::{Gate, GateDef, GateEnd, GateResult, ShellGate, Verdict},
        ids::{PolicyId, SessionId},
        input::{Asked as Request, Covers, GateRun, Input, JudgedAck, Report, RunEnd, Signature},
        oid::Oid,
        path::RepoPath,
        policy::{AckRecord, Candidate, CommitSpec, OnEnd, OnStale, PolicySpec, Then},
        session::{EndReason, Loose},
        time::Timestamp,
    },
    enforce::verify::{self, Report as Verdicts, VerifyAsk},
    ledger::{Ledger, Recording},
    sign::{self, key::SigningKey},
    store::{Segment, journal_ref, trusted::testing::Lab as Home},
    sys::{clock, env::Env},
    wire::{
        ack_line::AckLine,
        gate_line::{GateExit, GateLine, GatedOn, gates_digest},
    },
};

pub(super) const ADA: &str = "ada@example.invalid";

pub(super) struct Lab {
    pub(super) home: Home,
    key: SigningKey,
    count: std::cell::Cell<u32>,
}

/// A policy on its way.
pub(super) struct Asked {
    pub(super) id: PolicyId,
    pub(super) candidate: Candidate,
    pub(super) request: Oid,
    gates: String,
}

/// What is odd about a commit that a test makes.
#[derive(Clone, Copy, Default)]
pub(super) struct Odd {
    pub(super) ungated: bool,
    pub(super) no_ack: bool,
    /// The candidate holds a file that is not listed.
    pub(super) sneaky: bool,
    /// The gate's line is about this tree.
    pub(super) gated_tree: Option<Oid>,
    /// Approvals it takes; one when 0.
    pub(super) quorum: u32,
    /// Whose answer does not count.
    pub(super) exclude: &'static [&'static str],
    /// Its time is over as soon as the candidate is there.
    pub(super) ended: bool,
}

impl Lab {
    pub(super) fn new() -> Self {
        let home = Home::new();
        home.git(&["config", "user.name", "Ada"]);
        home.git(&["config", "user.email", ADA]);
        home.git(&["config", "gc.auto", "0"]);
        // The repository id is the first commit: no two labs may share it.
        home.commit("first", &home.top().display().to_string());
        let path = home.ssh_key("key", &["-t", "ed25519", "-N", ""]);
        let lab = Self { key: sign::key::load(&path).unwrap(), home, count: 0.into() };
        lab.allow(&format!("{ADA} {}\n", lab.home.words(&path)));
        lab
    }

    /// Sets who may sign.
    pub(super) fn allow(&self, signers: &str) {
        let file = self.ledger().trust().unwrap().settings.signers_file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, signers).unwrap();
    }

    pub(super) fn env(&self) -> Env {
        self.home.env()
    }

    pub(super) fn ledger(&self) -> Ledger {
        Ledger::open(&self.env(), "cli").unwrap()
    }

    pub(super) fn git(&self, args: &[&str]) -> String {
        self.home.git(args).trim().to_owned()
    }

    pub(super) fn rev(&self, name: &str) -> Oid {
        self.home.rev(name)
    }

    pub(super) fn verify(&self, revisions: &str) -> Verdicts {
        let ask =
            VerifyAsk { revisions: Some(revisions).filter(|r| !r.is_empty()).map(Into::into) };
        verify::verify(&self.ledger(), &ask).unwrap()
    }

    /// The only commit of a range, as `outcome: reason`.
    pub(super) fn verdict(&self, revisions: &str) -> String {
        let report = self.verify(revisions);
        assert_eq!(report.commits.len(), 1, "{report:?}");
        let found = &report.commits[0];
        format!("{}: {}", found.outcome, found.reason.as_deref().unwrap_or(""))
    }

    pub(super) fn session(&self) -> SessionId {
        let id: SessionId = self.fresh("ses_").parse().unwrap();
        let started = SessionStarted {
            label: None,
            worktree: ".".into(),
            cwd: ".".into(),
            base: Some(self.rev("HEAD")),
            dirty_base: false,
            own: false,
            launch: None,
        };
        self.record(Input::SessionAdopted { session: id.clone(), started });
        id
    }

    fn fresh(&self, prefix: &str) -> String {
        self.count.set(self.count.get() + 1);
        format!("{prefix}{:0>26}", self.count.get())
    }

    pub(super) fn record(&self, input: Input) -> Recording {
        self.ledger().record(input).unwrap()
    }

    /// Attach, turn end, green gate, candidate.
    pub(super) fn ask(&self, file: &str, odd: Odd) -> Asked {
        let session = self.session();
        let id: PolicyId = self.fresh("pol_").parse().unwrap();
        let gate = Gate::Shell(ShellGate {
            def: GateDef {
                command: "true".into(),
                args: vec![],
                cwd: ".".into(),
                timeout_ms: 600_000,
                require_output: None,
                protect: vec![],
                env: std::collections::BTreeMap::new(),
                env_clean: false,
            },
            program: "0a".repeat(32),
        });
        let commit = CommitSpec {
            paths: vec![RepoPath::new(file.as_bytes()).unwrap()],
            message: "add it\n".into(),
            require_human_ack: !odd.no_ack,
            branch: "refs/heads/main".into(),
            allow_markers: false,
            force_ignored: false,
            allow_submodule: false,
            detached_ok: false,
            ack_quorum: odd.quorum.max(1),
            ack_exclude: odd.exclude.iter().map(|w| (*w).to_owned()).collect(),
        };
        let gates = if odd.ungated { vec![] } else { vec![gate.clone()] };
        let spec = PolicySpec {
            label: None,
            session_ids: vec![session.clone()],
            gate_session: None,
            then: Then::Commit,
            gates,
            commit: Some(commit),
            base: 0,
            on_stale: OnStale::Regate,
            expires: odd.ended.then(|| clock::now().plus_ms(2_000)),
            on_end: OnEnd::Finished,
            on_fail: None,
            end_session: false,
            again: None,
            next: None,
        };
        self.record(Input::PolicyAsked { policy: id.clone(), spec, covers: Covers::LastAndNext });
        let report =
            Report::TurnEnd { turn: None, reason: EndReason::Completed, loose: Loose::default() };
        self.record(Input::Reported { session, report, key: None });
        let candidate = self.candidate(file, odd.sneaky);
        let results = if odd.ungated {
            vec![]
        } else {
            vec![green(&id, 1, &gate, odd.gated_tree.unwrap_or(candidate.tree))]
        };
        let asked = self.green((id, 1), candidate, results);
        if odd.ended {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            let ledger = self.ledger();
            while ledger.record(Input::TimeUp { policy: asked.id.clone() }).is_err() {
                assert!(std::time::Instant::now() < deadline, "its time is never over");
                std::thread::yield_now();
            }
        }
        asked
    }

    /// The next attempt of a policy whose branch moved, green on what is there now.
    pub(super) fn again(&self, asked: &Asked, file: &str) -> Asked {
        let policy = self.ledger().require_policy(&asked.id).unwrap();
        let candidate = self.candidate(file, false);
        let (gate, attempt) = (&policy.spec.gates[0], policy.attempt);
        let results = vec![green(&asked.id, attempt, gate, candidate.tree)];
        self.green((asked.id.clone(), attempt), candidate, results)
    }

    fn green(
        &self,
        (id, attempt): (PolicyId, u32),
        candidate: Candidate,
        results: Vec<GateResult>,
    ) -> Asked {
        let gates = gates_digest(results.iter().filter_map(|r| r.line.as_deref()));
        let end = RunEnd::Ready(candidate);
        let run = GateRun { results, voided: 0, noted_on: None, end };
        let input = Input::GatesEnded { policy: id.clone(), attempt, run };
        let touches = [crate::domain::event::Entity::Policy(id.clone())];
        let pins = vec![candidate.commit];
        let done = self.ledger().record_with(&touches, pins, |_| Ok(input)).unwrap();
        let request = done.events.last().unwrap().1;
        Asked { id, candidate, request, gates }
    }

    /// The file as a commit on HEAD, made without index or branch of the repository.
    fn candidate(&self, file: &str, sneaky: bool) -> Candidate {
        let mut lines = self.home.git(&["ls-tree", "HEAD"]);
        let blob = self.git(&["hash-object", "-w", "--no-filters", "first"]);
        lines.push_str(&format!("100644 blob {blob}\t{file}\n"));
        if sneaky {
            lines.push_str(&format!("100644 blob {blob}\tsneaky\n"));
        }
        let tree = self.mktree(&lines);
        let parent = self.rev("HEAD");
        let commit = self.commit_tree(tree, &[parent], "add it\n");
        Candidate { commit, tree, parent }
    }

    pub(super) fn mktree(&self, lines: &str) -> Oid {
        let file = self.home.home().join("lines");
        std::fs::write(&file, lines).unwrap();
        let text = self.home.run("sh", &["-c", "exec git mktree < \"$HOME/lines\""]);
        text.trim().parse().unwrap()
    }

    pub(super) fn commit_tree(&self, tree: Oid, parents: &[Oid], message: &str) -> Oid {
        let file = self.home.home().join("message");
        std::fs::write(&file, message).unwrap();
        let tree = tree.to_string();
        let mut args = vec!["commit-tree".to_owned(), tree];
        for parent in parents {
            args.extend(["-p".to_owned(), parent.to_string()]);
        }
        args.extend(["-F".to_owned(), file.display().to_string()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.git(&args).parse().unwrap()
    }

    pub(super) fn statement(&self, asked: &Asked) -> AckStatement {
        let now = clock::now();
        AckStatement {
            decision: Decision::Approve,
            repo: self.ledger().repo_id().unwrap().to_string(),
            policy: asked.id.clone(),
            request: asked.request,
            candidate: asked.candidate.commit,
            parent: asked.candidate.parent,
            tree: asked.candidate.tree,
            branch: "refs/heads/main".into(),
            gates: asked.gates.clone(),
            signer: ADA.into(),
            key: self.key.fingerprint(),
            issued: now,
            expires: now.plus_ms(86_400_000),
            reason: String::new(),
        }
    }

    pub(super) fn sign(&self, statement: AckStatement) -> AckLine {
        sign::sign(statement, &self.key, None).unwrap()
    }

    /// Consumes a line as an engine would that was told it is good and fits, whatever it says.
    pub(super) fn consume(&self, asked: &Asked, line: &AckLine) -> Recording {
        let (fitting, seq) = (self.statement(asked), self.request_seq(asked));
        let fitting = AckStatement {
            signer: line.statement.signer.clone(),
            key: line.statement.key.clone(),
            ..fitting
        };
        let policy = asked.id.clone();
        let (tip, gates) = (Some(asked.candidate.parent), asked.gates.clone());
        let (said, text) = (&line.statement, line.encode());
        self.ledger()
            .record_with(&[crate::domain::event::Entity::Policy(policy.clone())], vec![], |_| {
                let at = clock::now();
                let record = AckRecord {
                    decision: said.decision,
                    line: text.clone(),
                    signer: fitting.signer.clone(),
                    key: fitting.key.clone(),
                    signers: "repo-user".into(),
                    signers_digest: "0b".repeat(32),
                    at,
                };
                let ack = JudgedAck {
                    line: text,
                    statement: Ok(AckStatement { decision: said.decision, ..fitting.clone() }),
                    signature: Signature::Good(record),
                    repo: fitting.repo.clone(),
                    asked: Some(Request { policy: policy.clone(), seq, answered: false }),
                    quorum: 1,
                    gates,
                    tip,
                    at,
                };
                Ok(Input::AckArrived { policy, ack: Box::new(ack) })
            })
            .unwrap()
    }

    fn request_seq(&self, asked: &Asked) -> u64 {
        self.ledger().require_policy(&asked.id).unwrap().request_seq.unwrap()
    }

    pub(super) fn refuse(&self, asked: &Asked, why: &str) {
        let said = self.statement(asked);
        let ack = JudgedAck {
            line: "a line".into(),
            statement: Ok(said.clone()),
            signature: Signature::Forged(why.into()),
            repo: said.repo.clone(),
            asked: Some(Request {
                policy: said.policy.clone(),
                seq: self.request_seq(asked),
                answered: false,
            }),
            quorum: 1,
            gates: said.gates.clone(),
            tip: Some(asked.candidate.parent),
            at: clock::now(),
        };
        self.record(Input::AckArrived { policy: asked.id.clone(), ack: Box::new(ack) });
    }

    pub(super) fn approve(&self, asked: &Asked) {
        self.consume(asked, &self.sign(self.statement(asked)));
    }

    /// Moves the branch as landing does.
    pub(super) fn move_branch(&self, asked: &Asked) {
        self.git(&["reset", "-q", "--hard", &asked.candidate.commit.to_string()]);
    }

    pub(super) fn land(&self, asked: &Asked) {
        self.move_branch(asked);
        self.record(Input::BranchMoved { policy: asked.id.clone() });
    }

    /// The whole way.
    pub(super) fn governed(&self, file: &str) -> Asked {
        let asked = self.ask(file, Odd::default());
        self.approve(&asked);
        self.land(&asked);
        asked
    }

    /// Name of the own journal's ref.
    pub(super) fn journal(&self) -> String {
        journal_ref(&self.ledger().store().writer().unwrap().unwrap(), Segment::FIRST)
    }

    /// Rewrites the journal with plain git. Each entry goes through `change`, which may drop it; what follows
    /// is put on top. The log is gone, so that nothing but the chain itself can tell.
    pub(super) fn rewrite(&self, change: impl Fn(usize, Entry) -> Option<Entry>) {
        let name = self.journal();
        let ids = self.git(&["rev-list", "--reverse", "--first-parent", &name]);
        let mut tip = Vec::new();
        for (at, id) in ids.lines().enumerate() {
            let message = self.home.git(&["show", "-s", "--format=%B", id]);
            let message = format!("{}\n", message.trim_end());
            let tree = self.rev(&format!("{id}^{{tree}}"));
            if let Some(entry) = change(at, Entry { message, tree, parents: tip.clone() }) {
                tip = vec![self.commit_tree(entry.tree, &entry.parents, &entry.message)];
            }
        }
        let tip = tip.first().unwrap().to_string();
        std::fs::remove_dir_all(self.home.top().join(".git/agentproto")).unwrap();
        // Outside the repository stands which event was the last.
        let writer = name.split('/').nth(3).unwrap();
        let seen = self.env().state_dir().unwrap().join(format!("writers/{writer}.tip"));
        std::fs::remove_file(seen).unwrap();
        self.git(&["update-ref", &name, &tip]);
    }

    /// What is wrong with the only journal.
    pub(super) fn problem(&self) -> String {
        let report = self.verify("HEAD~1..HEAD");
        assert_eq!((report.exit, report.journals.len()), (2, 1), "{report:?}");
        let problem = report.journals[0].problem.clone();
        problem.map_or_else(String::new, |(_, why)| why)
    }
}

/// An entry that is written again.
pub(super) struct Entry {
    pub(super) message: String,
    pub(super) tree: Oid,
    pub(super) parents: Vec<Oid>,
}

impl Entry {
    /// Says something else in the message; what is replaced must be there.
    pub(super) fn swap(&mut self, from: &str, to: &str) {
        assert!(self.message.contains(from), "{from} is not in {}", self.message);
        self.message = self.message.replace(from, to);
    }
}

fn green(policy: &PolicyId, attempt: u32, gate: &Gate, tree: Oid) -> GateResult {
    let line = GateLine {
        verdict: Verdict::Pass,
        policy: policy.clone(),
        attempt,
        gate: 0,
        def: sha256(gate.canonical().as_bytes()),
        on: GatedOn::Candidate,
        tree: Some(tree),
        dirty: Some(2),
        isolation: "none".into(),
        exit: GateExit::Status(0),
        program: gate.program().map(str::to_owned),
        argv: gate.words().into_iter().map(str::to_owned).collect(),
        ms: 3,
        at: Timestamp::from_ms(1_700_000_000_000),
    };
    GateResult {
        index: 0,
        hook: None,
        verdict: Verdict::Pass,
        reason: None,
        because: None,
        end: GateEnd::Exit(0),
        signals: vec![],
        duration_ms: 3,
        log: None,
        unlisted_changes: 2,
        beside: vec![],
        left_behind: 0,
        line: Some(line.encode()),
    }
}
