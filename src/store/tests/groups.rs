//! Appends of several threads at once: one frame, and each thread its own answer.

use super::{names::Segment, *};
use std::time::{Duration, Instant};

type Decide<'a> = Box<dyn FnOnce(&Snapshot<'_>) -> Result<Batch, String> + Send + 'a>;
type Answer = thread::Result<Result<Appended, AppendError<String>>>;

fn until(done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "it never came");
        thread::yield_now();
    }
}

fn person(n: usize) -> Stamp {
    Stamp { name: format!("Person {n}"), ..who() }
}

/// One group of these members in this order: the first decides when all others wait. `prepare` runs on each
/// member's thread before.
fn prepared(
    store: &Store,
    members: Vec<Decide<'_>>,
    prepare: &(dyn Fn(usize) + Sync),
) -> Vec<Answer> {
    let others = members.len() - 1;
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, decide) in members.into_iter().enumerate() {
            let inside = &inside;
            threads.push(scope.spawn(move || {
                prepare(n);
                store.append(&person(n), |snapshot| {
                    if n == 0 {
                        inside.store(true, Ordering::Relaxed);
                        until(|| store.line.waiting() == others);
                    }
                    decide(snapshot)
                })
            }));
            if n == 0 {
                until(|| inside.load(Ordering::Relaxed));
            } else if n < others {
                until(|| store.line.waiting() == n);
            }
        }
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    })
}

fn together(store: &Store, members: Vec<Decide<'_>>) -> Vec<Answer> {
    prepared(store, members, &|_| ())
}

fn writes(label: &str) -> Decide<'_> {
    Box::new(move |s| Ok(Batch { entries: vec![entry(s.next_seq, label)], pins: vec![] }))
}

fn pinning(label: &str, pins: Vec<Oid>) -> Decide<'_> {
    Box::new(move |s| Ok(Batch { entries: vec![entry(s.next_seq, label)], pins }))
}

/// The numbers a member got; what it got instead.
fn seqs_of(answer: &Answer) -> Result<Vec<u64>, String> {
    match answer {
        Ok(Ok(done)) => Ok(done.written.iter().map(|w| w.seq).collect()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("panicked".to_owned()),
    }
}

fn frames(store: &Store) -> u64 {
    let all = store.with_wal(|w| w.map_or(Ok(Vec::new()), |w| w.frames())).unwrap();
    all.len() as u64
}

#[test]
fn those_who_wait_become_one_frame_and_each_sees_what_came_before() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let labels = ["a", "bb", "ccc", "dddd", "eeeee"];
    let members = labels.iter().enumerate().map(|(n, label)| {
        let before = n.checked_sub(1).map(|b| labels[b]);
        let decide = move |s: &Snapshot<'_>| {
            let last = s.last_entry().unwrap();
            assert_eq!(last.as_ref().map(|e| e.seq), s.tip.as_ref().map(|t| t.seq));
            if let Some(before) = before {
                let path = format!("open/{}/{before}.json", before.len() % 7);
                assert!(s.document(&path).unwrap().is_some(), "{label} does not see {before}");
                assert!(last.unwrap().message.starts_with(format!("test:did {before}").as_bytes()));
            }
            assert_eq!(s.documents("open").unwrap().len(), n);
            Ok(Batch { entries: vec![entry(s.next_seq, label)], pins: vec![] })
        };
        Box::new(decide) as Decide<'_>
    });
    let answers = together(&store, members.collect());
    let ids: Vec<Oid> =
        answers.iter().map(|a| a.as_ref().unwrap().as_ref().unwrap().written[0].id).collect();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(seqs_of(answer), Ok(vec![n as u64 + 1]));
        assert_eq!(store.entry(&ids[n]).unwrap().author_name, format!("Person {n}"));
    }
    assert_eq!(frames(&store), 1);
    assert_complete(&repo, &own_ref(&store), 5);
}

