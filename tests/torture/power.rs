//! Power cuts: a file system on a loop device is shut down under a running worker, and mounted again.
//!
//! Contract: what the file system had not been told to keep is gone, as after a cut. Acknowledgements lie outside.
//! Everything happens in a mount name space of its own, which ends with the suite, and after each cut the kernel's
//! boot id reads differently there, as it would. Needs root, loop devices and the tools of the file system; a
//! machine without them skips the suite by name.

use crate::{
    audit::{acks, judge},
    kill::{HEAVY, command},
    lab::{Dice, Lab, Repo, finish, pass, run as run_to_end, told, wait_for},
    report::{Cx, Floor, Report},
    scribe::Outcome,
    trace::{suppressed, unusable},
    worker::Orders,
};
use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// File system, mount options, share of the cuts.
const KINDS: &[(&str, &str, u64)] = &[
    ("ext4", "data=ordered", 2),
    ("ext4", "data=writeback", 1),
    ("ext4", "data=journal", 1),
    ("xfs", "", 2),
];
const SHARES: u64 = 6;
/// Large enough for both kinds to be made.
const IMAGE_BYTES: u64 = 512 * 1024 * 1024;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Longest life of a worker before a cut, milliseconds.
const LIFE_MS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);

/// The suite.
pub(crate) fn run(cx: &Cx) -> Outcome<Report> {
    if cx.floor == Floor::Brief {
        return Ok(Report::skipped("power cuts belong to the floors that are asked for"));
    }
    let (seed, cuts) = (cx.seed, cx.pick(0, 6, 120));
    apart(move || {
        let lab = Lab::new()?;
        if let Some(why) = unavailable(&lab) {
            return Ok(Report::skipped(why));
        }
        let mut report = Report::default();
        for (at, (kind, options, share)) in KINDS.iter().enumerate() {
            let disk = Disk::new(&lab, &format!("disk{at}"), kind, options)?;
            let mut dice = Dice::new(seed.wrapping_add(at as u64));
            series(&disk, cuts * share / SHARES, None, &mut dice, &mut report)?;
        }
        report.require("cuts", cuts);
        report.require("acknowledged", cuts);
        Ok(report)
    })
}

/// A disk that only says that it has synced.
pub(crate) fn planted(cx: &Cx) -> Outcome<Report> {
    let seed = cx.seed;
    apart(move || {
        let lab = Lab::new()?;
        if let Some(why) = unavailable(&lab).or_else(|| unusable(&lab)) {
            return Err(why.into());
        }
        let mut report = Report::default();
        let disk = Disk::new(&lab, "planted", "ext4", "data=ordered")?;
        series(&disk, 2, Some("fdatasync"), &mut Dice::new(seed), &mut report)?;
        Ok(report)
    })
}

/// Runs it on a thread with mounts of its own; they end with it.
fn apart(suite: impl FnOnce() -> Outcome<Report> + Send + 'static) -> Outcome<Report> {
    let run = move || {
        if let Err(e) = unshare_mounts() {
            return Ok(Report::skipped(format!("no mounts of our own here: {e}")));
        }
        suite().map_err(|e| e.to_string())
    };
    thread::spawn(run).join().map_err(|_| "the suite panicked")?.map_err(Into::into)
}

#[expect(unsafe_code, reason = "there is no safe way to leave the mounts of the other threads")]
fn unshare_mounts() -> std::io::Result<()> {
    // SAFETY: the call changes what this thread alone sees; no memory is involved.
    match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Why no disk can be made and cut here; none when it can.
fn unavailable(lab: &Lab) -> Option<String> {
    let private = ["--make-rprivate", "/"];
    if let Err(e) = sure(lab.command("mount", &lab.path("home"), &private)) {
        return Some(format!("mounts cannot be made private: {e}"));
    }
    for (kind, options, _) in KINDS {
        let tried = Disk::new(lab, "tried", kind, options).and_then(|disk| disk.unmount());
        if let Err(e) = tried {
            return Some(format!("no {kind} with '{options}' on a loop device: {e}"));
        }
    }
    None
}

fn sure(command: Command) -> Outcome {
    run_to_end(command)?.text().map(drop)
}

/// A file system in a file, mounted.
struct Disk<'a> {
    lab: &'a Lab,
    kind: &'static str,
    options: String,
    image: PathBuf,
    at: PathBuf,
}

impl<'a> Disk<'a> {
    fn new(lab: &'a Lab, name: &str, kind: &'static str, options: &str) -> Outcome<Self> {
        let options = ["loop", options].into_iter().filter(|o| !o.is_empty());
        let disk = Self {
            lab,
            kind,
            options: options.collect::<Vec<_>>().join(","),
            image: lab.path(&format!("{name}.img")),
            at: lab.path(name),
        };
        File::create(&disk.image)?.set_len(IMAGE_BYTES)?;
        fs::create_dir_all(&disk.at)?;
        let image = disk.image.display().to_string();
        let force = if kind == "ext4" { "-F" } else { "-f" };
        sure(disk.command(&format!("mkfs.{kind}"), &["-q", force, &image]))?;
        disk.mount()?;
        Ok(disk)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.lab.command(program, &self.lab.path("home"), args);
        // Where tools of a file system lie is not on everybody's path.
        command.env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
        command
    }

