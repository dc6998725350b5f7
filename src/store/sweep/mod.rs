//! Crash sweeps, error sweeps and power cuts under everything the store does.
//!
//! Contract: a scenario runs on a copy of a prepared repository and is ended at a chosen call of the file
//! system; then somebody else opens what is left and goes on working. What must hold is judged from what the
//! scenario was answered (`Said`), never from what the store believes: entries that were acknowledged are there,
//! those that were refused are not, a batch is there as a whole or not at all, each once and in order; notes
//! of everybody are whole; git finds nothing wrong; nothing temporary is left.
//!
//! `AGENTPROTO_FLOOR=long` visits every call with every ending, otherwise a sample is drawn
//! (`AGENTPROTO_SEED`).

mod crash;
mod judge;
mod landing;
mod power;
mod scenes;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// What a sweep went through and found.
#[derive(Debug, Default)]
struct Totals {
    states: usize,
    digests: usize,
    differences: Vec<String>,
    by_scene: BTreeMap<String, usize>,
}

impl Totals {
    fn visited(&mut self, scene: &str) {
        self.states += 1;
        *self.by_scene.entry(scene.to_owned()).or_default() += 1;
    }

    fn report(&self, suite: &str, floor: usize) {
        println!(
            "{suite}: seed {}, {} states, {} judged by git, {} differences, {:?}",
            seed(),
            self.states,
            self.digests,
            self.differences.len(),
            self.by_scene
        );
        for difference in self.differences.iter().take(20) {
            println!("  {difference}");
        }
        assert_eq!(self.differences.len(), 0, "see above");
        assert!(self.states >= floor, "{} states are fewer than {floor}", self.states);
    }
}

/// True when everything is to be visited.
pub(in crate::store) fn is_long() -> bool {
    std::env::var("AGENTPROTO_FLOOR").is_ok_and(|floor| floor == "long")
}

pub(in crate::store) fn seed() -> u64 {
    std::env::var("AGENTPROTO_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// The first `most` of these in an order drawn by the seed, every kind in turn; all of them in a long run.
fn sample<T, K: Eq + Hash>(
    mut all: Vec<T>,
    most: usize,
    salt: u64,
    kind: impl Fn(&T) -> K,
) -> Vec<T> {
    if is_long() {
        return all;
    }
    let mut chance = crate::sys::fault::disk::Chance::new(seed().wrapping_add(salt));
    for at in (1..all.len()).rev() {
        all.swap(at, chance.below(at + 1));
    }
    let mut met: HashMap<K, usize> = HashMap::new();
    let mut turn = |one: &T| {
        let count = met.entry(kind(one)).or_default();
        *count += 1;
        *count
    };
    let mut turns: Vec<(usize, T)> = all.into_iter().map(|one| (turn(&one), one)).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, one)| one).take(most).collect()
}
