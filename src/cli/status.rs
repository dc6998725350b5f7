//! `status [ID]`: what needs a person first, then the rest.
//!
//! Contract: only looks. What cannot be told is said to be unknown; it is never left out as if it were fine.

use super::{
    again::{TOOL, tool},
    answer,
    cx::Cx,
    doubt,
    error::CliError,
    names::Names,
    policy, session,
    text::{Paint, cut, line, shown},
};
use crate::{
    code::{Code, exit},
    domain::{
        event::Entity,
        gate::Gate,
        ids::{PolicyId, WriterId},
        policy::{CommitSpec, Policy, PolicySpec, Status, Then},
        session::Session,
    },
    ledger::{Ledger, LedgerError},
    limits,
    runtime::live,
    store::trusted::Rules,
    sys::{
        clock, files,
        process::{self, Liveness},
    },
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What to look at, as typed.
#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// A policy or session: id, unique prefix of one, or label
    #[arg(value_name = "ID")]
    id: Option<String>,
}

/// Everything `status` tells.
struct Overview {
    acks: Vec<Waiting>,
    blocked: Vec<Blocked>,
    asking: Vec<Session>,
    due: Vec<Due>,
    watching: Vec<Policy>,
    sessions: Vec<Session>,
    rules: RuleNews,
    /// The journal, and its home, that this repository is a copy beside.
    copied: Option<(WriterId, Option<PathBuf>)>,
    is_bare: bool,
    names: Names,
    /// How a command begins where the reader stands.
    tool: String,
}

/// A policy that waits for an ack.
struct Waiting {
    policy: Policy,
    /// Why its candidate can not land any more, when that is so.
    stale: Option<String>,
    /// Why its candidate cannot be answered.
    lost: Option<String>,
    /// Approvals it takes, or why that cannot be told.
    quorum: Result<u32, String>,
}

impl Waiting {
    /// An answer given now would be turned down.
    fn is_past(&self) -> bool {
        self.stale.is_some() || self.policy.is_expired(clock::now())
    }

    /// How far it is with its approvals, where one alone does not do.
    fn approvals(&self) -> Option<String> {
        match &self.quorum {
            Ok(1) => None,
            Ok(quorum) => Some(format!("{} of {quorum} approvals", self.policy.approvals())),
            Err(why) => Some(format!("how many approvals it takes cannot be told: {why}")),
        }
    }

    /// There is nothing to answer, and nobody makes it anew.
    fn is_lost(&self) -> bool {
        self.lost.is_some() && !self.is_past()
    }
}

/// A policy for which something is to be done.
struct Due {
    policy: Policy,
    /// Somebody does it; `None` when that cannot be told.
    served: Option<bool>,
}

/// A blocked policy and the command that asks for the same again.
struct Blocked {
    policy: Policy,
    next: Option<String>,
}

/// A policy with a sentence about it and the exact command that answers it.
struct Told<'a> {
    of: &'a Policy,
    said: Option<String>,
    next: Option<String>,
}

/// What became of the rule files since a person accepted them.
enum RuleNews {
    Accepted,
    NeverAccepted,
    Changed,
    NoCommits,
    Unknown(String),
}

pub(super) fn run(cx: &Cx, args: StatusArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let doubts = doubt::say(cx, &ledger);
    match args.id.map(|id| ledger.find(&id)).transpose()? {
        Some(Entity::Policy(id)) => policy::show(cx, &ledger, &id),
        Some(Entity::Session(id)) => session::show(cx, &ledger, &id),
        None => {
            let overview = Overview::load(cx, &ledger)?;
            let mut answer = overview.to_json(cx);
            doubt::tell(&mut answer, &doubts);
            cx.answer(&answer, &overview.to_text(cx))?;
            Ok(exit::DONE)
        }
    }
}

impl Overview {
    fn load(cx: &Cx, ledger: &Ledger) -> Result<Self, CliError> {
        let all = ledger.policies(true)?;
        let is_bare = ledger.store().location().worktree.is_none();
        let mut overview = Self {
            acks: vec![],
            blocked: blocked(cx, ledger, &all)?,
            asking: vec![],
            due: vec![],
            watching: vec![],
            sessions: vec![],
            rules: rule_news(ledger),
            // A bare repository got its journals by a push; nobody works in it, so it takes nothing over.
            copied: if is_bare {
                None
            } else {
                ledger.store().copied_from().map_err(LedgerError::from)?
            },
            is_bare,
            names: Names::load(cx, ledger)?,
            tool: shown(&tool(cx, ledger)),
        };
        for policy in all {
            match policy.status {
                Status::Signing | Status::AwaitingAck => {
                    let stale = answer::stale(ledger, &policy)?;
                    let lost = answer::lost(ledger, &policy);
                    let quorum = answer::quorum(ledger, &policy).map_err(|error| error.message);
                    overview.acks.push(Waiting { policy, stale, lost, quorum });
                }
                Status::Queued | Status::Gating | Status::Committing => {
                    let served = is_served(ledger, &policy.policy_id);
                    overview.due.push(Due { policy, served });
                }
                Status::Watching | Status::Nudging => overview.watching.push(policy),
                Status::Done | Status::Blocked | Status::Cancelled => {}
            }
        }
        let sessions = ledger.sessions(false)?;
        let (asking, sessions) = sessions.into_iter().partition(|s| !s.open_requests.is_empty());
        Ok(Self { asking, sessions, ..overview })
    }

