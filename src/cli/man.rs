//! `man [COMMAND…]`: the manual page of each command, shown or installed where `man` finds it.
//!
//! Contract: pages come from the table of commands, like `-h`; what they say beside comes from documents that tests
//! hold to the program. git makes `git agentproto --help` a search for the page `git-agentproto` and never asks this
//! program, so that it works once the pages are installed.

use super::{
    Cli,
    completions::visible,
    cx::Cx,
    doctor::machine::{Manual, manual_page, program},
    error::CliError,
    help::EXIT_CODES,
    text::shown,
};
use crate::{
    code::{Code, exit},
    sys::{
        env::own_program,
        files::{self, Durable, FileError},
        spawn::{self, Call},
    },
};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use serde_json::json;
use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

/// How every page is called in the end.
const PROGRAM: &str = "git-agentproto";

/// Which page, or where to put all of them.
#[derive(clap::Args)]
pub(super) struct ManArgs {
    /// A command, with its subcommand; the page of the program itself without
    #[arg(value_name = "COMMAND", conflicts_with = "install")]
    words: Vec<String>,
    /// Write all pages to share/man/man1 of the prefix the program is installed in
    #[arg(long)]
    install: bool,
    /// The prefix to install them in
    #[arg(long, value_name = "DIR", requires = "install")]
    prefix: Option<PathBuf>,
}

pub(super) fn run(cx: &Cx, args: &ManArgs) -> Result<u8, CliError> {
    let pages = pages()?;
    if args.install {
        return install(cx, &pages, args.prefix.as_deref());
    }
    let name = name_of(&args.words);
    let Some(page) = pages.iter().find(|page| page.name == name) else {
        let message = format!("there is no page {name}");
        let hint = "see which commands there are: git agentproto help";
        return Err(CliError::new(Code::Usage, message).with_hint(hint));
    };
    show(cx, page)
}

/// A page: its name without the section, and its text.
struct Page {
    name: String,
    roff: String,
}

/// `policy show`, `policy-show` and `git-agentproto-policy-show` are one page.
fn name_of(words: &[String]) -> String {
    let typed = words.join("-");
    if typed.is_empty() || typed == PROGRAM {
        return PROGRAM.to_owned();
    }
    let own = format!("{PROGRAM}-");
    format!("{own}{}", typed.strip_prefix(&own).unwrap_or(&typed))
}

/// Every page there is, the program's own first.
fn pages() -> Result<Vec<Page>, CliError> {
    let mut top = visible(&Cli::command(), PROGRAM).bin_name("git agentproto");
    top.build();
    let mut pages = Vec::new();
    collect(&top, &[], &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, path: &[&str], pages: &mut Vec<Page>) -> Result<(), CliError> {
    pages.push(page(command, path)?);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path: Vec<&str> = path.iter().copied().chain([below.get_name()]).collect();
        collect(below, &path, pages)?;
    }
    Ok(())
}

fn page(command: &Command, path: &[&str]) -> Result<Page, CliError> {
    let name: String =
        std::iter::once(PROGRAM).chain(path.iter().copied()).collect::<Vec<_>>().join("-");
    let typed =
        std::iter::once("git agentproto").chain(path.iter().copied()).collect::<Vec<_>>().join(" ");
    let command = command.clone().display_name(name.clone()).bin_name(typed);
    let man = Man::new(command)
        .title(name.to_uppercase())
        .section("1")
        .source(format!("git-agentproto {}", env!("CARGO_PKG_VERSION")))
        .manual("Git Agentproto Manual");
    let mut bytes = Vec::new();
    man.render(&mut bytes).map_err(|e| CliError::output(&e))?;
    let text =
        String::from_utf8(bytes).map_err(|e| CliError::new(Code::Internal, e.to_string()))?;
    Ok(Page { roff: text + &more(path), name })
}

/// What a page says beside usage and options.
fn more(path: &[&str]) -> String {
    match path {
        [] => section("EXIT STATUS", &verbatim(EXIT_CODES)) + &see_also(&["git-agentproto-help"]),
        ["ack"] | ["policy", "ack"] => {
            checked_by_hand()
                + &see_also(&["git-agentproto", "git-agentproto-verify", "ssh-keygen"])
        }
        _ => see_also(&["git-agentproto"]),
    }
}

fn section(title: &str, body: &str) -> String {
    format!(".SH \"{title}\"\n{body}")
}

fn see_also(names: &[&str]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| format!("\\fB{}\\fR(1)", escaped(name))).collect();
    section("SEE ALSO", &format!("{}\n", names.join(", ")))
}

/// How an answer is checked without this program: what the walkthrough does, which a test runs.
const WALKTHROUGH: &str = include_str!("../../docs/walkthrough.md");

fn checked_by_hand() -> String {
    let begin = WALKTHROUGH.find("The ack is one line.").unwrap_or(WALKTHROUGH.len());
    let rest = &WALKTHROUGH[begin..];
    let (words, rest) = rest.split_once("```sh\n").unwrap_or((rest, ""));
    let block = rest.split("```").next().unwrap_or_default();
    let words = format!("{}\n", escaped(words.trim_end()));
    section("CHECKING AN ANSWER WITH OPENSSH", &(words + &verbatim(block)))
}

