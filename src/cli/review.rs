//! The review screen: what a person sees before signing.
//!
//! Contract: built from the objects of the repository, never from an agent's words about them; every name and
//! message is escaped. What changes the rules is said first.

use super::{
    answer,
    cx::Cx,
    error::CliError,
    policy::{binds, branch_words, gate_named, gate_words},
    text::{Paint, block, line, output, shown, table},
};
use crate::{
    code::Code,
    domain::oid::Oid,
    ledger::{Changed, Ledger, LineCounts, Review},
    limits,
    store::{
        git::{Git, GitError},
        tree::Mode,
    },
};

/// The whole screen.
pub(super) fn render(cx: &Cx, ledger: &Ledger, review: &Review) -> Result<String, CliError> {
    let tails: Vec<_> =
        review.policy.results.iter().map(|result| answer::tail(ledger, result)).collect();
    Ok(screen(cx, review, &tails))
}

fn screen(cx: &Cx, review: &Review, tails: &[Option<String>]) -> String {
    let mut text = warnings(cx.paint, review);
    text.push_str(&head(cx.paint, review));
    text.push_str(&format!("\n{}\n", block(&review.message, "    ")));
    text.push_str(&diffstat(cx, review));
    line(&mut text, &format!("\ndiff       {}", look_at(&review.candidate.commit)));
    text.push_str(&gates(review, tails));
    for (name, value) in binds(&review.policy) {
        line(&mut text, &format!("{name:<10} {}", shown(&value)));
    }
    for hook in &review.afterwards {
        line(&mut text, &format!("afterwards the hook post-commit runs: {}", shown(hook)));
    }
    if review.quorum > 1 {
        let there = review.policy.approvals();
        line(&mut text, &format!("approvals  {there} of {}", review.quorum));
    }
    if !review.exclude.is_empty() {
        line(&mut text, &format!("not asked  {}", shown(&review.exclude.join(", "))));
    }
    for ack in &review.policy.acks {
        let said = format!("{} by {} ({})", ack.decision, ack.signer, ack.key);
        line(&mut text, &format!("ack        {}", shown(&said)));
    }
    text
}

fn warnings(paint: Paint, review: &Review) -> String {
    let mut text = String::new();
    if review.touches_rules {
        line(&mut text, &paint.warn("CHANGES THE RULES"));
    }
    if review.rule_change {
        let news = "The rule files changed since you accepted them; see git agentproto status";
        line(&mut text, &paint.warn(news));
    }
    if let Some(why) = &review.stale {
        line(&mut text, &paint.warn(&format!("STALE: {}", shown(why))));
    }
    text
}

fn head(paint: Paint, review: &Review) -> String {
    let signers = match &review.signers {
        Ok(seen) => format!("{} ({})", seen.source, seen.place),
        Err(why) => format!("nobody's answer counts: {why}"),
    };
    let mut text = String::new();
    for (name, value) in [
        ("policy", review.policy.policy_id.to_string()),
        ("candidate", paint.bold(&review.candidate.commit.to_string())),
        ("parent", review.candidate.parent.to_string()),
        ("branch", shown(&branch_words(&review.branch))),
        ("author", shown(&review.author)),
        ("signers", shown(&signers)),
    ] {
        line(&mut text, &format!("{name:<10} {value}"));
    }
    text
}

/// What shows a candidate. Whoever can write a ref could have git show other bytes under its id, and could do so after
/// these words were read.
pub(super) fn look_at(candidate: &Oid) -> String {
    format!("git --no-replace-objects show {candidate}")
}

/// Every line a candidate changes, made by the user's git without any program of theirs in between.
pub(super) fn patch(ledger: &Ledger, candidate: &Oid) -> Result<String, CliError> {
    let failed = |e: &GitError| CliError::new(e.code(), e.to_string());
    let worktree = ledger.store().location().worktree.as_ref().ok_or_else(|| {
        CliError::new(Code::BareUnsupported, "a diff is shown from inside a worktree")
    })?;
    let git = Git::new(ledger.env(), worktree).map_err(|e| failed(&e))?;
    let candidate = candidate.to_string();
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
    let args = ["diff-tree", "-p", "--root", "--no-commit-id", "--no-ext-diff", "--no-textconv"];
    let args = quiet.into_iter().chain(args).chain(["--no-color", candidate.as_str()]);
    let args: Vec<&str> = args.collect();
    Ok(patch_text(&git.call(&args, b"", &[]).map_err(|e| failed(&e))?))
}

/// The lines of a diff, each byte that is no visible text escaped: an end of line that changed is a change.
fn patch_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|b| *b == b'\n') {
        for chunk in line.utf8_chunks() {
            // A tab cannot hide anything.
            text.push_str(&shown(&chunk.valid().replace('\t', "    ")));
            text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
        }
        text.push('\n');
    }
    text
}

/// One line a path: kind, mode, lines added and deleted.
pub(super) fn diffstat(cx: &Cx, review: &Review) -> String {
    let rows: Vec<Vec<String>> = review.changes.iter().map(row).collect();
    table(&rows, "  ", cx.columns)
}

