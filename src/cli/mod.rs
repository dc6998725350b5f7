//! (being written)

/// Entry point.
pub fn run() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|a| a == crate::runtime::runner::COMMAND) {
        return crate::runtime::runner::runner_main();
    }
    std::process::ExitCode::SUCCESS
}
