//! Commits and journals as the tool makes them, and as somebody would make them who wants to deceive it.

mod lab;

use super::{
    Outcome,
    fsck::fsck,
    verify::{VerifyAsk, verify},
};
use crate::{
    code::Code,
    domain::{
        ack::{AckStatement, Decision},
        input::Input,
    },
    engine::ENGINE,
    ledger::Ledger,
    store::NOTES_ACKS,
};
use lab::{ADA, Lab, Odd};

#[test]
fn a_governed_commit_is_shown_with_its_evidence() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    let report = lab.verify("HEAD~1..HEAD");
    assert_eq!((report.exit, report.ok), (0, true), "{report:?}");
    assert_eq!(report.completeness, "internally consistent, completeness not provable");
    let found = &report.commits[0];
    assert_eq!((found.sha, found.outcome), (asked.candidate.commit, Outcome::Governed));
    assert_eq!(found.policy.as_ref(), Some(&asked.id));
    assert_eq!(found.signer.as_deref(), Some(ADA));
    assert_eq!((found.isolation.as_deref(), found.unlisted_changes), (Some("none"), Some(2)));
    assert_eq!((found.evidence.len(), found.evidence[2]), (5, asked.request));
    assert_eq!(found.reason, None);
    let journal = &report.journals[0];
    assert_eq!((journal.ok, journal.events, journal.problem.as_ref()), (true, 8, None));
}

#[test]
fn what_asks_for_less_is_called_less() {
    let lab = Lab::new();
    let nobody = "its gates were green, and nobody was asked to approve it";
    let none = "its policy has no gates";
    for (file, odd, (outcome, why)) in [
        ("a", Odd { no_ack: true, ..Odd::default() }, (Outcome::Gated, nobody)),
        ("b", Odd { no_ack: true, ungated: true, ..Odd::default() }, (Outcome::Ungated, none)),
        ("c", Odd { ungated: true, ..Odd::default() }, (Outcome::Ungated, none)),
    ] {
        let asked = lab.ask(file, odd);
        if !odd.no_ack {
            lab.approve(&asked);
        }
        lab.land(&asked);
        let report = lab.verify("HEAD~1..HEAD");
        assert_eq!((report.commits[0].outcome, report.exit), (outcome, 1), "{report:?}");
        assert_eq!(report.commits[0].reason.as_deref(), Some(why));
    }
}

#[test]
fn a_commit_by_hand_is_ungoverned_and_copied_notes_do_not_change_that() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    lab.home.commit("b", "by hand");
    assert_eq!(lab.verdict("HEAD~1..HEAD"), "ungoverned: no journal names it");
    let line = lab.sign(lab.statement(&asked)).encode();
    let name = NOTES_ACKS.strip_prefix("refs/notes/").unwrap();
    lab.git(&["notes", "--ref", name, "add", "-m", &line, "HEAD"]);
    assert_eq!(lab.verdict("HEAD~1..HEAD"), "ungoverned: no journal names it");
    assert_eq!(lab.verify("HEAD~1..HEAD").exit, 1);
    assert_eq!(lab.verify("HEAD~2..HEAD~1").exit, 0);
}

#[test]
fn an_amended_commit_is_another_commit() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    let old = lab.rev("HEAD");
    lab.git(&["commit", "-q", "--amend", "-m", "reworded"]);
    let id = asked.id;
    let why = format!("no journal names it; {id} was for {old}, which has the same content");
    assert_eq!(lab.verdict("HEAD~1..HEAD"), format!("ungoverned: {why}"));
}

#[test]
fn an_empty_commit_is_not_taken_for_a_rewritten_one() {
    let lab = Lab::new();
    lab.governed("a");
    lab.git(&["commit", "-q", "--allow-empty", "-m", "empty"]);
    assert_eq!(lab.verdict("HEAD~1..HEAD"), "ungoverned: no journal names it");
}

#[test]
fn without_a_journal_nothing_can_be_told() {
    let lab = Lab::new();
    lab.home.commit("b", "2");
    let why = "unknown: there is no journal in this clone: its records were not fetched";
    assert_eq!(lab.verdict("HEAD~1..HEAD"), why);
    assert_eq!(lab.verdict(""), why);
    assert_eq!(lab.verify("").exit, 2);
}