    fn to_json(&self, cx: &Cx) -> Value {
        let step = |p: &Policy| answer::open_step(cx, TOOL, p, p.policy_id.as_str());
        let open = |p: &Policy| answer::policy_short(p, step(p).as_deref());
        let with = |p: &Policy, name: &str, value: Value| {
            let mut short = open(p);
            short[name] = value;
            short
        };
        let acks = self.acks.iter().map(|w| {
            let mut short = with(&w.policy, "stale", w.stale.as_deref().into());
            short["lost"] = w.lost.as_deref().into();
            short["approvals"] = w.policy.approvals().into();
            short["ackQuorum"] = w.quorum.as_ref().ok().copied().into();
            if w.is_lost() {
                short["nextStep"] = answer::lost_step(cx, TOOL, w.policy.policy_id.as_str()).into();
            }
            short
        });
        let blocked =
            self.blocked.iter().map(|b| answer::policy_short(&b.policy, b.next.as_deref()));
        let due = self.due.iter().map(|d| with(&d.policy, "served", d.served.into()));
        let sessions =
            |all: &[Session]| -> Value { all.iter().map(answer::session_short).collect() };
        json!({
            "schema": "agentproto/status/1",
            "acks": acks.collect::<Value>(),
            "blocked": blocked.collect::<Value>(),
            "awaitingInput": sessions(&self.asking),
            "due": due.collect::<Value>(),
            "watching": self.watching.iter().map(open).collect::<Value>(),
            "sessions": sessions(&self.sessions),
            "rules": self.rules.word(),
            "copyOf": self.copied.as_ref().map(|(writer, home)| json!({
                "writer": writer.as_str(),
                "gitDir": home.as_ref().map(|home| home.display().to_string()),
            })),
        })
    }

    fn to_text(&self, cx: &Cx) -> String {
        let mut text = String::new();
        let paint = cx.paint;
        if let Some((writer, home)) = &self.copied {
            line(&mut text, &paint.warn(&copy_sentence(writer, home.as_deref())));
        }
        if self.is_bare {
            let where_to = "git worktree add DIR BRANCH makes one";
            line(
                &mut text,
                &format!("this repository is bare: work goes on in a worktree; {where_to}"),
            );
        }
        if let Some(news) = self.rules.sentence().filter(|_| !self.is_bare) {
            line(&mut text, &paint.warn(&news));
        }
        self.acks_text(cx, &mut text);
        let blocked =
            self.blocked.iter().map(|b| Told { of: &b.policy, said: None, next: b.next.clone() });
        self.with_next_step(cx, &mut text, "Blocked:", &blocked.collect::<Vec<_>>());
        if !self.blocked.is_empty() && cx.inside_session().is_none() {
            line(
                &mut text,
                &format!("  to be done with one: {}", policy::dismissal(&self.tool, "POLICY")),
            );
        }
        part(
            &mut text,
            paint,
            "Awaiting input:",
            &session::rows(cx, &self.names, &self.asking, "  "),
        );
        self.due_text(cx, &mut text);
        part(&mut text, paint, "Watching:", &policy::rows(cx, &self.names, &self.watching, "  "));
        part(&mut text, paint, "Sessions:", &session::rows(cx, &self.names, &self.sessions, "  "));
        if text.is_empty() {
            line(&mut text, "nothing is going on here");
            line(&mut text, "begin: git agentproto session adopt, or git agentproto commit");
        }
        text
    }

    /// Policies, each with what is said of it and its command.
    fn with_next_step(&self, cx: &Cx, text: &mut String, title: &str, policies: &[Told]) {
        if policies.is_empty() {
            return;
        }
        line(text, &cx.paint.bold(title));
        for Told { of, said, next } in policies {
            text.push_str(&policy::rows(cx, &self.names, std::slice::from_ref(*of), "  "));
            if let Some(said) = said {
                fitted(cx, text, said);
            }
            if let Some(next) = next {
                // Never cut: it is there to be copied.
                line(text, &format!("      {}", shown(next)));
            }
        }
    }

