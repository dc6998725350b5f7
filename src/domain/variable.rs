//! Names of environment variables: which no gate is given, by whomever, and which a person calls secret.

/// Loads code into a program, or gives a shell its first commands.
const NEVER: [&str; 2] = ["BASH_ENV", "ENV"];
/// Redirects git, or loads code into every program.
const NEVER_PREFIXES: [&str; 2] = ["GIT_", "LD_"];
/// What every gate gets from us.
const OURS: [&str; 3] = ["CI", "PATH", "PWD"];
const OUR_PREFIX: &str = "AGENTPROTO_";

/// True for what no gate gets, whoever names it: a gate that runs its own git must not hit the supervised repository.
#[must_use]
pub fn is_never(name: &[u8]) -> bool {
    NEVER.iter().any(|n| n.as_bytes() == name)
        || NEVER_PREFIXES.iter().any(|p| name.starts_with(p.as_bytes()))
}

/// True for what every gate gets from us, and from nobody else.
#[must_use]
pub fn is_ours(name: &[u8]) -> bool {
    OURS.iter().any(|n| n.as_bytes() == name) || name.starts_with(OUR_PREFIX.as_bytes())
}

/// True when a name is like a pattern, in which `*` stands for any characters and `?` for one. Upper and lower case are
/// the same: the pattern is there to keep things back.
#[must_use]
pub fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| is_like(rest, &name[at..])),
        Some((one, rest)) => name.split_first().is_some_and(|(first, left)| {
            (*one == b'?' || one.eq_ignore_ascii_case(first)) && is_like(rest, left)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, want) in [
            ("*TOKEN*", "api_token", true),
            ("*TOKEN*", "TOKEN", true),
            ("*TOKEN*", "TOKE", false),
            ("API_?EY", "API_KEY", true),
            ("API_?EY", "API_EY", false),
            ("API", "API_KEY", false),
            ("*", "", true),
            ("", "A", false),
            ("A**B*", "AxByB", true),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), name.as_bytes()), want, "{pattern} {name}");
        }
    }
}