#[test]
fn what_one_member_does_wrong_is_its_own_failure() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "first");
    let nowhere = object::hash(store.hash, Kind::Blob, b"nowhere").unwrap();
    let twice = |s: &Snapshot<'_>| {
        Ok(Batch { entries: vec![entry(s.next_seq, "x"), entry(s.next_seq, "y")], pins: vec![] })
    };
    let answers = together(
        &store,
        vec![
            Box::new(|_| Err("not me".to_owned())),
            writes("a"),
            Box::new(|_| panic!("in the middle")),
            Box::new(|_| Err("no".to_owned())),
            pinning("b", vec![nowhere]),
            Box::new(twice),
            Box::new(|_| Ok(Batch::default())),
            writes("c"),
            Box::new(|_| panic!("at the end")),
        ],
    );
    let told: Vec<_> = answers.iter().map(seqs_of).collect();
    assert_eq!(told[0], Err("not me".to_owned()));
    assert_eq!((&told[1], &told[7]), (&Ok(vec![2]), &Ok(vec![3])));
    assert_eq!((&told[2], &told[8]), (&Err("panicked".to_owned()), &Err("panicked".to_owned())));
    assert_eq!(told[3], Err("no".to_owned()));
    assert_eq!(told[4], Err(format!("object {nowhere} is missing")));
    assert!(told[5].as_ref().is_err_and(|e| e.contains("its number is 4")), "{:?}", told[5]);
    assert_eq!(told[6], Ok(vec![]));
    assert_eq!(frames(&store), 2);
    assert_complete(&repo, &own_ref(&store), 3);
}

/// All or nothing: an error before the frame is everybody's, one after it nobody's.
#[test]
fn a_kill_is_the_same_to_all_members() {
    let steps: &[(&str, u32, bool)] = &[
        ("before the frame", 1, false),
        ("frame written", 1, true),
        ("ref locked", 1, true),
        ("ref moved", 1, true),
        ("ref moved", 2, true),
    ];
    for &(step, nth, there) in steps {
        let repo = TestRepo::new();
        let head: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
        let store = open(&repo);
        append(&store, "first");
        let hit = AtomicBool::new(false);
        let last = |n: usize| {
            if n == 4 {
                failpoint::arm(step, nth);
            }
        };
        let members = vec![
            pinning("a", vec![head]),
            writes("b"),
            Box::new(|_: &Snapshot<'_>| Err("because of b".to_owned())) as Decide<'_>,
            Box::new(|_: &Snapshot<'_>| Ok(Batch::default())),
            Box::new(|s: &Snapshot<'_>| {
                hit.store(true, Ordering::Relaxed);
                Ok(Batch { entries: vec![entry(s.next_seq, "c")], pins: vec![] })
            }),
        ];
        let told: Vec<_> = prepared(&store, members, &last).iter().map(seqs_of).collect();
        let failed = || Err(StoreError::Stopped.to_string());
        if there {
            let refused = Err("because of b".to_owned());
            assert_eq!(
                told,
                [Ok(vec![2]), Ok(vec![3]), refused, Ok(vec![]), Ok(vec![4])],
                "{step}"
            );
        } else {
            // A refusal, too, was one of a state that never came to be.
            assert_eq!(told, [failed(), failed(), failed(), failed(), failed()], "{step}");
        }
        drop(store);
        let store = open(&repo);
        let seq = if there { 4 } else { 1 };
        assert_complete(&repo, &own_ref(&store), seq);
        assert_tidy(&repo);
        assert_eq!(append(&store, "next").written[0].seq, seq + 1);
        assert_complete(&repo, &own_ref(&store), seq + 1);
    }
}

fn sized(label: &str, bytes: usize) -> Decide<'_> {
    Box::new(move |s| {
        let mut big = entry(s.next_seq, label);
        big.edits.push(Edit::Put { path: "big.json".to_owned(), data: vec![b'x'; bytes] });
        Ok(Batch { entries: vec![big], pins: vec![] })
    })
}

