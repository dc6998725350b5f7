//! `status [ID]`: what needs a person first, then the rest.
//!
//! Contract: only looks. What cannot be told is said to be unknown; it is never left out as if it were fine.

use super::{
    answer,
    cx::Cx,
    error::CliError,
    policy, session,
    text::{Paint, cut, line, shown},
};
use crate::{
    code::exit,
    domain::{
        event::Entity,
        policy::{Policy, Status},
        session::Session,
        time::Timestamp,
    },
    ledger::Ledger,
    limits,
    runtime::perform::is_due,
    store::trusted::Rules,
    sys::clock,
};
use serde_json::{Value, json};

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
    blocked: Vec<Policy>,
    asking: Vec<Session>,
    due: Vec<Policy>,
    watching: Vec<Policy>,
    sessions: Vec<Session>,
    rules: RuleNews,
}

/// A policy that waits for an ack.
struct Waiting {
    policy: Policy,
    /// Why its candidate can not land any more, when that is so.
    stale: Option<String>,
}

/// What became of the rule files since a person accepted them.
enum RuleNews {
    Accepted,
    NeverAccepted,
    Changed,
    Unknown(String),
}

pub(super) fn run(cx: &Cx, args: StatusArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    match args.id.map(|id| ledger.find(&id)).transpose()? {
        Some(Entity::Policy(id)) => policy::show(cx, &ledger, &id),
        Some(Entity::Session(id)) => session::show(cx, &ledger, &id),
        Some(Entity::Journal) | None => {
            let overview = Overview::load(&ledger, clock::now())?;
            cx.answer(&overview.to_json(cx), &overview.to_text(cx))?;
            Ok(exit::DONE)
        }
    }
}

impl Overview {
    fn load(ledger: &Ledger, now: Timestamp) -> Result<Self, CliError> {
        let all = ledger.policies(true)?;
        let blocked = blocked(&all, now);
        let mut overview = Self {
            acks: vec![],
            blocked,
            asking: vec![],
            due: vec![],
            watching: vec![],
            sessions: vec![],
            rules: rule_news(ledger),
        };
        for policy in all {
            match policy.status {
                Status::AwaitingAck => {
                    let stale = stale(ledger, &policy)?;
                    overview.acks.push(Waiting { policy, stale });
                }
                Status::Gating | Status::Committing if is_due(&policy) => overview.due.push(policy),
                Status::Watching | Status::Gating | Status::Committing => {
                    overview.watching.push(policy);
                }
                Status::Done | Status::Blocked | Status::Cancelled => {}
            }
        }
        let sessions = ledger.sessions(false)?;
        let (asking, sessions) = sessions.into_iter().partition(|s| !s.open_requests.is_empty());
        Ok(Self { asking, sessions, ..overview })
    }

    fn to_json(&self, cx: &Cx) -> Value {
        let acks = self.acks.iter().map(|w| {
            let mut short = answer::policy_short(cx, &w.policy);
            short["stale"] = w.stale.as_deref().into();
            short
        });
        let short = |policies: &[Policy]| -> Value {
            policies.iter().map(|p| answer::policy_short(cx, p)).collect()
        };
        let sessions =
            |all: &[Session]| -> Value { all.iter().map(answer::session_short).collect() };
        json!({
            "schema": "agentproto/status/1",
            "acks": acks.collect::<Value>(),
            "blocked": short(&self.blocked),
            "awaitingInput": sessions(&self.asking),
            "due": short(&self.due),
            "watching": short(&self.watching),
            "sessions": sessions(&self.sessions),
            "rules": self.rules.word(),
        })
    }

    fn to_text(&self, cx: &Cx) -> String {
        let mut text = String::new();
        let paint = cx.paint;
        if let Some(news) = self.rules.sentence() {
            line(&mut text, &paint.warn(&news));
        }
        self.acks_text(cx, &mut text);
        let blocked: Vec<&Policy> = self.blocked.iter().collect();
        with_next_step(cx, &mut text, "Blocked:", &blocked);
        part(&mut text, paint, "Awaiting input:", &session::rows(cx, &self.asking, "  "));
        self.due_text(cx, &mut text);
        part(&mut text, paint, "Watching:", &policy::rows(cx, &self.watching, "  "));
        part(&mut text, paint, "Sessions:", &session::rows(cx, &self.sessions, "  "));
        if text.is_empty() {
            line(&mut text, "nothing is going on here");
            line(&mut text, "begin: git agentproto session adopt, or git agentproto commit");
        }
        text
    }

