//! Differences between two states of something, as packs hold them (git's `patch-delta.c` reads them).
//!
//! Contract: pure. Time grows with the two lengths, memory stays below a bound, whatever the bytes are. What both begin
//! and end with costs two comparisons; only where more than a few bytes between are new, the base is indexed by
//! its windows and what stands somewhere else in it is copied from there.

/// Bytes that must be equal for a copy from the middle of the base; fewer are hardly worth its instruction.
const WINDOW_BYTES: usize = 8;
/// New bytes that are put down as they are without looking for them anywhere.
const PLAIN_BYTES: usize = 32;
/// Windows of a base that are indexed: of a large one every second, every third, and so on.
const WINDOWS: usize = 64 * 1024;
/// Places looked at for one window, however often it occurs.
const TRIES: usize = 16;
/// The shortest delta git reads: both sizes and one instruction (DELTA_SIZE_MIN).
const DELTA_BYTES_MIN: usize = 4;
/// Below these a copy of the beginning or the end takes as much as the bytes themselves.
const PREFIX_BYTES_MIN: usize = 3;
const SUFFIX_BYTES_MIN: usize = 6;

/// What makes `new` of `base`; none when it takes more than `most` bytes or is too short for git.
pub(in crate::store) fn delta(base: &[u8], new: &[u8], most: usize) -> Option<Vec<u8>> {
    // Places in the base have four bytes.
    u32::try_from(base.len()).ok()?;
    let prefix = Some(common(base, new)).filter(|n| *n >= PREFIX_BYTES_MIN).unwrap_or(0);
    let suffix = common_end(&base[prefix..], &new[prefix..]);
    let suffix = Some(suffix).filter(|n| *n >= SUFFIX_BYTES_MIN).unwrap_or(0);
    let end = new.len() - suffix;
    let mut out = Vec::new();
    put_size(&mut out, base.len());
    put_size(&mut out, new.len());
    put_copy(&mut out, 0, prefix);
    if end - prefix > PLAIN_BYTES {
        put_middle(&mut out, base, &new[..end], prefix, most)?;
    } else {
        put_insert(&mut out, &new[prefix..end]);
    }
    put_copy(&mut out, base.len() - suffix, suffix);
    (DELTA_BYTES_MIN..=most).contains(&out.len()).then_some(out)
}

/// Writes `new` from `begin` on; none when that takes too many bytes.
fn put_middle(out: &mut Vec<u8>, base: &[u8], new: &[u8], begin: usize, most: usize) -> Option<()> {
    let windows = Windows::of(base);
    // Of `new`, everything before `plain` is written; in `base` that ended before `opposite`.
    let (mut at, mut plain, mut opposite) = (begin, begin, begin);
    while at + WINDOW_BYTES <= new.len() {
        if out.len() + (at - plain) > most {
            return None;
        }
        let Some((from, length)) = windows.longest(base, &new[at..], opposite + (at - plain))
        else {
            at += 1;
            continue;
        };
        let back = common_end(&base[..from], &new[plain..at]);
        put_insert(out, &new[plain..at - back]);
        put_copy(out, from - back, length + back);
        at += length;
        (plain, opposite) = (at, from + length);
    }
    put_insert(out, &new[plain..]);
    Some(())
}

/// Where windows of a base are.
struct Windows {
    step: usize,
    /// Number of the first window of each bucket, counted from one.
    first: Vec<u32>,
    /// For each window, the next one of its bucket.
    next: Vec<u32>,
}

impl Windows {
    fn of(base: &[u8]) -> Self {
        let places = (base.len() + 1).saturating_sub(WINDOW_BYTES);
        let step = places.div_ceil(WINDOWS).max(1);
        let count = places.div_ceil(step);
        let mut windows = Self {
            step,
            first: vec![0; (count * 2).next_power_of_two().max(2)],
            next: vec![0; count],
        };
        // From the last to the first: where all are equal, the first one can be followed furthest.
        for at in (0..count).rev() {
            let bucket = base.get(at * step..).and_then(|rest| windows.bucket(rest));
            if let Some((bucket, number)) = bucket.zip(u32::try_from(at + 1).ok()) {
                windows.next[at] = std::mem::replace(&mut windows.first[bucket], number);
            }
        }
        windows
    }

