//! The worst a crash or a person can leave behind: damaged loose objects times a damaged ref, foreign locks, refs and
//! logs that do not belong together.
//!
//! Contract: all loose objects of the repository are the tool's (the user's own commit is packed). Whatever the log
//! proves comes back whole; a foreign lock is waited for and left alone; what is on no line with our journal is
//! named, and nothing is touched.

use crate::{
    audit::{Ack, acks, judge},
    kill::{HEAVY, command},
    lab::{Lab, Repo, copy_tree, field, run as finish_run},
    report::{Cx, Report},
    scribe::Outcome,
    worker::Orders,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Name of the shelf every state begins from.
const PREPARED: &str = "prepared";
const OBJECTS: &[&str] = &["empty", "half", "zeros", "missing"];
const REFS: &[&str] = &["empty", "missing", "garbage", "older", "oldest"];
/// Longest a call waits for a foreign lock: the bound of the program and what a busy machine adds.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// The suite.
pub(crate) fn run(cx: &Cx) -> Outcome<Report> {
    let lab = Lab::new()?;
    let mut report = Report::default();
    let scene = Scene::new(&lab)?;
    if !scene.journal_file()?.exists() {
        return Ok(Report::skipped("refs of this repository are no files to be damaged"));
    }
    for (at, objects) in OBJECTS.iter().enumerate() {
        for (of, reference) in REFS.iter().enumerate() {
            // The brief floor takes one of each.
            if cx.pick(u64::from(at == of || of == OBJECTS.len()), 1, 1) == 0 {
                continue;
            }
            scene.repo.unshelve(PREPARED)?;
            scene.damage_objects(objects)?;
            scene.damage_ref(reference)?;
            scene.judge(&format!("objects {objects}, ref {reference}"), &mut report)?;
        }
    }
    report.require("states", cx.pick(4, 20, 20));
    for (name, case) in CASES {
        scene.repo.unshelve(PREPARED)?;
        case(&scene, &mut report).map_err(|e| format!("{name}: {e}"))?;
        scene.judge(name, &mut report)?;
    }
    report.require("states", cx.pick(4, 20, 20) + CASES.len() as u64);
    Ok(report)
}

/// Damaged objects and no log to mend them from.
pub(crate) fn planted(_cx: &Cx) -> Outcome<Report> {
    let lab = Lab::new()?;
    let scene = Scene::new(&lab)?;
    let mut report = Report::default();
    for entry in fs::read_dir(scene.repo.git_dir().join("agentproto"))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("wal")) {
            fs::remove_file(path)?;
        }
    }
    scene.damage_objects("missing")?;
    scene.judge("no log", &mut report)?;
    Ok(report)
}

type Case = (&'static str, fn(&Scene<'_>, &mut Report) -> Outcome);

const CASES: &[Case] = &[
    ("a foreign lock that stays", foreign_lock_stays),
    ("a foreign lock that goes", foreign_lock_goes),
    ("the ref set to a foreign commit", ref_set_elsewhere),
    ("the ref deleted", ref_deleted),
    ("a log older than the ref", old_log),
];

/// A repository whose last events are in the log and in loose objects, the ones before in packs of ours.
struct Scene<'a> {
    repo: Repo<'a>,
}

impl<'a> Scene<'a> {
    fn new(lab: &'a Lab) -> Outcome<Self> {
        let scene = Self { repo: lab.repo()? };
        scene.write(40, HEAVY)?;
        scene.write(20, 0)?;
        scene.repo.shelve(PREPARED)?;
        Ok(scene)
    }

    fn write(&self, count: u64, pad: usize) -> Outcome {
        let orders = Orders {
            session: self.repo.session.clone(),
            name: "w".to_owned(),
            acks: self.repo.acks().join("w"),
            count,
            batch: 1,
            pad,
            ..Orders::default()
        };
        finish_run(command(&self.repo, &orders)?)?.text().map(drop)
    }

    fn journal_file(&self) -> Outcome<PathBuf> {
        Ok(self.repo.git_dir().join(self.repo.journal()?))
    }

    fn damage_objects(&self, how: &str) -> Outcome {
        let objects = self.repo.git_dir().join("objects");
        let mut harmed = 0;
        for entry in fs::read_dir(&objects)? {
            let dir = entry?.path();
            if dir.file_name().is_some_and(|n| n.len() == 2) {
                for file in fs::read_dir(&dir)? {
                    damage(&file?.path(), how)?;
                    harmed += 1;
                }
            }
        }
        if harmed > 0 { Ok(()) } else { Err("there was no loose object to damage".into()) }
    }

    fn damage_ref(&self, how: &str) -> Outcome {
        let (file, name) = (self.journal_file()?, self.repo.journal()?);
        // Objects are damaged already: the chain is known from the acknowledgements.
        let (acked, _) = acks(&self.repo.acks())?;
        let before = |n: usize| acked.iter().rev().nth(n).and_then(|a| a.id.clone());
        match how {
            "empty" => fs::write(&file, "")?,
            "missing" => fs::remove_file(&file)?,
            "garbage" => fs::write(&file, "zzzz\n")?,
            // Within the log, and before it.
            "older" => fs::write(&file, before(10).ok_or("no event")? + "\n")?,
            "oldest" => fs::write(&file, before(50).ok_or("no event")? + "\n")?,
            other => return Err(format!("no damage of {name}: {other}").into()),
        }
        Ok(())
    }