    fn acks_text(&self, cx: &Cx, text: &mut String) {
        let waiting: Vec<&Policy> =
            self.acks.iter().filter(|w| w.stale.is_none()).map(|w| &w.policy).collect();
        with_next_step(cx, text, "Waiting for your ack:", &waiting);
        let stale: Vec<&Waiting> = self.acks.iter().filter(|w| w.stale.is_some()).collect();
        if stale.is_empty() {
            return;
        }
        line(text, &cx.paint.bold("Waiting for an ack, but stale:"));
        for Waiting { policy, stale } in stale {
            text.push_str(&policy::rows(cx, std::slice::from_ref(policy), "  "));
            let why = stale.as_deref().unwrap_or_default();
            let next = format!("git agentproto policy cancel {}", policy.policy_id);
            fitted(cx, text, &format!("{why}; end it: {next}, then attach again"));
        }
    }

    fn due_text(&self, cx: &Cx, text: &mut String) {
        part(text, cx.paint, "At work:", &policy::rows(cx, &self.due, "  "));
        if let Some(first) = self.due.first() {
            let id = &first.policy_id;
            line(text, &format!("  if nobody is serving: git agentproto wait {id}"));
        }
    }
}

/// Blocked policies that still need somebody: not too old, and nothing newer watches the same sessions.
fn blocked(all: &[Policy], now: Timestamp) -> Vec<Policy> {
    let keep_ms = i64::try_from(limits::STATUS_BLOCKED_MS).unwrap_or(i64::MAX);
    let newer = |policy: &Policy| {
        all.iter().any(|other| {
            other.policy_id > policy.policy_id
                && other.spec.session_ids.iter().any(|s| policy.spec.session_ids.contains(s))
        })
    };
    let mut found: Vec<Policy> = all
        .iter()
        .filter(|p| p.status == Status::Blocked && p.since.plus_ms(keep_ms) > now && !newer(p))
        .cloned()
        .collect();
    found.sort_by(|a, b| (b.since, &b.policy_id).cmp(&(a.since, &a.policy_id)));
    found
}

/// Why a candidate can not land any more.
fn stale(ledger: &Ledger, policy: &Policy) -> Result<Option<String>, CliError> {
    let (Some(commit), Some(candidate)) = (&policy.spec.commit, &policy.candidate) else {
        return Ok(None);
    };
    let tip = ledger.store().reference(&commit.branch).map_err(crate::ledger::LedgerError::from)?;
    Ok(match tip {
        Some(tip) if tip == candidate.parent => None,
        Some(tip) => Some(format!("{} moved to {tip}", commit.branch)),
        None => Some(format!("{} is gone", commit.branch)),
    })
}

fn rule_news(ledger: &Ledger) -> RuleNews {
    let rules = ledger.trust().and_then(|trust| Ok(trust.rules(&ledger.repo()?)?));
    match rules {
        Ok(Rules::Accepted { .. }) => RuleNews::Accepted,
        Ok(Rules::NeverAccepted { .. }) => RuleNews::NeverAccepted,
        Ok(Rules::Changed { .. }) => RuleNews::Changed,
        Err(error) => RuleNews::Unknown(error.to_string()),
    }
}

impl RuleNews {
    fn word(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NeverAccepted => "never-accepted",
            Self::Changed => "changed",
            Self::Unknown(_) => "unknown",
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
            Self::Unknown(why) => Some(format!("the rule files cannot be told: {}", shown(why))),
        }
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

/// Policies, each with the exact command that answers it.
fn with_next_step(cx: &Cx, text: &mut String, title: &str, policies: &[&Policy]) {
    if policies.is_empty() {
        return;
    }
    line(text, &cx.paint.bold(title));
    for one in policies {
        text.push_str(&policy::rows(cx, std::slice::from_ref(*one), "  "));
        if let Some(next) = answer::next_step(cx, one) {
            // Never cut: it is there to be copied.
            line(text, &format!("      {}", shown(&next)));
        }
    }
}
