//! Tests of the command table as a whole.

use super::*;
use clap::CommandFactory as _;

fn words(line: &str) -> Vec<OsString> {
    shell_words::split(line).unwrap().into_iter().map(OsString::from).collect()
}

fn refused(line: &str) -> CliError {
    match Cli::try_parse_from(words(line)) {
        Ok(_) => panic!("accepted: {line}"),
        Err(e) => CliError::usage(&e),
    }
}

#[test]
fn the_table_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn usage_errors_are_one_sentence_and_a_hint() {
    for (line, want) in [
        (
            "ap statu",
            "error: 'statu' is no command [usage]\n\
             hint: did you mean 'status'? usage: git agentproto [OPTIONS] <COMMAND>\n",
        ),
        (
            "ap policy zzz",
            "error: 'zzz' is no command [usage]\n\
             hint: usage: git agentproto policy [OPTIONS] <COMMAND>; the commands: git agentproto help\n",
        ),
        (
            "ap",
            "error: no command is given [usage]\nhint: usage: git agentproto [OPTIONS] <COMMAND>\n",
        ),
        (
            "ap policy",
            "error: no command is given [usage]\n\
             hint: usage: git agentproto policy [OPTIONS] <COMMAND>\n",
        ),
        (
            "ap ack",
            "error: the following required arguments were not provided: <POLICY> [usage]\n\
             hint: usage: git agentproto ack <POLICY>\n",
        ),
        (
            "ap policy list --state odd",
            "error: invalid value 'odd' for '--state <STATE>': [possible values: watching, queued, gating, nudging, signing, \
             awaiting-ack, committing, done, blocked, cancelled] [usage]\n\
             hint: see `git agentproto help`\n",
        ),
    ] {
        assert_eq!(refused(line).to_text(), want, "{line}");
    }
}

#[test]
fn json_is_asked_for_before_the_gate_only() {
    assert!(asks_for_json(&words("ap statu --json")));
    assert!(!asks_for_json(&words("ap attach s -- ls --json")));
}

#[test]
fn names_that_look_like_options_are_names() {
    let cli = Cli::try_parse_from(words("ap commit --path -x --path '' -m -m -- ls -l")).unwrap();
    assert!(matches!(cli.command, Command::Commit(_)));
}