#[test]
fn a_landing_that_crashed_before_its_event_is_still_governed() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd::default());
    lab.approve(&asked);
    lab.move_branch(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "governed: it landed, and its policy:committed is not recorded yet");
    assert_eq!(lab.verify("HEAD~1..HEAD").exit, 0);
}

#[test]
fn a_candidate_on_the_branch_without_an_approval_is_not_governed() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd::default());
    lab.move_branch(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: nobody approved it, its policy is awaiting-ack");
    lab.refuse(&asked, "bad bytes");
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "forged: the only ack was turned down: bad bytes");
    let mut said = lab.statement(&asked);
    said.decision = Decision::Reject;
    lab.consume(&asked, &lab.sign(said));
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: its policy is cancelled (rejected), it must not land");
}

#[test]
fn a_file_nobody_listed_is_seen() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd { sneaky: true, ..Odd::default() });
    lab.approve(&asked);
    lab.land(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: it changes sneaky, which is not listed");
}

#[test]
fn a_gate_that_ran_on_another_tree_proves_nothing() {
    let lab = Lab::new();
    let other = lab.rev("HEAD^{tree}");
    let asked = lab.ask("a", Odd { gated_tree: Some(other), ..Odd::default() });
    lab.approve(&asked);
    lab.land(&asked);
    let tree = asked.candidate.tree;
    let said = format!("ungoverned: gate 0: it ran on {other}, the commit holds {tree}");
    assert_eq!(lab.verdict("HEAD~1..HEAD"), said);
}

#[test]
fn every_field_of_the_line_binds() {
    type Change = fn(&mut crate::domain::ack::AckStatement);
    let cases: [(Change, &str); 11] = [
        (|s| s.repo = "1".repeat(40), "orphan"),
        (|s| s.policy = "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap(), "orphan"),
        (|s| s.request = s.candidate, "orphan"),
        (|s| s.candidate = s.parent, "stale"),
        (|s| s.parent = s.candidate, "stale"),
        (|s| s.tree = s.candidate, "stale"),
        (|s| s.branch = "refs/heads/other".into(), "stale"),
        (|s| s.gates = "ab".repeat(32), "stale"),
        (|s| s.signer = "eve@example.invalid".into(), "unauthorized"),
        (|s| s.expires = s.issued.plus_ms(-1), "expired"),
        (|s| s.issued = s.issued.plus_ms(3_600_000), "expired"),
    ];
    let lab = Lab::new();
    for (at, (change, outcome)) in cases.into_iter().enumerate() {
        let asked = lab.ask(&format!("f{at}"), Odd::default());
        let mut said = lab.statement(&asked);
        change(&mut said);
        lab.consume(&asked, &lab.sign(said));
        lab.land(&asked);
        let report = lab.verify("HEAD~1..HEAD");
        let found = &report.commits[0];
        assert_eq!(found.outcome.as_str(), outcome, "{at}: {found:?}");
        assert_eq!((report.exit, report.journals[0].ok), (1, true), "{at}");
    }
}

#[test]
fn a_signature_that_does_not_fit_is_forged_and_garbage_is_malformed() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd::default());
    let mut line = lab.sign(lab.statement(&asked));
    line.statement.reason = "another".into();
    lab.consume(&asked, &line);
    lab.land(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "forged: the signature does not fit what it signs");
    let asked = lab.ask("b", Odd::default());
    let mut line = lab.sign(lab.statement(&asked));
    line.sig = "not base64".into();
    lab.consume(&asked, &line);
    lab.land(&asked);
    assert!(lab.verdict("HEAD~1..HEAD").starts_with("malformed: "));
}

#[test]
fn a_line_consumed_twice_is_replayed() {
    let lab = Lab::new();
    let first = lab.ask("a", Odd::default());
    let line = lab.sign(lab.statement(&first));
    lab.consume(&first, &line);
    lab.land(&first);
    let second = lab.ask("b", Odd::default());
    lab.consume(&second, &line);
    lab.land(&second);
    assert_eq!(lab.verdict("HEAD~1..HEAD"), "replayed: its line was consumed before");
    assert_eq!(lab.verify("HEAD~2..HEAD~1").exit, 0);
}