#[test]
fn what_does_not_fit_goes_into_the_next_group_and_what_never_fits_fails_alone() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let half = usize::try_from(limits::GROUP_BYTES).unwrap() / 2;
    let members = vec![
        writes("a"),
        sized("b", half),
        sized("c", half + 1),
        writes("d"),
        sized("e", 3 * half),
    ];
    let told: Vec<_> = together(&store, members).iter().map(seqs_of).collect();
    assert_eq!(told, [Ok(vec![1]), Ok(vec![2]), Ok(vec![3]), Ok(vec![4]), Ok(vec![5])]);
    let whole = usize::try_from(limits::WAL_FRAME_BYTES).unwrap();
    let members = vec![writes("f"), sized("g", whole), writes("h")];
    let told: Vec<_> = together(&store, members).iter().map(seqs_of).collect();
    assert_eq!((&told[0], &told[2]), (&Ok(vec![6]), &Ok(vec![7])));
    assert!(told[1].as_ref().is_err_and(|e| e.contains("at most")), "{:?}", told[1]);
    assert_complete(&repo, &own_ref(&store), 7);
}

#[test]
fn pins_of_several_members_are_one_chain() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let commits: Vec<Oid> =
        (0..4).map(|n| repo.commit(&format!("c{n}")).parse().unwrap()).collect();
    let members = vec![
        pinning("a", vec![commits[0]]),
        writes("b"),
        pinning("c", vec![commits[1], commits[2]]),
        pinning("d", vec![commits[3]]),
    ];
    assert!(together(&store, members).iter().all(|a| seqs_of(a).is_ok()));
    assert_eq!(frames(&store), 1);
    let evidence = evidence_ref(&store.writer().unwrap().unwrap(), Segment::FIRST);
    let story = repo.git(&["log", "--first-parent", "--reverse", "--format=%an: %s", &evidence]);
    let by = [0, 2, 2, 3];
    let pins = by.iter().zip(&commits).map(|(n, id)| format!("Person {n}: pin {id}"));
    // The first pin's first parent is what it pins.
    let ours: Vec<&str> = story.lines().filter(|l| l.contains(": pin ")).collect();
    assert_eq!(ours, pins.collect::<Vec<_>>());
    assert_complete(&repo, &own_ref(&store), 4);
}

#[test]
fn a_decision_that_appends_is_an_error_and_no_deadlock() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let other = open(&repo);
    let done = store.append(&who(), |s| {
        for store in [&store, &other] {
            let again = store.append(&who(), |_| Ok::<_, ()>(Batch::default()));
            assert!(matches!(again, Err(AppendError::Store(StoreError::Deciding))));
            assert!(matches!(store.write_loose(&[]), Err(StoreError::Deciding)));
        }
        Ok::<_, ()>(Batch { entries: vec![entry(s.next_seq, "a")], pins: vec![] })
    });
    assert_eq!(done.unwrap().written[0].seq, 1);
    assert_eq!(append(&other, "b").written[0].seq, 2);
}

#[test]
fn who_takes_the_lock_writes_the_open_group_first() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let loose = Object::new(store.hash, Kind::Blob, b"beside".to_vec()).unwrap();
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        let appending = scope.spawn(|| {
            store.append(&who(), |s| {
                inside.store(true, Ordering::Relaxed);
                until(|| store.line.waiting() == 1);
                Ok::<_, ()>(Batch { entries: vec![entry(s.next_seq, "a")], pins: vec![] })
            })
        });
        until(|| inside.load(Ordering::Relaxed));
        store.write_loose(std::slice::from_ref(&loose)).unwrap();
        assert_eq!(store.own_tip().unwrap().unwrap().seq, 1);
        assert_eq!(appending.join().unwrap().unwrap().written[0].seq, 1);
    });
    assert!(store.loose.is_there(&loose.id));
}

/// Runs git's housekeeping without `gc` in loops while `work` goes on.
fn beside_housekeeping<T>(repo: &TestRepo, work: impl FnOnce() -> T) -> T {
    let git = [&["prune", "--expire=now"][..], &["pack-refs", "--all"], &["repack", "-adq"]];
    beside(repo, &git, work)
}

