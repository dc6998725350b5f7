//! Which packs a multi-pack index of git's covers: those are not ours to remove.
//!
//! Contract: an index that cannot be read may cover any pack: that is an answer of its own.

use crate::store::error::StoreError;
use crate::{limits, sys::files};
use std::{collections::HashSet, path::Path};

const HEADER_BYTES: usize = 12;
const ROW_BYTES: usize = 12;

/// Names (`pack-<hex>`) in the multi-pack indices of a pack directory; none when one of them cannot be read.
pub(in crate::store) fn packs_named_in(dir: &Path) -> Result<Option<HashSet<String>>, StoreError> {
    let chain = dir.join("multi-pack-index.d");
    let mut paths = vec![dir.join("multi-pack-index")];
    let links = files::names(&chain)?.into_iter().map(|name| chain.join(name));
    paths.extend(links.filter(|path| path.extension().is_some_and(|e| e == "midx")));
    let mut names = HashSet::new();
    for path in paths {
        let Some(found) = files::look_through(&path)? else { continue };
        if found.len() > limits::MIDX_BYTES {
            return Ok(None);
        }
        let Some(data) = files::read_optional(&path, limits::MIDX_BYTES)? else { continue };
        let Some(packs) = packs_in(&data) else { return Ok(None) };
        names.extend(packs);
    }
    Ok(Some(names))
}

/// The chunk with the names lies between its row of the table and the next one.
fn packs_in(data: &[u8]) -> Option<Vec<String>> {
    let rows = usize::from(*data.strip_prefix(b"MIDX")?.get(2)?);
    let row = |at: usize| {
        let from = HEADER_BYTES + at * ROW_BYTES;
        let (id, offset) = data.get(from..from + ROW_BYTES)?.split_at(4);
        Some((id, usize::try_from(u64::from_be_bytes(offset.try_into().ok()?)).ok()?))
    };
    let at = (0..rows).find(|at| row(*at).is_some_and(|(id, _)| id == b"PNAM"))?;
    let names = data.get(row(at)?.1..row(at + 1)?.1)?;
    let names = names.split(|b| *b == 0).filter(|name| !name.is_empty());
    names.map(|n| Some(std::str::from_utf8(n).ok()?.trim_end_matches(".idx").to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testlab::TestRepo;

    #[test]
    fn what_git_indexed_is_named_and_what_cannot_be_read_is_no_answer() {
        let repo = TestRepo::new();
        let dir = repo.path().join(".git/objects/pack");
        assert_eq!(packs_named_in(&dir).unwrap(), Some(HashSet::new()));
        repo.git(&["repack", "-q"]);
        repo.commit("second");
        repo.git(&["repack", "-q"]);
        repo.git(&["multi-pack-index", "write"]);
        let named = packs_named_in(&dir).unwrap().unwrap();
        let there = files::names(&dir)
            .unwrap()
            .into_iter()
            .filter_map(|n| Some(n.to_str()?.strip_suffix(".pack")?.to_owned()));
        assert_eq!((named.len(), named), (2, there.collect()));
        let path = dir.join("multi-pack-index");
        let data = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for damaged in [&b""[..], b"MIDX", &data[..30], &data[4..]] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(packs_named_in(&dir).unwrap(), None);
        }
    }
}