#[test]
fn the_signers_of_today_decide_and_without_any_nothing_is_told() {
    let lab = Lab::new();
    lab.governed("a");
    let other = lab.home.ssh_key("other", &["-t", "ed25519", "-N", ""]);
    lab.allow(&format!("{ADA} {}\n", lab.home.words(&other)));
    assert!(lab.verdict("HEAD~1..HEAD").starts_with("unauthorized: "));
    lab.allow("not a signer\n");
    let report = lab.verify("HEAD~1..HEAD");
    assert_eq!((report.commits[0].outcome, report.exit), (Outcome::Unknown, 2));
}

#[test]
fn a_branch_means_its_commits_since_governance_began() {
    let lab = Lab::new();
    lab.home.commit("before", "1");
    lab.governed("a");
    lab.home.commit("hand", "1");
    lab.governed("b");
    for revisions in ["", "main", "HEAD"] {
        let report = lab.verify(revisions);
        let outcomes: Vec<_> = report.commits.iter().map(|c| c.outcome).collect();
        let expected = [Outcome::Governed, Outcome::Ungoverned, Outcome::Governed];
        assert_eq!(outcomes, expected, "{revisions}");
    }
    // Older than that: who names a commit asks about it.
    let report = lab.verify("HEAD~3");
    assert_eq!((report.commits.len(), report.exit), (1, 1), "{report:?}");
    assert_eq!(report.commits[0].outcome, Outcome::Ungoverned);
    lab.git(&["checkout", "-q", "HEAD~3"]);
    let report = lab.verify("");
    assert_eq!((report.commits.len(), report.exit), (0, 0), "nothing since then");
}

#[test]
fn a_range_lists_what_git_lists() {
    let lab = Lab::new();
    lab.governed("a");
    lab.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    lab.home.commit("s1", "1");
    lab.home.commit("s2", "1");
    lab.git(&["checkout", "-q", "main"]);
    lab.git(&["merge", "-q", "--no-edit", "side"]);
    lab.home.commit("after", "1");
    for range in ["HEAD~2..HEAD", "side..main", "main~1...side~1", "HEAD^@", "HEAD^!", "..side"] {
        let expected = lab.git(&["log", "--format=%H", range]);
        let mut listed: Vec<String> =
            lab.verify(range).commits.iter().map(|c| c.sha.to_string()).collect();
        let mut expected: Vec<&str> = expected.lines().collect();
        // Commits of one second have no order of their own.
        listed.sort();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{range}");
    }
    let empty = lab.verify("HEAD..HEAD");
    assert_eq!((empty.commits.len(), empty.exit, empty.ok), (0, 0, true));
}

#[test]
fn an_unknown_revision_is_named() {
    let lab = Lab::new();
    for text in ["nope", "main..nope", "", "HEAD:first", "^main"] {
        let ask = VerifyAsk { revisions: Some(text.into()) };
        let error = verify(&lab.ledger(), &ask).unwrap_err();
        assert_eq!(error.code(), Code::NoSuchRevision, "{text}: {error}");
    }
}

#[test]
fn a_fetched_journal_proves_what_its_own_clone_proves() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    let top = lab.home.home().join("clone");
    lab.git(&["clone", "-q", lab.home.top().to_str().unwrap(), top.to_str().unwrap()]);
    let ledger = || Ledger::open(&lab.env().at(top.clone()), "cli").unwrap();
    let ask = VerifyAsk { revisions: Some("HEAD~1..HEAD".into()) };
    let report = verify(&ledger(), &ask).unwrap();
    assert_eq!((report.commits[0].outcome, report.exit), (Outcome::Unknown, 2));
    let own = lab.journal();
    let fetched = own.replace("/journal/", "/remotes/origin/journal/");
    let spec = format!("{own}:{fetched}");
    lab.git(&["-C", top.to_str().unwrap(), "fetch", "-q", "origin", &spec]);
    let report = verify(&ledger(), &ask).unwrap();
    assert_eq!(report.commits[0].sha, asked.candidate.commit);
    assert_eq!((report.commits[0].outcome, report.exit), (Outcome::Governed, 0), "{report:?}");
}

