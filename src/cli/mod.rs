//! (being written)

/// Entry point.
pub fn run() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