fn verbatim(text: &str) -> String {
    format!(".PP\n.nf\n{}\n.fi\n", escaped(text.trim_end()))
}

/// Text in which nothing is taken for a request or an escape, and a hyphen stays what was typed.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| {
        let is_request = line.starts_with(['.', '\'']);
        if is_request { format!("\\&{line}") } else { line.to_owned() }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Through `man` and its pager at a terminal; the text of the page anywhere else.
fn show(cx: &Cx, page: &Page) -> Result<u8, CliError> {
    if cx.json {
        let object = json!({ "schema": "agentproto/man/1", "name": page.name, "text": page.roff });
        cx.line(&object)?;
        return Ok(exit::DONE);
    }
    let man = if io::stdout().is_terminal() { program(&cx.env, "man") } else { None };
    let Some(man) = man else {
        cx.out(&page.roff)?;
        return Ok(exit::DONE);
    };
    let call = Call {
        program: man,
        args: vec!["-l".into(), "-".into()],
        cwd: cx.env.cwd().to_owned(),
        env: cx.env.vars().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        stdin: page.roff.clone().into_bytes(),
        deadline_ms: 0,
    };
    let ended = spawn::run_to_show(&call).map_err(|e| CliError::new(Code::Io, e.to_string()))?;
    if ended.success() {
        return Ok(exit::DONE);
    }
    let message = format!("man could not show the page: {ended}");
    Err(CliError::new(Code::Io, message).with_hint("see its text: git agentproto man | cat"))
}

fn install(cx: &Cx, pages: &[Page], prefix: Option<&Path>) -> Result<u8, CliError> {
    let prefix = match prefix {
        Some(dir) => cx.env.cwd().join(dir),
        None => own_prefix()?,
    };
    let dir = prefix.join("share/man/man1");
    let written = files::make_dirs(&dir).and_then(|()| {
        let write = |page: &Page| {
            let file = dir.join(format!("{}.1", page.name));
            files::write(&file, page.roff.as_bytes(), Durable::No).map(|()| file)
        };
        pages.iter().map(write).collect::<Result<Vec<PathBuf>, FileError>>()
    });
    let written = written.map_err(|e| {
        let hint = "name a prefix you may write in: git agentproto man --install --prefix ~/.local";
        CliError::new(e.code(), e.to_string()).with_hint(hint)
    })?;
    let place = shown(&dir.display().to_string());
    let mut text = format!("pages written to {place}: {}\n", written.len());
    let found = match manual_page(&cx.env) {
        Ok(Manual::At(found)) => {
            text.push_str("git agentproto --help shows them\n");
            Some(found)
        }
        Ok(Manual::NoProgram | Manual::NotFound) | Err(_) => {
            text.push_str(
                "man does not look there: add its parent to MANPATH, for git agentproto --help\n",
            );
            None
        }
    };
    let object = json!({
        "schema": "agentproto/man-install/1",
        "dir": dir.to_string_lossy(),
        "files": written.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
        "found": found,
    });
    cx.answer(&object, &text)?;
    Ok(exit::DONE)
}

/// The prefix that the program is installed in, which is where `bin` is.
fn own_prefix() -> Result<PathBuf, CliError> {
    let program = own_program().map_err(|e| CliError::new(Code::Io, e.to_string()))?;
    let bin = program.parent().filter(|dir| dir.ends_with("bin"));
    bin.and_then(Path::parent).map(Path::to_owned).ok_or_else(|| {
        let message = format!("the program is in no bin directory: {}", program.display());
        CliError::new(Code::Usage, message)
            .with_hint("name the prefix: git agentproto man --install --prefix DIR")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_of_its_own_and_no_hidden_one_has() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["git-agentproto", "git-agentproto-ack", "git-agentproto-policy-show"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("__")), "{names:?}");
        for page in &pages {
            for part in [".TH", ".SH NAME", ".SH SYNOPSIS", ".SH \"SEE ALSO\""] {
                assert!(page.roff.contains(part), "{part} is not in {}:\n{}", page.name, page.roff);
            }
            assert!(!page.roff.contains("__"), "{}", page.name);
        }
        let ack = pages.iter().find(|page| page.name == "git-agentproto-ack").unwrap();
        assert!(
            ack.roff.contains("ssh\\-keygen \\-Y check\\-novalidate \\-n agentproto\\-ack"),
            "{}",
            ack.roff
        );
    }

    #[test]
    fn a_page_is_found_however_it_is_named() {
        let name =
            |line: &str| name_of(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        for line in ["policy show", "policy-show", "git-agentproto-policy-show"] {
            assert_eq!(name(line), "git-agentproto-policy-show");
        }
        assert_eq!((name(""), name("git-agentproto")), (PROGRAM.into(), PROGRAM.into()));
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_a_request() {
        assert_eq!(escaped(".a\n'b\n-c\\d"), "\\&.a\n\\&'b\n\\-c\\ed");
    }
}