    fn acks_text(&self, cx: &Cx, text: &mut String) {
        let waiting = self.acks.iter().filter(|w| !w.is_past() && !w.is_lost());
        let waiting = waiting.map(|w| {
            let name = self.names.of_policy(&w.policy);
            let next = answer::open_step(cx, &self.tool, &w.policy, &name);
            Told { of: &w.policy, said: w.approvals(), next }
        });
        self.with_next_step(cx, text, "Waiting for your ack:", &waiting.collect::<Vec<_>>());
        self.lost_text(cx, text);
        let past = self.acks.iter().filter(|w| w.is_past());
        let (over, stale): (Vec<&Waiting>, Vec<&Waiting>) =
            past.partition(|w| w.policy.is_expired(clock::now()));
        self.past_text(cx, text, "Waiting for an ack, but stale:", &stale);
        self.past_text(cx, text, "Waiting for an ack, but out of time:", &over);
    }

    /// What no answer helps: a command that performs gates it again, or ends it.
    fn past_text(&self, cx: &Cx, text: &mut String, title: &str, past: &[&Waiting]) {
        if past.is_empty() {
            return;
        }
        line(text, &cx.paint.bold(title));
        for Waiting { policy, stale, .. } in past {
            text.push_str(&policy::rows(cx, &self.names, std::slice::from_ref(policy), "  "));
            if let Some(stale) = stale {
                fitted(cx, text, stale);
            }
            let name = self.names.of_policy(policy);
            line(text, &format!("      {} wait {name}", self.tool));
        }
    }

    fn lost_text(&self, cx: &Cx, text: &mut String) {
        let lost: Vec<&Waiting> = self.acks.iter().filter(|w| w.is_lost()).collect();
        if lost.is_empty() {
            return;
        }
        line(text, &cx.paint.warn("Waiting for an ack that nobody can give:"));
        for Waiting { policy, lost, .. } in lost {
            text.push_str(&policy::rows(cx, &self.names, std::slice::from_ref(policy), "  "));
            let why = lost.as_deref().unwrap_or_default();
            line(text, &format!("      {}", shown(why)));
            line(text, "      get its objects back (git fsck names them), or begin anew:");
            let next = answer::lost_step(cx, &self.tool, &self.names.of_policy(policy));
            line(text, &format!("      {}", shown(&next)));
        }
    }

    fn due_text(&self, cx: &Cx, text: &mut String) {
        if self.due.is_empty() {
            return;
        }
        line(text, &cx.paint.bold("At work:"));
        for Due { policy, served } in &self.due {
            text.push_str(&policy::rows(cx, &self.names, std::slice::from_ref(policy), "  "));
            let who = match served {
                Some(true) => continue,
                Some(false) => "nobody is serving",
                None => "it cannot be told whether somebody is serving",
            };
            let name = self.names.of_policy(policy);
            line(text, &format!("      {who}: run {} wait {}", self.tool, shown(&name)));
        }
    }
}

/// Blocked policies that still need somebody, the newest first.
fn blocked(cx: &Cx, ledger: &Ledger, all: &[Policy]) -> Result<Vec<Blocked>, CliError> {
    let needs = |p: &&Policy| p.status == Status::Blocked && needs_somebody(p, all);
    let mut found: Vec<Policy> = all.iter().filter(needs).cloned().collect();
    found.sort_by(|a, b| (b.since, &b.policy_id).cmp(&(a.since, &a.policy_id)));
    let next = |policy: Policy| {
        let next = answer::next_step(cx, ledger, &policy)?;
        Ok(Blocked { policy, next })
    };
    found.into_iter().map(next).collect()
}

/// Whether a blocked policy still needs somebody: a person neither said to be done with it nor asked for the same
/// again. Age alone answers nothing, and neither does work of another kind in the same session.
fn needs_somebody(blocked: &Policy, all: &[Policy]) -> bool {
    // Two that were attached side by side answer different questions: only what came after the no counts.
    let later: Vec<&Policy> =
        all.iter().filter(|other| other.policy_id.minted() > blocked.since).collect();
    !blocked.dismissed
        && !later.iter().any(|o| asks_the_same(blocked, o))
        && !has_its_files(blocked, &later)
}

