//! What makes an answer doubtful that was read all the same: a journal that was set back or is gone, a damaged log.
//!
//! Contract: only looks, and fails nobody: reading goes on with what is here. What cannot be told is said, too. `verify`
//! and `fsck` judge; this is for those who would else show less than was recorded as if it were all.

use super::cx::Cx;
use crate::{
    ledger::Ledger,
    store::{End, Store, StoreError},
};
use serde_json::{Value, json};

/// One reason for doubt.
pub(super) struct Doubt {
    kind: &'static str,
    text: String,
}

/// Looks for reasons for doubt, and says them on stderr.
pub(super) fn say(cx: &Cx, ledger: &Ledger) -> Vec<Doubt> {
    let store = ledger.store();
    let mut doubts = Vec::new();
    for look in [end, gone, log, others] {
        match look(store) {
            Ok(found) => doubts.extend(found),
            Err(e) => doubts.push(Doubt {
                kind: "not-told",
                text: format!("whether everything is here cannot be told: {e}"),
            }),
        }
    }
    doubts.iter().for_each(|doubt| cx.warn(format!("warning: {}", doubt.text)));
    doubts
}

/// Puts the doubts into an answer; one without any says nothing of them.
pub(super) fn tell(answer: &mut Value, doubts: &[Doubt]) {
    if !doubts.is_empty() {
        let all = doubts.iter().map(|d| json!({ "kind": d.kind, "path": null, "text": d.text }));
        answer["notices"] = all.collect();
    }
}

fn end(store: &Store) -> Result<Vec<Doubt>, StoreError> {
    Ok(match store.end()? {
        End::Held => vec![],
        End::Lost(seen) => {
            let text = format!(
                "the journal was set back: event {} ({}), noted as its last one, is not in it; what is shown is less than \
                 what was recorded: see git agentproto fsck",
                seen.seq, seen.id
            );
            vec![Doubt { kind: "journal-set-back", text }]
        }
        End::Untold(note) => {
            let text = format!("{note}: whether the journal was set back cannot be told");
            vec![Doubt { kind: "not-told", text }]
        }
    })
}

fn gone(store: &Store) -> Result<Vec<Doubt>, StoreError> {
    let doubt = |gone: crate::store::Gone| Doubt {
        kind: "journal-gone",
        text: format!("journal {} is gone: {}", gone.writer, gone.witness),
    };
    Ok(store.gone_journals()?.into_iter().map(doubt).collect())
}

fn log(store: &Store) -> Result<Vec<Doubt>, StoreError> {
    let doubt = |why| Doubt {
        kind: "log-damaged",
        text: format!(
            "the write-ahead log cannot be used ({why}): what is shown is what the refs show, which may be less than what \
             was recorded: see git agentproto fsck"
        ),
    };
    Ok(store.log_damage()?.map(doubt).into_iter().collect())
}

/// Journals whose end cannot be read.
fn others(store: &Store) -> Result<Vec<Doubt>, StoreError> {
    let doubt = |journal: &crate::store::reading::Unreadable| Doubt {
        kind: "journal-unreadable",
        text: format!("journal {} cannot be read: {}", journal.name, journal.why),
    };
    Ok(store.journals()?.unreadable.iter().map(doubt).collect())
}
