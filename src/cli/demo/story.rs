//! What the demonstration shows, in order.

use super::{
    super::{cx::Cx, error::CliError, text},
    stage::Stage,
};
use crate::code::{Code, exit};
use serde_json::Value;

/// What came of it.
pub(super) struct Told {
    /// The policy that landed.
    pub(super) policy: String,
    /// Its commit.
    pub(super) commit: String,
}

const LIST: &str = "apples\nbread\n";
const UNSORTED: &str = "apples\nbread\nzucchini\nmilk\n";
const SORTED: &str = "apples\nbread\nmilk\nzucchini\n";
const ALLOWED: &str = "{\"version\":1,\"commands\":[{\"command\":\"sort\",\"args\":[\"-c\"]}]}\n";

/// Tells it, with the real commands.
///
/// # Errors
/// A command did not do what the story says.
pub(super) fn tell(cx: &Cx, stage: &Stage) -> Result<Told, CliError> {
    let teller = Teller { cx, stage };
    teller.set_up()?;
    teller.red()?;
    teller.green()?;
    teller.approve()?;
    teller.prove()?;
    let shown = stage.tool(&["policy", "show", "milk-2", "--json"])?;
    let policy: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    let field = |name: &str| {
        policy[name].as_str().map(str::to_owned).ok_or_else(|| {
            CliError::new(
                Code::Internal,
                format!("the policy of the demonstration has no '{name}'"),
            )
        })
    };
    Ok(Told { policy: field("policyId")?, commit: field("commitSha")? })
}

struct Teller<'a> {
    cx: &'a Cx,
    stage: &'a Stage,
}

impl Teller<'_> {
    fn set_up(&self) -> Result<(), CliError> {
        self.head("A repository whose people agreed on who signs and what may run as a gate")?;
        self.file("shopping.txt", LIST)?;
        self.file(".agentproto/allowed-commands.json", ALLOWED)?;
        self.git(&["add", "."])?;
        self.git(&["commit", "-q", "-m", "a shopping list, signers and allowed gates"])?;
        self.tool(&["init", "--yes"], exit::DONE)
    }

    fn red(&self) -> Result<(), CliError> {
        self.head("An agent starts to work; when its turn ends, the list has to be sorted")?;
        self.tool(&["session", "adopt", "--label", "shopper", "--cwd", "."], exit::DONE)?;
        self.attach("milk", &[])?;
        self.say("The agent adds two lines, and a file nobody asked for.")?;
        self.file("shopping.txt", UNSORTED)?;
        self.file("diary.txt", "I was here.\n")?;
        self.tool(&["session", "report", "shopper", "turn-end"], exit::DONE)?;
        self.say("The gate is red. Nothing is committed, and the reason is on record:")?;
        self.tool(&["wait", "milk"], exit::NO)?;
        self.tool(&["policy", "show", "milk"], exit::DONE)
    }

    fn green(&self) -> Result<(), CliError> {
        self.head("The next turn gets a policy of its own; the agent sorts the list")?;
        self.attach("milk-2", &["--next-turn"])?;
        self.file("shopping.txt", SORTED)?;
        self.tool(&["session", "report", "shopper", "turn-end"], exit::DONE)?;
        self.say(
            "Green. The commit exists, the branch has not moved: a person is asked (exit code 5).",
        )?;
        self.tool(&["wait", "milk-2"], exit::PERSON)?;
        self.tool(&["status"], exit::DONE)?;
        self.git(&["log", "--oneline", "main"])
    }

    fn approve(&self) -> Result<(), CliError> {
        self.head("You look at the candidate, and sign")?;
        self.tool(&["ack", "milk-2", "--yes", "-m", "milk it is"], exit::DONE)?;
        self.tool(&["wait", "milk-2", "--until", "done"], exit::DONE)?;
        self.git(&["show", "--stat", "--format=%an: %s", "main"])?;
        self.git(&["status", "--short"])
    }

    fn prove(&self) -> Result<(), CliError> {
        self.head("Anybody with the records can check it")?;
        self.tool(&["verify", "main~1..main"], exit::DONE)?;
        self.tool(&["log"], exit::DONE)?;
        let top = self.stage.top().to_string_lossy();
        let top = shell_words::quote(&top);
        self.head("Look around with plain git")?;
        self.out(&format!(
            "  cd {top}\n\
             \x20 git log -1 --notes=agentproto/gates --notes=agentproto/acks\n\
             \x20 git log --reverse --format=%s --glob=agentproto/journal    # the story\n\
             \x20 git log -1 --glob=agentproto/journal                       # an event, in full\n\
             \x20 git for-each-ref                                           # all there is\n\n\
             or with this tool, as the person of the demonstration:\n\n\
             \x20 . .git/demo/env; git agentproto status\n\n\
             Everything is inside that directory: rm -rf {top} leaves nothing behind.\n"
        ))
    }

    fn attach(&self, label: &str, more: &[&str]) -> Result<(), CliError> {
        let mut args = vec!["attach", "shopper", "--label", label, "--then", "commit"];
        args.extend(["--path", "shopping.txt", "-m", "shopping: milk and zucchini"]);
        args.extend(more);
        args.extend(["--", "sort", "-c", "shopping.txt"]);
        self.tool(&args, exit::DONE)
    }

    fn head(&self, text: &str) -> Result<(), CliError> {
        self.out(&format!("\n{}\n", self.cx.paint.bold(&format!("== {text}"))))
    }

    fn say(&self, text: &str) -> Result<(), CliError> {
        self.out(&format!("{text}\n"))
    }

    /// Narration is for people; programs get one object at the end.
    fn out(&self, text: &str) -> Result<(), CliError> {
        if self.cx.json { Ok(()) } else { self.cx.out(text) }
    }

    fn file(&self, name: &str, content: &str) -> Result<(), CliError> {
        self.stage.write(name, content)?;
        self.out(&format!("  # {name} now holds:\n{}", text::block(content, "  # | ")))
    }

    fn git(&self, args: &[&str]) -> Result<(), CliError> {
        self.out(&format!("  $ git {}\n", shell_words::join(args)))?;
        let said = self.stage.git(args)?;
        self.out(&indented(&said))
    }

    fn tool(&self, args: &[&str], expected: u8) -> Result<(), CliError> {
        self.out(&format!("  $ git agentproto {}\n", shell_words::join(args)))?;
        let done = self.stage.tool(args)?;
        let (out, err) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        self.out(&format!("{}{}", indented(&out), indented(&err)))?;
        if done.status.code() == Some(i32::from(expected)) {
            return if expected == exit::DONE {
                Ok(())
            } else {
                self.say(&format!("    (exit code {expected})"))
            };
        }
        let first = err.lines().next().unwrap_or("it said nothing");
        let message = format!(
            "'git agentproto {}' ended with {}, expected exit code {expected}: {first}",
            shell_words::join(args),
            done.status
        );
        Err(CliError::new(Code::Internal, message))
    }
}

fn indented(text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { text::block(text, "    ") }
}