#[test]
fn a_journal_of_another_repository_proves_nothing() {
    let (lab, other) = (Lab::new(), Lab::new());
    other.home.commit("more", "2");
    lab.governed("a");
    let own = lab.journal();
    let fetched = own.replace("/journal/", "/remotes/origin/journal/");
    let from = lab.home.top().display().to_string();
    other.git(&["fetch", "-q", &from, &format!("{own}:{fetched}"), "main:theirs"]);
    let report = other.verify("theirs~1..theirs");
    assert_eq!((report.commits[0].outcome, report.exit), (Outcome::Unknown, 2));
    let why = report.journals[0].problem.as_ref().unwrap().1.clone();
    assert!(why.starts_with("it belongs to repository "), "{why}");
}

#[test]
fn a_replacement_ref_changes_nothing() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    lab.home.commit("b", "by hand");
    let (bad, good) = (lab.rev("HEAD").to_string(), asked.candidate.commit.to_string());
    lab.git(&["replace", &bad, &good]);
    assert_eq!(lab.verdict(&format!("{good}..{bad}")), "ungoverned: no journal names it");
}

#[test]
fn a_changed_message_breaks_the_journal() {
    let lab = Lab::new();
    lab.governed("a");
    lab.rewrite(|at, mut entry| {
        if at == 2 {
            entry.message = entry.message.replace("\"completed\"", "\"cancelled\"");
        }
        Some(entry)
    });
    assert!(lab.problem().contains("is not what the events lead to"), "{}", lab.problem());
    let report = lab.verify("HEAD~1..HEAD");
    assert_eq!(report.commits[0].outcome, Outcome::Unknown);
    assert_eq!(
        (report.ok, report.completeness.as_str()),
        (false, "not consistent, see the journals")
    );
}

#[test]
fn a_changed_tree_breaks_the_journal() {
    let lab = Lab::new();
    lab.governed("a");
    let foreign = lab.rev("HEAD^{tree}");
    lab.rewrite(|at, mut entry| {
        if at == 3 {
            entry.tree = foreign;
        }
        Some(entry)
    });
    assert!(lab.problem().ends_with("is not in the state tree"), "{}", lab.problem());
}

#[test]
fn a_tree_with_more_than_the_events_tell_breaks_the_journal() {
    let lab = Lab::new();
    lab.governed("a");
    let tip = lab.journal();
    let blob = lab.git(&["rev-parse", "HEAD:first"]);
    let more = lab.home.git(&["ls-tree", &tip]) + &format!("100644 blob {blob}\tzzz\n");
    let more = lab.mktree(&more);
    lab.rewrite(|at, mut entry| {
        if at == 7 {
            entry.tree = more;
        }
        Some(entry)
    });
    assert!(lab.problem().contains("its events lead to"), "{}", lab.problem());
}

#[test]
fn a_dropped_event_breaks_the_journal() {
    for (dropped, expected) in [(0, "Seq is 2, expected 1"), (3, "Seq is 5, expected 4")] {
        let lab = Lab::new();
        lab.governed("a");
        lab.rewrite(|at, entry| (at != dropped).then_some(entry));
        assert_eq!(lab.problem(), expected);
    }
}

/// The trailer of what the present machine makes.
fn made_now() -> String {
    format!("Engine: {ENGINE}")
}

#[test]
fn a_changed_entry_breaks_the_journal() {
    type Change = fn(&mut lab::Entry);
    let cases: [(usize, Change, &str); 6] = [
        (3, |e| e.parents.clear(), "Seq is 4, expected 1"),
        (3, |e| e.swap("Prev: 2", "Prev: 1"), "Prev is 1, expected 2"),
        (
            7,
            |e| e.swap(&made_now(), "Engine: 9"),
            "engine 9 made it, this version can only check 1 to 5",
        ),
        (
            4,
            |e| e.swap("Verdict: pass", "Verdict: fail"),
            "its trailers and its data contradict each other",
        ),
        (
            6,
            |e| e.swap("policy:acked pol_", "policy:cancelled pol_"),
            "its first line tells of another event",
        ),
        (
            2,
            |e| e.swap("\nSession: ", "\nSession: ses_00000000000000000000000001\nSession: "),
            "it names other sessions than those of ses_00000000000000000000000001",
        ),
    ];
    for (wanted, change, expected) in cases {
        let lab = Lab::new();
        lab.governed("a");
        lab.rewrite(|at, mut entry| {
            if at == wanted {
                change(&mut entry);
            }
            Some(entry)
        });
        assert_eq!(lab.problem(), expected);
    }
}

