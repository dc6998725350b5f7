//! Putting things right one by one: each keeps what was there, and does nothing the second time.

use super::{
    segments::{EVENTS, grow, small},
    *,
};
use crate::store::checks::SideFile;
use std::{fs, path::Path};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).map(|found| found.map(|e| e.unwrap().file_name()));
    let mut names: Vec<String> =
        entries.into_iter().flatten().map(|n| n.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_that_hold_something_else_are_kept_and_told_anew() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    store.checkpoint().unwrap();
    let (writer, packs) = (store.writer().unwrap(), fs::read(store.agent.join("packs")).unwrap());
    assert!(store.damaged_side_files().unwrap().is_empty());
    for (file, data) in [
        (SideFile::Writer, &b""[..]),
        (SideFile::Recovered, b"{"),
        (SideFile::Packs, &[&packs[..], b"../../config\n"].concat()),
        (SideFile::Kept, b"\xff\n"),
        (SideFile::Dropped, b"refs/heads/main\n"),
    ] {
        fs::write(store.agent.join(file.file_name()), data).unwrap();
        let store = open(&repo);
        assert_eq!(store.damaged_side_files().unwrap(), [file]);
        assert!(store.mend_side_file(file).unwrap());
        assert!(!store.mend_side_file(file).unwrap(), "once");
        assert!(store.damaged_side_files().unwrap().is_empty());
        let kept = store.agent.join("damaged").join(format!("{}.1", file.file_name()));
        assert_eq!(fs::read(kept).unwrap(), data);
        let anew = store.agent.join(file.file_name()).exists();
        assert_eq!(anew, !matches!(file, SideFile::Recovered | SideFile::Dropped), "{file:?}");
        assert_eq!(store.writer().unwrap(), writer);
    }
    assert_eq!(fs::read(store.agent.join("packs")).unwrap(), packs);
}

#[test]
fn a_log_of_another_journal_makes_no_refs_here_and_can_be_put_aside() {
    let (repo, other) = (TestRepo::new(), TestRepo::new());
    for repo in [&repo, &other] {
        append(&open(repo), "a");
    }
    let agent = |repo: &TestRepo| repo.path().join(".git").join(AGENT_DIR);
    fs::copy(agent(&other).join("wal"), agent(&repo).join("wal")).unwrap();
    let store = open(&repo);
    let why = store.log_damage().unwrap().unwrap();
    assert!(why.contains("it is the log of journal "), "{why}");
    assert_eq!(store.fsck_wal().unwrap_err().code(), Code::JournalCorrupt);
    store.put_log_aside().unwrap().unwrap();
    assert_eq!(names(&agent(&repo).join("damaged")), ["wal.1"]);
    append(&store, "b");
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"]);
    assert_eq!(refs, own_ref(&store));
    assert_eq!(seqs(&repo, &refs), [2, 1]);
    repo.fsck();
}

#[test]
fn an_index_that_lies_is_found_and_made_anew() {
    let repo = TestRepo::new();
    let store = small(&repo);
    grow(&store, EVENTS + 3);
    let tip = store.own_tip().unwrap().unwrap();
    assert_eq!(store.index_damage(&tip).unwrap(), None);
    let file = store.agent.join("seek").join(tip.writer.as_str());
    let good = fs::read(&file).unwrap();
    let mut forged = good.clone();
    let width = tip.id.as_bytes().len();
    forged[32 + width..32 + 2 * width].copy_from_slice(tip.id.as_bytes());
    fs::write(&file, &forged).unwrap();
    let what = store.index_damage(&tip).unwrap().unwrap();
    assert!(what.starts_with(&format!("it says {} for event 2, ", tip.id)), "{what}");
    assert_eq!(fs::read(&file).unwrap(), forged, "looking changes nothing");
    store.rebuild_index(&tip).unwrap();
    assert_eq!(fs::read(&file).unwrap(), good);
    forged[0] ^= 1;
    fs::write(&file, &forged).unwrap();
    assert!(store.index_damage(&tip).unwrap().unwrap().starts_with("its head is not "));
    fs::remove_file(&file).unwrap();
    assert_eq!(store.index_damage(&tip).unwrap(), None, "a cache may be missing");
}

#[test]
fn notes_that_cannot_be_read_are_kept_and_begun_anew() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let target = store.reference("refs/heads/main").unwrap().unwrap();
    let note = |text: &'static str| {
        let edit = move |_: Option<&[u8]>| Some(text.as_bytes().to_vec());
        store.edit_note(&who(), NOTES_ACKS, &target, edit).unwrap();
    };
    note("one\n");
    assert_eq!(store.set_notes_aside(&who(), NOTES_ACKS).unwrap(), None);
    let tip = store.reference(NOTES_ACKS).unwrap().unwrap();
    // A tree that names a note which is nowhere: what else is in it stays alive.
    let absent = object::Object::new(store.hash(), object::Kind::Blob, b"absent".to_vec()).unwrap();
    let line = format!("100644 blob {}\t{target}\n", absent.id);
    let tree = repo.git_fed(&["mktree", "--missing"], &line);
    let parent = tip.to_string();
    let broken = repo.git(&["commit-tree", "-m", "x", "-p", &parent, tree.trim()]);
    repo.git(&["update-ref", NOTES_ACKS, &broken]);
    let what = store.notes_damage(NOTES_ACKS).unwrap().unwrap();
    assert!(what.contains(&absent.id.to_string()), "{what}");
    let kept = store.set_notes_aside(&who(), NOTES_ACKS).unwrap().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), format!("{broken}\n"));
    let aside = store.reference("refs/notes/agentproto/damaged/acks.1").unwrap();
    assert_eq!(aside.map(|id| id.to_string()).as_deref(), Some(broken.as_str()));
    assert_eq!(store.notes_damage(NOTES_ACKS).unwrap(), None);
    note("two\n");
    assert_eq!(store.note(NOTES_ACKS, &target).unwrap().as_deref(), Some(&b"two\n"[..]));
}

#[test]
fn only_files_of_ours_are_put_aside() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let foreign = repo.path().join(".git/config");
    assert_eq!(store.put_file_aside(&foreign).unwrap(), None);
    assert!(foreign.exists());
    let ours = store.agent.join("tmp/odd");
    fs::write(&ours, "x").unwrap();
    let kept = store.put_file_aside(&ours).unwrap().unwrap();
    assert_eq!((fs::read(kept).unwrap().as_slice(), ours.exists()), (&b"x"[..], false));
    assert_eq!(store.put_file_aside(&ours).unwrap(), None);
}

#[test]
fn refs_that_are_nobodys_are_told() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    assert_eq!(store.odd_refs().unwrap(), []);
    for name in ["refs/agentproto/mine", "refs/agentproto/journal/x/0001"] {
        repo.git(&["update-ref", name, "HEAD"]);
    }
    let odd: Vec<String> = store.odd_refs().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(odd, ["refs/agentproto/journal/x/0001", "refs/agentproto/mine"]);
}
