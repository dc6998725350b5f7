//! What killed processes leave in our directory: `fsck` names it, `gc` and whoever performs take it away, and nobody takes
//! what somebody alive has.

use crate::{
    env::{TestEnv, wait_for},
    fsck::{agent, findings, goes_on},
    house::text,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

fn make_old(path: &Path) {
    let at = SystemTime::now() - Duration::from_secs(2 * 3600);
    fs::File::open(path).unwrap().set_modified(at).unwrap();
}

fn in_tmp(env: &TestEnv) -> Vec<PathBuf> {
    let entries = fs::read_dir(agent(env, "tmp")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn leftovers(env: &TestEnv, args: &[&str]) -> u64 {
    let told = env.ap(&[&["gc", "--json"], args].concat()).exits(0).json();
    told["leftovers"].as_u64().unwrap()
}

#[test]
fn a_signing_that_was_killed_is_named_and_goes_and_one_that_lives_stays() {
    let env = TestEnv::new();
    env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env.write_signers("ada@example.invalid", "locked");
    let (program, pid) = (env.path("sign.sh"), env.path("signer"));
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", pid.display());
    env.write_script("../sign.sh", &script);
    env.global("gpg.ssh.program", program.to_str().unwrap());
    let policy = env.awaiting("f.txt");
    let key = env.path("locked");
    let mut ack = env.binary(&["ack", &policy, "--yes", "--key", key.to_str().unwrap()]).start();
    let signer = wait_for("the signer", Duration::from_secs(30), || {
        fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'))
    });
    let dir = in_tmp(&env).into_iter().find(|p| p.join("ack").exists()).unwrap();
    make_old(&dir);
    assert!(findings(&env, 0).is_empty());
    assert_eq!(leftovers(&env, &[]), 0);
    assert!(dir.exists(), "a signing that lives lost its directory");
    ack.kill().unwrap();
    ack.wait().unwrap();
    env.run("kill", &[signer.trim()]).done().exits(0);
    let shown = dir.display().to_string();
    let found = findings(&env, 0);
    assert_eq!((found.len(), text(&found[0], "subject")), (1, shown), "{found:?}");
    assert_eq!((text(&found[0], "severity"), leftovers(&env, &["-n"])), ("note".to_owned(), 1));
    assert!(dir.exists(), "a dry run took it away");
    assert_eq!((leftovers(&env, &[]), dir.exists()), (1, false));
    goes_on(&env);
}

#[test]
fn whoever_performs_takes_away_what_is_old_and_leaves_what_is_young_or_nobodys() {
    let env = TestEnv::new();
    let gone = ["sign.pol_x.1", "hooks.pol_x.1", "fix.pol_x.1"].map(|n| agent(&env, "tmp").join(n));
    let stays = ["fix.pol_y.1", "notes of a person"].map(|n| agent(&env, "tmp").join(n));
    for dir in gone.iter().chain(&stays) {
        fs::create_dir_all(dir.join("objects")).unwrap();
        fs::write(dir.join("objects/some"), "some").unwrap();
    }
    for dir in gone.iter().chain(&stays[1..]) {
        make_old(dir);
    }
    let told: Vec<String> = findings(&env, 0).iter().map(|f| text(f, "subject")).collect();
    for dir in &gone {
        assert!(told.contains(&dir.display().to_string()), "{told:?}");
    }
    env.governed("f.txt");
    assert!(gone.iter().all(|dir| !dir.exists()), "{:?}", in_tmp(&env));
    assert!(stays.iter().all(|dir| dir.exists()), "{:?}", in_tmp(&env));
}

#[test]
fn what_a_landing_left_beside_a_worktree_that_is_no_more_goes() {
    let env = TestEnv::new();
    let dir = env.worktree("side");
    let session = env.adopt_in(&dir, "side");
    let policy = env.awaiting_of(&session, &dir, "f.txt");
    let left = |kind: &str, worktree: &str| agent(&env, &format!("tmp/{kind}{policy}.{worktree}"));
    let files = ["index-lock.", "index.", "index-old."].map(|kind| left(kind, "side"));
    let of_main = left("index-lock.", ".");
    let plant = || files.iter().chain([&of_main]).for_each(|f| fs::write(f, "left").unwrap());
    plant();
    env.git(&["worktree", "remove", "--force", dir.to_str().unwrap()]);
    assert_eq!(leftovers(&env, &[]), 0, "its policy is open");
    env.ap(&["policy", "cancel", &policy]).exits(0);
    assert!(files.iter().all(|file| !file.exists()), "who performs leaves them");
    plant();
    let found = findings(&env, 1);
    let told: Vec<String> = found.iter().map(|f| text(f, "subject")).collect();
    for (at, file) in files.iter().enumerate() {
        assert!(told.contains(&file.display().to_string()), "{at}: {told:?}");
    }
    assert_eq!(leftovers(&env, &[]), 3);
    assert!(of_main.exists() && files.iter().all(|file| !file.exists()), "{:?}", in_tmp(&env));
    fs::remove_file(of_main).unwrap();
    goes_on(&env);
}