#[test]
fn a_journal_without_its_last_events_no_longer_proves_the_commit() {
    let lab = Lab::new();
    lab.governed("a");
    lab.rewrite(|at, entry| (at < 6).then_some(entry));
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: nobody approved it, its policy is awaiting-ack");
}

#[test]
fn an_event_that_cannot_happen_breaks_the_journal() {
    let lab = Lab::new();
    lab.governed("a");
    lab.rewrite(|at, mut entry| {
        if at == 6 {
            let (_, data) = entry.message.split_once("\n\n").unwrap();
            let data: Vec<&str> = data.lines().filter(|l| !l.starts_with("Data: ")).collect();
            let data = data.join("\n").replace("policy:acked", "policy:gating");
            let policy = data.lines().find_map(|l| l.strip_prefix("Policy: ")).unwrap();
            let head = format!("policy:gating {policy}: again");
            entry.message = format!("{head}\n\n{data}\nData: {{\"attempt\":3}}\n");
        }
        Some(entry)
    });
    assert!(lab.problem().contains("cannot happen"), "{}", lab.problem());
}

#[test]
fn what_the_first_machine_wrote_is_still_proved() {
    let lab = Lab::new();
    // No ack: it would name a request, and that is another one once it is written again.
    let asked = lab.ask("a", Odd { no_ack: true, ..Odd::default() });
    lab.land(&asked);
    lab.rewrite(|_, mut entry| {
        entry.swap(&made_now(), "Engine: 1");
        Some(entry)
    });
    let report = lab.verify("HEAD~1..HEAD");
    assert_eq!(report.commits[0].outcome, Outcome::Gated, "{report:?}");
    assert!(report.journals[0].ok, "{report:?}");
}

#[test]
fn a_line_turned_down_by_the_first_machine_left_no_trace_in_the_policy() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd::default());
    lab.refuse(&asked, "bad bytes");
    lab.move_branch(&asked);
    lab.rewrite(|_, mut entry| {
        entry.swap(&made_now(), "Engine: 1");
        Some(entry)
    });
    assert!(lab.problem().contains("is not what the events lead to"), "{}", lab.problem());
}

#[test]
fn fields_of_a_later_version_do_not_break_the_journal() {
    let lab = Lab::new();
    lab.session();
    let name = lab.journal();
    let path = lab.git(&["ls-tree", "-r", "--name-only", &name]);
    let text = lab.home.git(&["show", &format!("{name}:{path}")]);
    let file = lab.home.home().join("doc");
    std::fs::write(&file, text.replacen("{\n", "{\n \"later\": 1,\n", 1)).unwrap();
    let blob = lab.git(&["hash-object", "-w", "--no-filters", file.to_str().unwrap()]);
    let names: Vec<&str> = path.split('/').collect();
    let leaf = lab.mktree(&format!("100644 blob {blob}\t{}\n", names[2]));
    let middle = lab.mktree(&format!("040000 tree {leaf}\t{}\n", names[1]));
    let root = lab.mktree(&format!("040000 tree {middle}\t{}\n", names[0]));
    lab.rewrite(|_, mut entry| {
        entry.tree = root;
        Some(entry)
    });
    let report = lab.verify("HEAD..HEAD");
    assert_eq!((report.exit, report.journals[0].ok), (0, true), "{report:?}");
}

#[test]
fn a_sound_store_has_no_findings() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd::default());
    repair(&lab, 1);
    let report = fsck(&lab.ledger()).unwrap();
    assert_eq!((report.exit, report.findings.as_slice()), (0, &[][..]));
    lab.approve(&asked);
    repair(&lab, 1);
    let report = fsck(&lab.ledger()).unwrap();
    assert_eq!((report.exit, report.ok, report.journals.len()), (0, true, 1));
}