fn row(change: &Changed) -> Vec<String> {
    let mode = |side: &Option<(Mode, Oid)>| match side {
        Some((mode, _)) => format!("{:06o}", mode.bits()),
        None => "none".to_owned(),
    };
    let modes = match (mode(&change.old), mode(&change.new)) {
        (old, new) if old == new => new,
        (old, new) => format!("{old} to {new}"),
    };
    let lines = match &change.lines {
        Some(LineCounts { added, deleted }) => format!("+{added} -{deleted}"),
        None => "not counted".to_owned(),
    };
    vec![change.kind.letter().to_string(), modes, lines, change.path.to_string()]
}

fn gates(review: &Review, tails: &[Option<String>]) -> String {
    let mut text = String::new();
    if review.policy.spec.gates.is_empty() {
        line(&mut text, "UNGATED: nothing was run on it");
    }
    for (result, tail) in review.policy.results.iter().zip(tails) {
        let gate = review.policy.spec.gates.get(result.index);
        let command = gate.map_or_else(|| "(unknown)".to_owned(), gate_named);
        line(&mut text, &format!("gate       {}: {}", shown(&command), gate_words(result)));
        match tail {
            Some(tail) if tail.trim().is_empty() => {}
            Some(tail) => text.push_str(&output(tail, limits::TAIL_SHOWN_LINES)),
            None if result.log.is_none() => {}
            None => line(&mut text, "    (its output is not on this machine)"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::testing::{cx, oid, policy},
        domain::candidate::ChangeKind,
        domain::{path::RepoPath, policy::Candidate},
        ledger::SignersSeen,
    };

    fn review() -> Review {
        let changed = |path: &[u8], kind, old, new, lines| Changed {
            path: RepoPath::new(path).unwrap(),
            kind,
            old,
            new,
            lines,
        };
        Review {
            policy: policy("awaiting-ack"),
            repo_id: oid('1'),
            request: oid('2'),
            candidate: Candidate { commit: oid('c'), tree: oid('d'), parent: oid('e') },
            branch: "refs/heads/main".into(),
            author: "Ada Example <ada@example.invalid>".into(),
            message: "add it\n\nbody \u{1b}[2J\n".into(),
            changes: vec![
                changed(
                    b".agentproto/x",
                    ChangeKind::Deleted,
                    Some((Mode::File, oid('3'))),
                    None,
                    None,
                ),
                changed(
                    b"evil\xe2\x80\xaetxt",
                    ChangeKind::Added,
                    None,
                    Some((Mode::Executable, oid('4'))),
                    Some(LineCounts { added: 2, deleted: 0 }),
                ),
            ],
            stale: Some("refs/heads/main is elsewhere".into()),
            rule_change: false,
            touches_rules: true,
            quorum: 2,
            exclude: vec!["author".into()],
            signers: Ok(SignersSeen {
                source: "global",
                place: "/etc/allowed".into(),
                digest: String::new(),
            }),
            afterwards: vec!["/r/hooks/post-commit".into()],
        }
    }

    #[test]
    fn the_screen_says_the_rules_first_and_hides_nothing() {
        let tails = [Some("fine\u{7}\n".to_owned())];
        let [commit, parent] = [oid('c'), oid('e')];
        assert_eq!(
            screen(&cx(&[]), &review(), &tails),
            format!(
                "CHANGES THE RULES\n\
                 STALE: refs/heads/main is elsewhere\n\
                 policy     pol_01arz3ndektsv4rrffq69g5fav\n\
                 candidate  {commit}\n\
                 parent     {parent}\n\
                 branch     refs/heads/main\n\
                 author     Ada Example <ada@example.invalid>\n\
                 signers    global (/etc/allowed)\n\
                 \n    add it\n\n    body \\x1b[2J\n\n  \
                 D  100644 to none  not counted  .agentproto/x\n  \
                 A  none to 100755  +2 -0        evil\\u{{202e}}txt\n\n\
                 diff       git --no-replace-objects show {commit}\n\
                 gate       ls 'a b' (in sub, at most 2s): pass, exit code 0, 12 ms\n    | fine\\x07\n\
                 on stale   regate: gated again and asked again\n\
                 afterwards the hook post-commit runs: /r/hooks/post-commit\n\
                 approvals  0 of 2\nnot asked  author\n"
            )
        );
    }

    #[test]
    fn a_diff_shows_every_byte() {
        assert_eq!(
            patch_text(b"-a\r\n+a  \n+\tb\xff\x1b[2J\xe2\x80\xae\n"),
            "-a\\r\n+a  \n+    b\\xff\\x1b[2J\\u{202e}\n"
        );
    }

    #[test]
    fn what_was_not_run_or_is_not_here_is_said() {
        let mut review = review();
        assert!(gates(&review, &[None]).ends_with("(its output is not on this machine)\n"));
        review.policy.spec.gates.clear();
        review.policy.results.clear();
        assert_eq!(gates(&review, &[]), "UNGATED: nothing was run on it\n");
    }
}
