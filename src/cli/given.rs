//! What an option names: a file, or `-` for standard input, read whole within a bound.

use super::{cx::Cx, error::CliError};
use crate::{code::Code, domain::path::unquoted, limits, sys::files};
use std::{
    ffi::OsString,
    io::Read as _,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// The bytes of it. `code` is that of a file that cannot be read.
///
/// # Errors
/// It cannot be read, or holds more than `most` bytes.
pub(super) fn whole(
    cx: &Cx,
    (option, code): (&str, Code),
    file: &Path,
    most: u64,
) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes).map(drop)
    } else {
        let opened = files::open_given(&cx.env.cwd().join(file)).map_err(|e| e.source);
        opened.and_then(|f| f.take(most + 1).read_to_end(&mut bytes).map(drop))
    };
    let name = file.display();
    if let Err(e) = read {
        let error = CliError::new(code, format!("{option} {name}: {e}"));
        return Err(error.with_hint("name a readable file"));
    }
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= most) {
        return Ok(bytes);
    }
    Err(CliError::new(Code::TooMany, format!("{option} {name}: more than {most} bytes")))
}

/// The commit message in a file.
///
/// # Errors
/// As [`whole`].
pub(super) fn message(cx: &Cx, file: &Path) -> Result<Vec<u8>, CliError> {
    let read = whole(cx, ("-F", Code::EmptyMessage), file, limits::PATHS_FROM_BYTES);
    read.map_err(|e| e.with_hint("name a readable file, or use -m"))
}

/// The paths that a file lists, one a line or, with `nul`, each with a NUL byte behind it.
///
/// # Errors
/// As [`whole`]; the quoting of a line is broken.
pub(super) fn paths(cx: &Cx, file: &Path, nul: bool) -> Result<Vec<OsString>, CliError> {
    let read = whole(cx, ("--paths-from", Code::NoPaths), file, limits::PATHS_FROM_BYTES);
    path_list(&read?, nul)
}

/// Standard input is meant.
pub(super) fn is_stdin(file: Option<&PathBuf>) -> bool {
    file.is_some_and(|file| file.as_os_str() == "-")
}

/// The paths of a list as git reads one; the last may go without its end.
fn path_list(bytes: &[u8], nul: bool) -> Result<Vec<OsString>, CliError> {
    let end = if nul { b'\0' } else { b'\n' };
    let text = bytes.strip_suffix(&[end]).unwrap_or(bytes);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for (no, line) in text.split(|b| *b == end).enumerate() {
        let path = if nul {
            Some(line.to_vec())
        } else {
            unquoted(line.strip_suffix(b"\r").unwrap_or(line))
        };
        let broken = || {
            let message = format!("--paths-from: the quoting of line {} is broken", no + 1);
            CliError::new(Code::Usage, message).with_hint("quote it as git does, or use -z")
        };
        paths.push(OsString::from_vec(path.ok_or_else(broken)?));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_paths_is_read_as_git_reads_one() {
        let read = |text: &[u8], nul| {
            path_list(text, nul).map(|p| p.join(OsString::from("|").as_os_str()))
        };
        let same = |text: &[u8], nul, want: &[u8]| {
            assert_eq!(read(text, nul).unwrap().into_vec(), want, "{}", text.escape_ascii());
        };
        same(b"", false, b"");
        same(b"\0", true, b"");
        same(b"a\nb c\n", false, b"a|b c");
        same(b"a\r\n\"b\\n\\303\\251\"", false, b"a|b\n\xc3\xa9");
        same(b"a\nb\0\"c\"\0\xff", true, b"a\nb|\"c\"|\xff");
        // An empty name is refused where paths are judged.
        same(b"a\n\nb", false, b"a||b");
        assert_eq!(read(b"a\n\"b\n", false).unwrap_err().code, Code::Usage);
    }
}