    fn judge(&self, place: &str, report: &mut Report) -> Outcome {
        let (acked, _): (Vec<Ack>, _) = acks(&self.repo.acks())?;
        let verdict = judge(&self.repo, &acked)?;
        verdict.problems.iter().for_each(|p| report.problem(place, p));
        report.count("states", 1);
        report.count("events", verdict.events);
        report.count("acknowledged", verdict.acked);
        Ok(())
    }

    fn report_args(&self) -> [&str; 5] {
        ["session", "report", &self.repo.session, "command-done", "--json"]
    }
}

fn damage(file: &Path, how: &str) -> Outcome {
    let size = usize::try_from(file.metadata()?.len())?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    match how {
        "empty" => fs::write(file, "")?,
        "half" => fs::write(file, &fs::read(file)?[..size / 2])?,
        "zeros" => fs::write(file, vec![0; size])?,
        "missing" => fs::remove_file(file)?,
        other => return Err(format!("no damage of objects: {other}").into()),
    }
    Ok(())
}

fn lock_of(file: &Path) -> PathBuf {
    let mut lock = file.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// The event is recorded, the lock named and left; once it is gone git sees the event.
fn foreign_lock_stays(scene: &Scene<'_>, report: &mut Report) -> Outcome {
    let lock = lock_of(&scene.journal_file()?);
    fs::write(&lock, "")?;
    let begin = Instant::now();
    let done = scene.repo.tool(&scene.report_args())?;
    let waited = begin.elapsed();
    let cursor = field(&done, "cursor")?;
    if waited > LOCK_WAIT {
        report.problem("", &format!("waited {waited:?} for a foreign lock"));
    }
    if !lock.exists() {
        report.problem("", "a foreign lock was taken away");
    }
    if !done.err.contains(".lock") {
        report.problem("", &format!("the lock is not named: {done}"));
    }
    fs::remove_file(&lock)?;
    scene.repo.tool(&["events", "--since", "tip"])?.text()?;
    if scene.repo.git(&["rev-parse", &scene.repo.journal()?])? != cursor {
        report.problem("", "the event is not shown once the lock is gone");
    }
    Ok(())
}

/// A lock that goes in time is waited for.
fn foreign_lock_goes(scene: &Scene<'_>, report: &mut Report) -> Outcome {
    let lock = lock_of(&scene.journal_file()?);
    fs::write(&lock, "")?;
    let begin = Instant::now();
    let mut command = scene.repo.tool_command(&scene.report_args());
    let told = crate::lab::told(&command);
    let child = command.spawn()?;
    crate::lab::pass(Duration::from_millis(500));
    fs::remove_file(&lock)?;
    let done = crate::lab::finish(child, told)?;
    let cursor = field(&done, "cursor")?;
    if begin.elapsed() > LOCK_WAIT {
        report.problem("", &format!("waited {:?} for a lock that went", begin.elapsed()));
    }
    if scene.repo.git(&["rev-parse", &scene.repo.journal()?])? != cursor {
        report.problem("", "the event is not shown");
    }
    Ok(())
}

/// Named as diverged, nothing touched; set back by its owner, all is well.
fn ref_set_elsewhere(scene: &Scene<'_>, report: &mut Report) -> Outcome {
    let (name, head) = (scene.repo.journal()?, scene.repo.git(&["rev-parse", "HEAD"])?);
    let ours = scene.repo.git(&["rev-parse", &name])?;
    scene.repo.git(&["update-ref", &name, &head])?;
    let done = scene.repo.tool(&scene.report_args())?;
    if done.code == 0 || !format!("{}{}", done.out, done.err).contains("journal-diverged") {
        report.problem("", &format!("a foreign commit is taken: {done}"));
    }
    if scene.repo.git(&["rev-parse", &name])? != head {
        report.problem("", "a ref on no line with ours was moved");
    }
    scene.repo.git(&["update-ref", &name, &ours]).map(drop)
}

/// Comes back: who wants it gone removes the log first.
fn ref_deleted(scene: &Scene<'_>, report: &mut Report) -> Outcome {
    let name = scene.repo.journal()?;
    let ours = scene.repo.git(&["rev-parse", &name])?;
    scene.repo.git(&["update-ref", "-d", &name])?;
    scene.repo.tool(&["events", "--since", "tip"])?.text()?;
    if scene.repo.git(&["rev-parse", &name])? != ours {
        report.problem("", "a deleted ref does not come back");
    }
    Ok(())
}

/// The tool's directory put back from a copy: the newer ref is kept.
fn old_log(scene: &Scene<'_>, _report: &mut Report) -> Outcome {
    let agent = scene.repo.git_dir().join("agentproto");
    let kept = scene.repo.lab.path("kept");
    if kept.exists() {
        fs::remove_dir_all(&kept)?;
    }
    copy_tree(&agent, &kept)?;
    scene.write(30, 0)?;
    fs::remove_dir_all(&agent)?;
    copy_tree(&kept, &agent)
}
