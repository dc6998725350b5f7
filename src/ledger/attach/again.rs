//! A policy asked for once more: what was recorded, as if it were typed.

use super::{AttachAsk, CommitAsk, GateAsk, GroupAsk, NextAsk, ShellAsk, TurnsAsk};
use crate::{
    domain::{
        gate::Gate,
        ids::PolicyId,
        input::Covers,
        policy::{Again, CommitSpec, Policy, PolicySpec},
    },
    ledger::{Ledger, LedgerError, Recording},
};
use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt as _};

impl Ledger {
    /// Attaches a new policy that asks for what one asked for that is over, of the same turns. Everything is checked
    /// anew: programs may have moved, rules may have changed.
    ///
    /// # Errors
    /// As [`Ledger::attach`]; the policy is not over.
    pub fn regate(&self, id: &PolicyId) -> Result<(PolicyId, Recording), LedgerError> {
        let old = self.require_policy(id)?;
        let group = GroupAsk {
            members: old.spec.session_ids.clone(),
            gate_session: old.spec.gate_session.clone(),
            covers: Covers::After(old.spec.base),
        };
        self.attach(&group, &AttachAsk::again(&old))
    }
}

impl AttachAsk {
    fn again(old: &Policy) -> Self {
        let again = Again { of: old.policy_id.clone(), after: old.generation };
        Self { again: Some(again), ..Self::from_spec(&old.spec) }
    }

    pub(super) fn from_spec(spec: &PolicySpec) -> Self {
        let commits = spec.commit.is_some();
        let shell = spec.gates.iter().find_map(Gate::shell);
        Self {
            label: spec.label.clone(),
            gates: spec.gates.iter().map(typed).collect(),
            gate_cwd: None,
            gate_timeout_ms: None,
            require_output: shell.and_then(|gate| gate.def.require_output.clone()),
            protect: vec![],
            gate_env: BTreeMap::new(),
            gate_env_clean: shell.is_some_and(|gate| gate.def.env_clean),
            ungated: commits && spec.gates.is_empty(),
            commit: spec.commit.as_ref().map(commit),
            on_stale: Some(spec.on_stale).filter(|_| commits),
            turns: TurnsAsk {
                on_end: spec.on_end,
                on_fail: spec.on_fail.clone(),
                end_session: spec.end_session,
            },
            expires: spec.expires,
            again: None,
            next: spec.next.as_ref().map(|next| {
                Box::new(NextAsk { ask: Self::from_spec(&next.spec), next_turn: next.next_turn })
            }),
        }
    }
}

fn typed(gate: &Gate) -> GateAsk {
    let def = match gate {
        Gate::Scope(gate) => return GateAsk::Scope(gate.scope.clone()),
        Gate::Shell(gate) => &gate.def,
    };
    GateAsk::Shell(ShellAsk {
        argv: def.argv().map(str::to_owned).collect(),
        cwd: Some(OsString::from(def.cwd.clone())),
        timeout_ms: Some(def.timeout_ms),
        protect: def.protect.clone(),
        env: def.env.clone(),
    })
}

fn commit(spec: &CommitSpec) -> CommitAsk {
    CommitAsk {
        paths: spec.paths.iter().map(|p| OsString::from_vec(p.as_bytes().to_vec())).collect(),
        from_top: true,
        message: spec.message.clone().into_bytes(),
        no_ack: !spec.require_human_ack,
        allow_markers: spec.allow_markers,
        // A directory was expanded then.
        recursive: false,
        force_ignored: spec.force_ignored,
        allow_submodule: spec.allow_submodule,
        detached_ok: spec.detached_ok,
    }
}
