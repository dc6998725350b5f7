//! What a thing is called on a terminal: its label where that is enough, else its id.

use super::{cx::Cx, error::CliError};
use crate::{domain::event::Entity, ledger::Ledger};

/// Warns when something else of the same kind lives under the label of what was just made.
pub(super) fn warn_of_twins(
    cx: &Cx,
    ledger: &Ledger,
    made: &Entity,
    label: Option<&str>,
) -> Result<(), CliError> {
    let Some(label) = label else { return Ok(()) };
    for twin in ledger.living(label)? {
        if twin.entity != *made && is_session(&twin.entity) == is_session(made) {
            let other = &twin.entity;
            cx.note(&format!(
                "warning: {other} is called '{label}' too ({}): only ids tell them apart",
                twin.state
            ));
        }
    }
    Ok(())
}

fn is_session(entity: &Entity) -> bool {
    match entity {
        Entity::Session(_) => true,
        Entity::Policy(_) => false,
    }
}