/// Appends from that many threads to these stores in turn; every acknowledged entry.
fn crowd(stores: &[&Store], threads: usize, each: usize) -> Vec<Written> {
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|t| {
                let store = stores[t % stores.len()];
                scope.spawn(move || {
                    (0..each)
                        .flat_map(|n| append(store, &format!("t{t}n{}", n % 3)).written)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        all.into_iter().flat_map(|t| t.join().unwrap()).collect()
    })
}

fn assert_each_once(repo: &TestRepo, store: &Store, acked: &[Written], count: usize) {
    assert_eq!(acked.len(), count);
    let name = own_ref(store);
    assert_complete(repo, &name, count as u64);
    let there: Vec<String> =
        repo.git(&["rev-list", "--reverse", &name]).lines().map(str::to_owned).collect();
    for written in acked {
        let at = usize::try_from(written.seq).unwrap() - 1;
        assert_eq!(there[at], written.id.to_string(), "entry {}", written.seq);
    }
    let numbers: BTreeSet<u64> = acked.iter().map(|w| w.seq).collect();
    assert_eq!(numbers.len(), count, "a number was given twice");
    assert_tidy(repo);
}

#[test]
fn a_crowd_of_threads_has_no_gap_and_no_repeat() {
    const THREADS: usize = 64;
    const EACH: usize = 12;
    let repo = TestRepo::new();
    let store = open(&repo);
    let acked = crowd(&[&store], THREADS, EACH);
    assert!(frames(&store) < (THREADS * EACH) as u64 / 2, "hardly any groups");
    assert_each_once(&repo, &store, &acked, THREADS * EACH);
    empty_log(&store);
    assert_each_once(&repo, &store, &acked, THREADS * EACH);
}

#[test]
fn groups_of_two_processes_share_one_journal_beside_housekeeping() {
    const THREADS: usize = 16;
    const EACH: usize = 6;
    let repo = TestRepo::new();
    let (one, other) = (open(&repo), open(&repo));
    let acked = beside_housekeeping(&repo, || crowd(&[&one, &other], THREADS, EACH));
    let store = open(&repo);
    store.fsck_wal().unwrap();
    assert_each_once(&repo, &store, &acked, THREADS * EACH);
    empty_log(&store);
    assert_each_once(&repo, &store, &acked, THREADS * EACH);
}

/// A group never reaches over the end of a segment.
#[test]
fn a_crowd_goes_on_from_segment_to_segment() {
    const SEGMENT: u64 = 20;
    const COUNT: usize = 96;
    let repo = TestRepo::new();
    let store = open(&repo).with_segments_of(SEGMENT);
    let one = |label: &str| {
        let decide = |s: &Snapshot<'_>| {
            let mut next = entry(s.next_seq, label);
            if let Place::Continues { last, .. } = s.place {
                next.message.extend(format!("Format: 1\nContinues: {last}\n").into_bytes());
            }
            Ok::<_, StoreError>(Batch { entries: vec![next], pins: vec![] })
        };
        store.append(&who(), decide).unwrap().written[0]
    };
    let acked: BTreeSet<(u64, String)> = thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..COUNT).map(|n| scope.spawn(move || one(&format!("t{n}")))).collect();
        all.into_iter().map(|t| t.join().unwrap()).map(|w| (w.seq, w.id.to_string())).collect()
    });
    let tip = store.own_tip().unwrap().unwrap();
    let kept = store.kept_segments(&tip).unwrap();
    assert_eq!(kept.len(), COUNT.div_ceil(usize::try_from(SEGMENT).unwrap()));
    let mut there = Vec::new();
    for segment in kept {
        let name = tip.name_of(segment.segment);
        there.extend(repo.git(&["rev-list", "--reverse", &name]).lines().map(str::to_owned));
    }
    assert_eq!(acked, (1..).zip(there).collect());
    repo.fsck();
}