/// Applies every remedy, of which there are so many; each works, and only once.
#[track_caller]
fn repair(lab: &Lab, count: usize) {
    let ledger = lab.ledger();
    let remedies = fsck(&ledger).unwrap().remedies();
    assert_eq!(remedies.len(), count, "{remedies:?}");
    for remedy in &remedies {
        assert!(ledger.apply(remedy).unwrap().is_some(), "{remedy}");
        assert_eq!(ledger.apply(remedy).unwrap(), None, "{remedy}");
    }
}

#[test]
fn missing_note_lines_are_a_problem() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    let report = fsck(&lab.ledger()).unwrap();
    let commit = asked.candidate.commit;
    let what: Vec<&str> = report.findings.iter().map(|f| f.what.as_str()).collect();
    let acks = format!("1 of its lines are not in {NOTES_ACKS} on {commit}");
    assert_eq!((report.exit, what.len(), what[1]), (1, 2, acks.as_str()));
    repair(&lab, 2);
    assert_eq!(fsck(&lab.ledger()).unwrap().exit, 0);
}

#[test]
fn a_landed_commit_that_left_its_branch_is_told_and_nothing_is_wrong() {
    let lab = Lab::new();
    let asked = lab.governed("a");
    repair(&lab, 2);
    lab.git(&["commit", "-q", "--amend", "-m", "reworded"]);
    let report = fsck(&lab.ledger()).unwrap();
    let what = format!("refs/heads/main does not contain its commit {}", asked.candidate.commit);
    let found: Vec<_> = report.findings.iter().map(|f| (f.severity.as_str(), &f.what)).collect();
    assert_eq!((report.exit, found), (0, vec![("note", &what)]));
}

#[test]
fn a_broken_journal_and_a_lost_pin_are_found() {
    let lab = Lab::new();
    lab.ask("a", Odd::default());
    repair(&lab, 1);
    let evidence = lab.journal().replace("/journal/", "/evidence/");
    std::fs::remove_dir_all(lab.home.top().join(".git/agentproto")).unwrap();
    lab.git(&["update-ref", "-d", &evidence]);
    let report = fsck(&lab.ledger()).unwrap();
    assert_eq!((report.exit, report.findings.len()), (1, 1), "{report:?}");
    assert!(report.findings[0].what.starts_with("no evidence keeps its candidate "));
    lab.ledger();
    std::fs::create_dir_all(lab.home.top().join(".git/agentproto")).unwrap();
    lab.rewrite(|at, entry| (at != 2).then_some(entry));
    let report = fsck(&lab.ledger()).unwrap();
    assert_eq!(report.exit, 2, "{report:?}");
    assert!(report.findings[0].what.ends_with("Seq is 4, expected 3"));
}

#[test]
fn a_staged_file_left_behind_is_found() {
    let lab = Lab::new();
    lab.session();
    let left = lab.home.top().join(".git/agentproto/tmp/odd");
    std::fs::write(&left, "x").unwrap();
    let report = fsck(&lab.ledger()).unwrap();
    assert_eq!((report.exit, report.findings.len()), (1, 1));
    assert_eq!(report.findings[0].what, "a file left behind");
}

/// Another key, listed under this name.
fn with_bob(lab: &Lab) -> crate::sign::key::SigningKey {
    let path = lab.home.ssh_key("bob", &["-t", "ed25519", "-N", ""]);
    let ada = lab.home.words(&lab.home.home().join("key"));
    lab.allow(&format!("{ADA} {ada}\nbob@example.invalid {}\n", lab.home.words(&path)));
    crate::sign::key::load(&path).unwrap()
}