    fn mount(&self) -> Outcome {
        let (image, at) = (self.image.display().to_string(), self.at.display().to_string());
        sure(self.command("mount", &["-t", self.kind, "-o", &self.options, &image, &at]))
    }

    fn unmount(&self) -> Outcome {
        let at = self.at.display().to_string();
        wait_for("unmounted", PATIENCE, || {
            let done = run_to_end(self.command("umount", &[&at]))?;
            Ok((done.code == 0).then_some(()))
        })
    }

    /// From here on nothing reaches the disk any more.
    fn cut(&self) -> Outcome {
        Ok(shut_down(&self.at)?)
    }

    fn sync(&self) -> Outcome {
        let at = self.at.display().to_string();
        sure(self.command("sync", &["-f", &at]))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // The name space goes with the suite anyway; this frees the loop device for the next disk.
        let at = self.at.display().to_string();
        let _ = run_to_end(self.command("umount", &["-l", &at]));
        let _ = fs::remove_file(&self.image);
    }
}

/// The number both file systems understand, and "write nothing more, the log neither".
const FS_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d_u32 as libc::Ioctl;
const NO_LOG_FLUSH: u32 = 2;

#[expect(unsafe_code, reason = "the shutdown of a file system has no safe name")]
fn shut_down(mounted: &Path) -> std::io::Result<()> {
    let root = File::open(mounted)?;
    let how = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open, and the kernel reads four bytes from a value that outlives the call.
    match unsafe { libc::ioctl(root.as_raw_fd(), FS_IOC_SHUTDOWN, &raw const how) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn series(
    disk: &Disk<'_>,
    cuts: u64,
    lie: Option<&str>,
    dice: &mut Dice,
    report: &mut Report,
) -> Outcome {
    let repo = disk.lab.repo_at(disk.at.join("r"))?;
    let dir = repo.acks().join(disk.at.file_name().ok_or("a disk has a name")?);
    fs::create_dir(&dir)?;
    disk.sync()?;
    for cut in 1..=cuts {
        let place = format!("{} {} cut {cut}", disk.kind, disk.options);
        one_cut(disk, &repo, &dir.join(cut.to_string()), lie, dice)?;
        reboot(disk.lab, dice)?;
        count_damage(&repo, report)?;
        // Every second time it is an ordinary command that meets the damage.
        if cut % 2 == 0 {
            let look = repo.tool(&["events", "--since", "tip", "--json"])?;
            if look.code != 0 {
                report.problem(&place, &format!("a look fails: {look}"));
            }
        }
        let (acked, _) = acks(&dir)?;
        let verdict = judge(&repo, &acked)?;
        report.count("cuts", 1);
        verdict.problems.iter().for_each(|p| report.problem(&place, p));
        if cut == cuts {
            report.count("events", verdict.events);
            report.count("acknowledged", verdict.acked);
        }
        if !verdict.problems.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}

/// A worker at work, and the power goes.
fn one_cut(
    disk: &Disk<'_>,
    repo: &Repo<'_>,
    acks: &Path,
    lie: Option<&str>,
    dice: &mut Dice,
) -> Outcome {
    let orders = Orders {
        session: repo.session.clone(),
        name: "p".to_owned(),
        acks: acks.to_owned(),
        batch: if dice.roll(3) == 0 { 5 } else { 1 },
        pad: if dice.roll(2) == 0 { HEAVY / 3 } else { 0 },
        ..Orders::default()
    };
    let mut command = command(repo, &orders)?;
    if let Some(kind) = lie {
        command = suppressed(disk.lab, &command, &disk.image.with_extension("strace"), kind);
    }
    let told = told(&command);
    let mut child = command.spawn()?;
    wait_for("a first acknowledgement", PATIENCE, || {
        Ok((acks.exists() || child.try_wait()?.is_some()).then_some(()))
    })?;
    pass(dice.moment(LIFE_MS));
    disk.cut()?;
    crate::lab::kill_group(child.id());
    finish(child, told)?;
    disk.unmount()?;
    disk.mount()
}

/// From now on the kernel seems to have been started anew.
fn reboot(lab: &Lab, dice: &mut Dice) -> Outcome {
    let file = lab.path("boot_id");
    let id = format!("{:08x}-0000-4000-8000-{:012x}\n", dice.roll(1 << 32), dice.roll(1 << 48));
    if file.exists() {
        return Ok(fs::write(&file, id)?);
    }
    fs::write(&file, id)?;
    let file = file.display().to_string();
    sure(lab.command("mount", &lab.path("home"), &["--bind", &file, BOOT_ID]))
}

fn count_damage(repo: &Repo<'_>, report: &mut Report) -> Outcome {
    let objects = repo.git_dir().join("objects");
    for entry in fs::read_dir(objects)? {
        let dir = entry?.path();
        for file in fs::read_dir(&dir)? {
            report.count("empty objects seen", u64::from(file?.metadata()?.len() == 0));
        }
    }
    let journal = repo.git_done(&["for-each-ref", "refs/agentproto/journal"])?;
    report.count("refs gone or empty", u64::from(journal.out.is_empty()));
    Ok(())
}
