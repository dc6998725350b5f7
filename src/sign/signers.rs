//! Allowed-signers files as OpenSSH reads them (ssh-keygen(1), ALLOWED SIGNERS).
//!
//! Contract: `principals [options] type base64 [comment]` a line; `#` and blank lines are skipped.
//! One malformed line makes the whole file unusable, named by its number: a file that is half
//! understood must not decide who may approve. A file without any signer cannot be evaluated either.
//! `cert-authority` lines are kept but never allow anything; they are named when their key is asked for.
//! Times without a zone are UTC here, while OpenSSH takes local time: a key must not expire at another
//! instant on another machine. Write the `Z`.

use super::key::fingerprint;
use crate::{code::Code, domain::time::Timestamp};
use ssh_key::PublicKey;

/// Why a file cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignersError {
    /// A line is not understood.
    #[error("line {line} of the allowed-signers file: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Not one signer in it.
    #[error("the allowed-signers file lists nobody")]
    Empty,
    /// Not text.
    #[error("the allowed-signers file is not UTF-8")]
    NotText,
}

impl SignersError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Line { .. } | Self::NotText => Code::SignersInvalid,
            Self::Empty => Code::SignersMissing,
        }
    }
}

/// Why a key may not sign, from the vaguest to the most exact reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Why {
    /// The key is not in the file.
    #[error("key {0} is not an allowed signer")]
    NotListed(String),
    /// It is there, but under other names.
    #[error("the key is listed for '{listed}', required '{required}'")]
    Principal {
        /// The principals of its line.
        listed: String,
        /// The one the ack names.
        required: String,
    },
    /// It is there for other purposes.
    #[error("the key is listed for namespaces '{listed}', required '{required}'")]
    Namespace {
        /// The namespaces of its line.
        listed: String,
        /// The one that is needed.
        required: String,
    },
    /// Its time has not come.
    #[error("the key is valid after {0}")]
    NotYet(String),
    /// Its time is over.
    #[error("the key was valid before {0}")]
    Over(String),
    /// It is listed as a certificate authority.
    #[error("the key is listed as cert-authority, which is not supported")]
    CertAuthority,
}

impl Why {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::CertAuthority => Code::CertAuthorityUnsupported,
            Self::NotListed(_)
            | Self::Principal { .. }
            | Self::Namespace { .. }
            | Self::NotYet(_)
            | Self::Over(_) => Code::Unauthorized,
        }
    }
}

#[derive(Debug, Clone)]
struct Line {
    principals: String,
    options: Options,
    key: PublicKey,
}

#[derive(Debug, Clone, Default)]
struct Options {
    cert_authority: bool,
    namespaces: Option<String>,
    valid_after: Option<Timestamp>,
    valid_before: Option<Timestamp>,
}

/// A whole, understood allowed-signers file.
#[derive(Debug, Clone)]
pub struct Signers(Vec<Line>);

impl Signers {
    /// Parses a file.
    ///
    /// # Errors
    /// Any line is malformed, or there is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, SignersError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SignersError::NotText)?;
        let mut lines = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed =
                parse_line(line).map_err(|why| SignersError::Line { line: at + 1, why })?;
            lines.push(parsed);
        }
        if lines.is_empty() { Err(SignersError::Empty) } else { Ok(Self(lines)) }
    }

    /// True when a line lists a key of its own; certificate authorities allow nobody here.
    #[must_use]
    pub fn lists_a_key(&self) -> bool {
        self.0.iter().any(|line| !line.options.cert_authority)
    }

    /// Whether `key` may sign as `principal` in `namespace` at this instant.
    ///
    /// # Errors
    /// No line allows it; the most exact reason is given.
    pub fn authorize(
        &self,
        key: &PublicKey,
        principal: &str,
        namespace: &str,
        at: Timestamp,
    ) -> Result<(), Why> {
        let mut why = Why::NotListed(fingerprint(key));
        for line in self.lines_of(key) {
            match line.allows(principal, namespace, at) {
                Ok(()) => return Ok(()),
                Err(reason) => why = why.max(reason),
            }
        }
        Err(why)
    }

    /// The name under which `key` signs in `namespace`: `preferred` (the person's `user.email`) if a line
    /// of the key matches it, else the first principal of its lines that is no pattern.
    #[must_use]
    pub fn principal_for(
        &self,
        key: &PublicKey,
        namespace: &str,
        preferred: Option<&str>,
    ) -> Option<String> {
        let usable = || self.lines_of(key).filter(|line| line.is_for(namespace).is_ok());
        let matching = preferred.filter(|name| usable().any(|l| matches(&l.principals, name)));
        let literal = || {
            usable()
                .flat_map(|line| line.principals.split(',').map(move |name| (line, name)))
                .find(|(line, name)| is_literal(name) && matches(&line.principals, name))
                .map(|(_, name)| name)
        };
        matching.or_else(literal).map(str::to_owned)
    }

    /// The keys listed under a name, whatever for: all of them are that person's.
    pub fn keys_of(&self, name: &str) -> impl Iterator<Item = &PublicKey> + use<'_> {
        // Addresses are written in any case; for who is kept out every spelling counts.
        let name = name.to_ascii_lowercase();
        let own = move |line: &&Line| matches(&line.principals.to_ascii_lowercase(), &name);
        self.0.iter().filter(own).map(|line| &line.key)
    }

    /// The keys that may sign in `namespace` at some time.
    pub fn keys_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PublicKey> {
        let usable = move |line: &&Line| line.is_for(namespace).is_ok();
        self.0.iter().filter(usable).map(|line| &line.key)
    }

    fn lines_of<'a>(&'a self, key: &'a PublicKey) -> impl Iterator<Item = &'a Line> {
        self.0.iter().filter(|line| line.key.key_data() == key.key_data())
    }
}