    /// None when no whole window is left.
    fn bucket(&self, bytes: &[u8]) -> Option<usize> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let window = u64::from_le_bytes(*bytes.first_chunk::<WINDOW_BYTES>()?);
        let bits = self.first.len().trailing_zeros();
        usize::try_from(window.wrapping_mul(SPREAD) >> (u64::BITS - bits)).ok()
    }

    /// Where in the base most of what `new` begins with stands, and how many bytes of it. `likely` is looked at first.
    fn longest(&self, base: &[u8], new: &[u8], likely: usize) -> Option<(usize, usize)> {
        let mut number = self.bucket(new).map_or(0, |bucket| self.first[bucket]);
        let chain = std::iter::from_fn(|| {
            let at = usize::try_from(number.checked_sub(1)?).ok()?;
            number = self.next[at];
            Some(at * self.step)
        });
        let mut best = None;
        for from in std::iter::once(likely).chain(chain.take(TRIES)) {
            let length = base.get(from..).map_or(0, |rest| common(rest, new));
            if length >= WINDOW_BYTES && best.is_none_or(|(_, most)| length > most) {
                best = Some((from, length));
            }
        }
        best
    }
}

/// Equal bytes at the beginning.
fn common(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 16;
    let blocks = a.chunks_exact(STEP).zip(b.chunks_exact(STEP));
    let equal = blocks.take_while(|(a, b)| a == b).count() * STEP;
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

/// Equal bytes at the end.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 16;
    let blocks = a.rchunks_exact(STEP).zip(b.rchunks_exact(STEP));
    let equal = blocks.take_while(|(a, b)| a == b).count() * STEP;
    let (a, b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
    equal + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The lowest byte of a number.
fn low(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

fn put_size(out: &mut Vec<u8>, size: usize) {
    let mut rest = size;
    while rest > 0x7f {
        out.push(low(rest) & 0x7f | 0x80);
        rest >>= 7;
    }
    out.push(low(rest));
}

fn put_copy(out: &mut Vec<u8>, from: usize, length: usize) {
    const MOST: usize = 0xffff;
    let (mut from, mut left) = (from, length);
    while left > 0 {
        let part = left.min(MOST);
        let at = out.len();
        out.push(0x80);
        for (bit, byte) in from.to_le_bytes().into_iter().take(4).enumerate() {
            if byte != 0 {
                out[at] |= 1 << bit;
                out.push(byte);
            }
        }
        for (bit, byte) in part.to_le_bytes().into_iter().take(2).enumerate() {
            if byte != 0 {
                out[at] |= 0x10 << bit;
                out.push(byte);
            }
        }
        from += part;
        left -= part;
    }
}

fn put_insert(out: &mut Vec<u8>, data: &[u8]) {
    const MOST: usize = 127;
    for part in data.chunks(MOST) {
        out.push(low(part.len()));
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::oid::{HashKind, Oid},
        store::{
            loose::deflate,
            object::{Kind, Object, hash},
            pack::{self, Built, OFS_DELTA},
            pack_read::{Indexed, applied},
            testlab::TestRepo,
        },
    };
    use proptest::prelude::*;
    use std::{
        collections::HashMap,
        time::{Duration, Instant},
    };

    /// Pieces of a few texts, so that much repeats, and noise between.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let noise = prop::collection::vec(any::<u8>(), 0..40);
        let run = (any::<u8>(), 0..70_000_usize).prop_map(|(byte, n)| vec![byte; n]);
        let text = (0..4_u8, 0..60_usize, 0..200_usize).prop_map(|(which, from, n)| {
            (from..from + n).flat_map(|n| format!("{which}:{n};").into_bytes()).collect()
        });
        let piece = prop_oneof![4 => noise, 1 => run, 8 => text];
        prop::collection::vec(piece, 0..8).prop_map(|pieces: Vec<Vec<u8>>| pieces.concat())
    }

    /// A base and what became of it: some of it moved, some doubled, some new.
    fn states() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let cut = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
        let cuts = prop::collection::vec((cut, pieces()), 0..4);
        (pieces(), cuts, prop_oneof![Just(None), pieces().prop_map(Some)]).prop_map(
            |(base, cuts, other)| {
                let part = |(from, to): (prop::sample::Index, prop::sample::Index)| {
                    let (from, to) = (from.index(base.len() + 1), to.index(base.len() + 1));
                    base[from.min(to)..from.max(to)].to_vec()
                };
                let parts = cuts.into_iter().map(|(cut, new)| [part(cut), new].concat());
                let new = other.unwrap_or_else(|| parts.collect::<Vec<_>>().concat());
                (base, new)
            },
        )
    }

    /// A pack in which each second object is a difference to the first of its pair.
    fn packed(pairs: &[(Object, Object)]) -> Built {
        let (mut out, mut entries) = (pack::begun(), HashMap::new());
        let compressed = |data: &[u8]| deflate(&[data], gix::zlib::Compression::DEFAULT).unwrap();
        for (base, new) in pairs {
            if entries.contains_key(&base.id) || entries.contains_key(&new.id) {
                continue;
            }
            let at = out.len();
            pack::put_header(&mut out, pack::type_of(Kind::Blob), base.data.len());
            out.extend(compressed(&base.data));
            entries.insert(base.id, (at, out.len()));
            let made = delta(&base.data, &new.data, usize::MAX);
            let Some(delta) = made.filter(|_| new.id != base.id) else { continue };
            let from = out.len();
            pack::put_header(&mut out, OFS_DELTA, delta.len());
            pack::put_offset(&mut out, (from - at) as u64);
            out.extend(compressed(&delta));
            entries.insert(new.id, (from, out.len()));
        }
        let indexed = |(id, (from, to)): (Oid, (usize, usize))| Indexed {
            id,
            offset: from as u64,
            crc: crc32fast::hash(&out[from..to]),
        };
        let entries = entries.into_iter().map(indexed).collect();
        pack::finish(pairs[0].0.id.hash(), out.clone(), entries).unwrap()
    }

    proptest! {
        #[test]
        fn what_it_makes_of_the_base_is_the_new_state((base, new) in states()) {
            if let Some(delta) = delta(&base, &new, usize::MAX) {
                prop_assert!(delta.len() >= DELTA_BYTES_MIN);
                prop_assert_eq!(applied(&base, &delta), Some(new));
            }
        }

        #[test]
        fn it_is_never_longer_than_asked((base, new) in states(), most: prop::sample::Index) {
            let free = delta(&base, &new, usize::MAX);
            let most = most.index(free.map_or(0, |d| d.len()) + 2);
            if let Some(bound) = delta(&base, &new, most) {
                prop_assert!(bound.len() <= most);
                prop_assert_eq!(applied(&base, &bound), Some(new));
            }
        }

        /// A state of which the middle moved to the end takes a few instructions.
        #[test]
        fn what_moved_is_copied(seed in any::<[u8; 32]>(), cut in 100..900_usize) {
            let noise = (0..32_u8).flat_map(|n| {
                let mut of = seed.to_vec();
                of.push(n);
                hash(HashKind::Sha256, Kind::Blob, &of).unwrap().as_bytes().to_vec()
            });
            let base: Vec<u8> = noise.collect();
            let new = [&base[cut..], &base[..cut]].concat();
            let delta = delta(&base, &new, usize::MAX).unwrap();
            prop_assert!(delta.len() < 40, "{} bytes", delta.len());
            prop_assert_eq!(applied(&base, &delta), Some(new));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn git_makes_the_same_of_it(states in prop::collection::vec(states(), 1..12)) {
            let repo = TestRepo::new();
            let object = |data: &[u8]| Object::new(repo.hash(), Kind::Blob, data.to_vec()).unwrap();
            let pairs = states.iter().map(|(base, new)| (object(base), object(new)));
            let built = packed(&pairs.collect::<Vec<_>>());
            let path = repo.path().join("given.pack");
            std::fs::write(&path, &built.pack).unwrap();
            repo.git(&["index-pack", "--strict", "given.pack"]);
            let indexed = std::fs::read(path.with_extension("idx")).unwrap();
            prop_assert!(indexed == built.idx, "git makes other objects of it");
        }
    }

    #[test]
    fn nothing_is_shorter_than_git_reads() {
        assert_eq!(delta(b"some tree", b"", usize::MAX), None);
        assert_eq!(delta(b"", b"", usize::MAX), None);
        assert!(delta(b"", b"x", usize::MAX).is_some_and(|d| d == [0, 1, 1, b'x']));
        let same = delta(b"same bytes", b"same bytes", usize::MAX);
        assert_eq!(same, Some(vec![10, 10, 0x90, 10]));
    }

    /// Every window of these bases is equal, or every second one, and matches break off again and again.
    #[test]
    fn hostile_bytes_take_no_longer_than_others() {
        const BYTES: usize = 1024 * 1024;
        let text = |line: &str| line.as_bytes().iter().copied().cycle().take(BYTES).collect();
        let broken = |every: usize| {
            let byte = |n: usize| if n % every == every - 1 { b'b' } else { b'a' };
            (0..BYTES).map(byte).collect::<Vec<u8>>()
        };
        let all: [Vec<u8>; 5] = [text("a"), text("ab"), broken(9), broken(1_000), broken(100_000)];
        let begin = Instant::now();
        for base in &all {
            for new in &all {
                if let Some(delta) = delta(base, new, usize::MAX) {
                    assert!(applied(base, &delta).as_ref() == Some(new));
                }
            }
        }
        // A search that grew with the square would take hours.
        assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    }
}
