//! The walkthrough is true: every block of it is run, in an empty directory of a fresh machine.

use crate::{
    env::TestEnv,
    markdown::{document, groups, run, shell_blocks},
};

#[test]
fn the_walkthrough_does_what_it_says() {
    let env = TestEnv::bare();
    let blocks = shell_blocks(&document("docs/walkthrough.md"));
    assert!(blocks.len() > 10, "{} blocks only", blocks.len());
    run(&env, &env.path(""), &groups(&blocks));
}

/// A newcomer has a git identity and nothing else.
#[test]
fn the_walkthrough_works_on_a_machine_without_keys() {
    let env = TestEnv::bare();
    env.unset_global("agentproto.signingKey");
    env.unset_global("agentproto.allowedSignersFile");
    run(&env, &env.path(""), &groups(&shell_blocks(&document("docs/walkthrough.md"))));
}