impl Line {
    fn allows(&self, principal: &str, namespace: &str, at: Timestamp) -> Result<(), Why> {
        // First what the key is for: under which name it is listed for other things is beside the point.
        self.is_for(namespace)?;
        if !matches(&self.principals, principal) {
            let listed = self.principals.clone();
            return Err(Why::Principal { listed, required: principal.to_owned() });
        }
        self.is_valid_at(at)
    }

    fn is_for(&self, namespace: &str) -> Result<(), Why> {
        if self.options.cert_authority {
            return Err(Why::CertAuthority);
        }
        match &self.options.namespaces {
            Some(listed) if !matches(listed, namespace) => {
                Err(Why::Namespace { listed: listed.clone(), required: namespace.to_owned() })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_valid_at(&self, at: Timestamp) -> Result<(), Why> {
        match (self.options.valid_after, self.options.valid_before) {
            (Some(after), _) if at.seconds() < after.seconds() => {
                Err(Why::NotYet(after.to_string()))
            }
            (_, Some(before)) if at.seconds() > before.seconds() => {
                Err(Why::Over(before.to_string()))
            }
            (_, _) => Ok(()),
        }
    }
}

fn is_literal(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('!') && !name.contains(['*', '?'])
}

/// A comma-separated pattern list as in ssh_config(5): a negated match decides, else any match.
fn matches(list: &str, text: &str) -> bool {
    let mut found = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(negated) if glob(negated.as_bytes(), text.as_bytes()) => return false,
            Some(_) => {}
            None => found |= glob(pattern.as_bytes(), text.as_bytes()),
        }
    }
    found
}

/// `*` and `?`, without recursion: after a mismatch only the last star can take one byte more.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b) if *b == b'?' || *b == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

fn parse_line(line: &str) -> Result<Line, String> {
    let (principals, rest) = principals(line)?;
    let (options, rest) = match public_key(rest) {
        Ok(_) => (Options::default(), rest),
        Err(_) if starts_like_a_key(rest) => return Err("not a public key".into()),
        Err(_) => options(rest)?,
    };
    Ok(Line { principals, options, key: public_key(rest)? })
}

/// Distinguishes a broken key from options, for the better message.
fn starts_like_a_key(rest: &str) -> bool {
    ["ssh-", "ecdsa-", "sk-"].iter().any(|prefix| rest.starts_with(prefix))
}

fn principals(line: &str) -> Result<(String, &str), String> {
    let (list, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
        None => line.split_once([' ', '\t']).ok_or("a key must follow the principals")?,
    };
    let negated_or_named = |name: &str| !name.is_empty() && name != "!";
    if !list.split(',').all(negated_or_named) {
        return Err("an empty principal".into());
    }
    Ok((list.to_owned(), rest.trim_start()))
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    let mut words = text.split_ascii_whitespace();
    let (Some(kind), Some(data)) = (words.next(), words.next()) else {
        return Err("no public key".into());
    };
    PublicKey::from_openssh(&format!("{kind} {data}"))
        .map_err(|why| format!("not a public key: {why}"))
}

/// Reads `name[="value"],…` up to the first blank outside quotes.
fn options(text: &str) -> Result<(Options, &str), String> {
    let mut options = Options::default();
    let mut rest = text;
    loop {
        let end = rest.find(['=', ',', ' ', '\t']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = match after.strip_prefix('=') {
            Some(value) => {
                let quoted = value.strip_prefix('"').ok_or("an option's value must be quoted")?;
                let (value, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
                options.set(name, value)?;
                after
            }
            None => {
                options.flag(name)?;
                after
            }
        };
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.starts_with([' ', '\t']) => break,
            None => return Err("a public key must follow the options".into()),
        }
    }
    if let (Some(after), Some(before)) = (options.valid_after, options.valid_before)
        && after >= before
    {
        return Err("valid-after is not before valid-before".into());
    }
    Ok((options, rest.trim_start()))
}

impl Options {
    fn flag(&mut self, name: &str) -> Result<(), String> {
        if !name.eq_ignore_ascii_case("cert-authority") {
            return Err(format!("unknown option '{name}'"));
        }
        self.cert_authority = true;
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let doubled = match name.to_ascii_lowercase().as_str() {
            "namespaces" if value.split(',').any(str::is_empty) => {
                return Err("an empty namespace".into());
            }
            "namespaces" => self.namespaces.replace(value.to_owned()).is_some(),
            "valid-after" => self.valid_after.replace(instant(value)?).is_some(),
            "valid-before" => self.valid_before.replace(instant(value)?).is_some(),
            _ => return Err(format!("unknown option '{name}'")),
        };
        if doubled { Err(format!("option '{name}' twice")) } else { Ok(()) }
    }
}

/// `YYYYMMDD[HHMM[SS]][Z]`.
fn instant(text: &str) -> Result<Timestamp, String> {
    let bad = || format!("not a time: '{text}' (write YYYYMMDD[HHMM[SS]]Z)");
    let digits = text.strip_suffix('Z').unwrap_or(text);
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let full = format!("{digits:0<14}");
    let (date, clock) = full.split_at(8);
    let (year, month, day) = (&date[..4], &date[4..6], &date[6..]);
    let (hour, minute, second) = (&clock[..2], &clock[2..4], &clock[4..]);
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse().map_err(|_| bad())
}

#[cfg(test)]
mod tests;