/// The same question: its gates in a session of it, or its name there or on its branch.
fn asks_the_same(blocked: &Policy, other: &Policy) -> bool {
    let (one, other) = (&blocked.spec, &other.spec);
    let shares_a_session = one.session_ids.iter().any(|s| other.session_ids.contains(s));
    let same_gates =
        || one.gates.iter().map(Gate::canonical).eq(other.gates.iter().map(Gate::canonical));
    let branch = |spec: &PolicySpec| spec.commit.as_ref().map(|c| c.branch.clone());
    let same_name = || {
        one.label.is_some()
            && one.label == other.label
            && (shares_a_session || (one.then == Then::Commit && branch(one) == branch(other)))
    };
    let asked_again = || one.then == Then::Emit && shares_a_session && same_gates();
    one.then == other.then && (same_name() || asked_again())
}

/// Every file that was to be committed is asked for again, for the same branch.
fn has_its_files(blocked: &Policy, later: &[&Policy]) -> bool {
    let Some(wanted) = &blocked.spec.commit else { return false };
    let on_branch = later.iter().filter_map(|p| p.spec.commit.as_ref());
    let on_branch: Vec<&CommitSpec> = on_branch.filter(|c| c.branch == wanted.branch).collect();
    wanted.paths.iter().all(|path| on_branch.iter().any(|c| c.paths.contains(path)))
}

/// Whether a living process performs something for the policy; `None` when that cannot be told.
fn is_served(ledger: &Ledger, id: &PolicyId) -> Option<bool> {
    let dir = ledger.store().location().agent_dir().join("live");
    if !files::is_there(&dir).ok()? {
        return Some(false);
    }
    let mut served = Some(false);
    for name in files::names(&dir).ok()? {
        if !name.to_string_lossy().contains(id.as_str()) {
            continue;
        }
        let bytes = files::read_own(&dir.join(&name), limits::SMALL_FILE_BYTES).ok()?;
        let Some(bytes) = bytes else { continue };
        let record: live::Record = serde_json::from_slice(&bytes).ok()?;
        for process in std::iter::once(&record.owner).chain(&record.runner) {
            match process::alive(process) {
                Liveness::Alive => return Some(true),
                Liveness::Gone => {}
                Liveness::Unknown => served = None,
            }
        }
    }
    served
}

fn rule_news(ledger: &Ledger) -> RuleNews {
    let rules = ledger.trust().and_then(|trust| Ok(trust.rules(&ledger.repo()?)?));
    match rules {
        Ok(Rules::Accepted { .. }) => RuleNews::Accepted,
        Ok(Rules::NeverAccepted { .. }) => RuleNews::NeverAccepted,
        Ok(Rules::Changed { .. }) => RuleNews::Changed,
        Err(error) if error.code() == Code::NoCommitsYet => RuleNews::NoCommits,
        Err(error) => RuleNews::Unknown(error.to_string()),
    }
}

impl RuleNews {
    fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NeverAccepted => "never-accepted",
            Self::Changed => "changed",
            Self::NoCommits | Self::Unknown(_) => "unknown",
        }
    }

    fn sentence(&self) -> Option<String> {
        match self {
            Self::Accepted => None,
            Self::NeverAccepted => {
                Some("not set up for you yet: run git agentproto init".to_owned())
            }
            Self::Changed => Some(
                "THE RULE FILES CHANGED since you accepted them: look at .agentproto and \
                 agentproto.json, then run git agentproto trust"
                    .to_owned(),
            ),
            Self::NoCommits => Some(
                "there is no commit yet: make the first one with git, then run git agentproto init"
                    .to_owned(),
            ),
            Self::Unknown(why) => {
                Some(format!("whether the rule files changed cannot be told: {}", shown(why)))
            }
        }
    }
}

fn copy_sentence(writer: &WriterId, home: Option<&Path>) -> String {
    match home {
        Some(home) => {
            // What people know is the directory that holds it.
            let dir = home.parent().filter(|_| home.ends_with(".git")).unwrap_or(home);
            let there = shown(&dir.display().to_string());
            let quoted = shown(&shell_words::quote(&dir.display().to_string()));
            format!(
                "this repository is a copy of {there}, where journal {writer} goes on; to look there: \
                 git -C {quoted} agentproto status"
            )
        }
        None => format!(
            "this repository is a copy: journal {writer}, which it brought along, goes on elsewhere"
        ),
    }
}

/// A sentence below a row, cut to the terminal.
fn fitted(cx: &Cx, text: &mut String, words: &str) {
    let words = format!("      {}", shown(words));
    line(text, &cx.columns.map_or_else(|| words.clone(), |columns| cut(&words, columns)));
}

fn part(text: &mut String, paint: Paint, title: &str, rows: &str) {
    if !rows.is_empty() {
        line(text, &paint.bold(title));
        text.push_str(rows);
    }
}