#[test]
fn a_commit_is_governed_when_as_many_keys_as_it_takes_approved_it() {
    let lab = Lab::new();
    let bob = with_bob(&lab);
    let asked = lab.ask("a", Odd { quorum: 2, ..Odd::default() });
    lab.move_branch(&asked);
    assert!(lab.verdict("HEAD~1..HEAD").starts_with("ungoverned: nobody approved it"));
    lab.approve(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: 1 of 2 keys approved it so far");
    let said = AckStatement { signer: "bob@example.invalid".into(), ..lab.statement(&asked) };
    let line = crate::sign::sign(said, &bob, None).unwrap();
    lab.consume(&asked, &line);
    lab.record(Input::BranchMoved { policy: asked.id.clone() });
    let report = lab.verify("HEAD~1..HEAD");
    let found = &report.commits[0];
    assert_eq!((found.outcome, report.exit), (Outcome::Governed, 0), "{found:?}");
    assert_eq!(found.signer.as_deref(), Some("ada@example.invalid, bob@example.invalid"));
    // Each of them has to be somebody who may sign.
    lab.allow(&format!("{ADA} {}\n", lab.home.words(&lab.home.home().join("key"))));
    assert!(lab.verdict("HEAD~1..HEAD").starts_with("unauthorized: "));
}

#[test]
fn an_answer_of_somebody_excluded_governs_nothing() {
    let lab = Lab::new();
    let bob = with_bob(&lab);
    // The author is somebody else by name, but the key is known.
    let ada = lab.home.words(&lab.home.home().join("key"));
    let words = [(ADA, &ada), ("t@example.invalid", &ada)];
    let words: String = words.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
    let bobs = bob.public().to_openssh().unwrap();
    lab.allow(&format!("{words}bob@example.invalid {bobs}\n"));
    let odd = Odd { exclude: &["author"], ..Odd::default() };
    let asked = lab.ask("a", odd);
    lab.approve(&asked);
    lab.land(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert!(said.starts_with("unauthorized: "), "{said}");
    assert!(said.ends_with("is a key of t@example.invalid, who is excluded from answering"));
    let asked = lab.ask("b", odd);
    let said = AckStatement { signer: "bob@example.invalid".into(), ..lab.statement(&asked) };
    lab.consume(&asked, &crate::sign::sign(said, &bob, None).unwrap());
    lab.land(&asked);
    assert_eq!(lab.verify("HEAD~1..HEAD").exit, 0);
}

#[test]
fn a_candidate_that_was_gated_again_must_not_land_and_the_next_one_may() {
    for approved in [false, true] {
        let lab = Lab::new();
        let first = lab.ask("a", Odd::default());
        if approved {
            lab.approve(&first);
        }
        lab.home.commit("moved", "1");
        let tip = Some(lab.rev("HEAD"));
        lab.record(Input::TipMoved { policy: first.id.clone(), tip });
        // Somebody puts the first one on a branch.
        lab.git(&["checkout", "-q", "-b", "side", &first.candidate.commit.to_string()]);
        let outcome = if approved { "stale" } else { "ungoverned" };
        let why = "it was gated again on another parent before it could land";
        let sides = || lab.verdict("side~1..side");
        assert_eq!(sides(), format!("{outcome}: {why}"));
        lab.git(&["checkout", "-q", "main"]);
        let second = lab.again(&first, "a");
        lab.approve(&second);
        lab.land(&second);
        let report = lab.verify("HEAD~1..HEAD");
        assert_eq!((report.commits[0].outcome, report.exit), (Outcome::Governed, 0), "{report:?}");
        assert_eq!(report.commits[0].evidence.len(), 5);
        assert_eq!(sides(), format!("{outcome}: {why}"));
    }
}

#[test]
fn the_approval_of_the_candidate_before_does_not_govern_the_next_one() {
    let lab = Lab::new();
    let first = lab.ask("a", Odd::default());
    let line = lab.sign(lab.statement(&first));
    lab.consume(&first, &line);
    lab.home.commit("moved", "1");
    let tip = Some(lab.rev("HEAD"));
    lab.record(Input::TipMoved { policy: first.id.clone(), tip });
    let second = lab.again(&first, "a");
    // A ledger that believes what it is told: `consume` says the line fits.
    let mut other = lab.statement(&first);
    other.reason = "again".into();
    lab.consume(&second, &lab.sign(other));
    lab.land(&second);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "orphan: its line answers a request that its policy did not make");
}

#[test]
fn a_policy_whose_time_was_over_governs_nothing() {
    let lab = Lab::new();
    let asked = lab.ask("a", Odd { ended: true, ..Odd::default() });
    lab.move_branch(&asked);
    let said = lab.verdict("HEAD~1..HEAD");
    assert_eq!(said, "ungoverned: its policy is blocked (expired), it must not land");
}
