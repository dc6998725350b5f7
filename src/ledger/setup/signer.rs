//! The line of the person's key in the person's own allowed-signers file.
//!
//! Contract: written only when no source in force accepts the key yet (decisions 7), and only after the reader
//! that will judge acks accepted it.

use super::{Key, Setup};
use crate::{
    code::Code,
    ledger::{LedgerError, gates::settings_error},
    sign::{
        NAMESPACE,
        choose::{SignersInForce, SignersInForceError},
        key::{self, SigningKey},
        signers::Signers,
    },
    store::settings::{read_optional, write_private},
    sys::clock,
};

impl Setup<'_> {
    /// Sees to it that the key is an allowed signer; answers with the file that decides. A key that is still to
    /// be made is accepted by nobody yet and is listed once it is there.
    pub(super) fn list_key(&mut self, key: &Key) -> Result<String, LedgerError> {
        let in_force = SignersInForce::load(&self.repo, &self.ledger.env, &self.trust);
        let passed_over = match in_force {
            Ok(found) if self.accepts_key(&found.signers, key) => {
                self.step(false, format!("the key is listed in {}", found.place));
                return Ok(found.place);
            }
            Ok(found) => Some(found.place),
            Err(SignersInForceError::None) => None,
            Err(e) => return Err(LedgerError::refused(e.code(), "signers", e.to_string())),
        };
        let file = self.trust.settings.signers_file();
        let place = file.display().to_string();
        let instead = match passed_over.filter(|other| *other != place) {
            Some(other) => format!(", which decides from now on instead of {other}"),
            None => String::new(),
        };
        self.step(true, format!("the key is listed in {place}{instead}"));
        if let Key::There(key) = key {
            let bytes = self.with_line(key)?;
            self.files.push((file, bytes));
        }
        Ok(place)
    }

    /// Makes the key that was planned and lists it.
    pub(super) fn write_key(&self, key: &Key) -> Result<(), LedgerError> {
        let Key::ToMake(path) = key else { return Ok(()) };
        let made = key::make(path, &self.email()?)
            .map_err(|e| LedgerError::refused(e.code(), "signing key", e.to_string()))?;
        let bytes = self.with_line(&made)?;
        write_private(&self.trust.settings.signers_file(), &bytes).map_err(settings_error)
    }

    fn accepts_key(&self, signers: &Signers, key: &Key) -> bool {
        match key {
            Key::There(key) => self.accepts(signers, key),
            Key::ToMake(_) => false,
        }
    }

    fn accepts(&self, signers: &Signers, key: &SigningKey) -> bool {
        let email = self.email().ok();
        let name = signers.principal_for(key.public(), NAMESPACE, email.as_deref());
        name.is_some_and(|name| {
            signers.authorize(key.public(), &name, NAMESPACE, clock::now()).is_ok()
        })
    }

    /// The person's signers file with a line for the key.
    fn with_line(&self, key: &SigningKey) -> Result<Vec<u8>, LedgerError> {
        let refused = |code, why: String| LedgerError::refused(code, "signers", why);
        let words = key::public_words(key.public());
        let words = words.map_err(|e| refused(e.code(), e.to_string()))?;
        let file = self.trust.settings.signers_file();
        let mut bytes = read_optional(&file).map_err(settings_error)?.unwrap_or_default();
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        let email = self.email()?;
        bytes.extend_from_slice(format!("{email} namespaces=\"{NAMESPACE}\" {words}\n").as_bytes());
        let read = Signers::parse(&bytes).map_err(|e| refused(e.code(), e.to_string()))?;
        if self.accepts(&read, key) {
            return Ok(bytes);
        }
        Err(refused(Code::SignersInvalid, format!("a line for '{email}' would not allow the key")))
    }

    pub(super) fn email(&self) -> Result<String, LedgerError> {
        let email = self.repo.config_snapshot().string("user.email").map(|e| e.to_string());
        email.filter(|e| !e.trim().is_empty()).ok_or_else(|| {
            let because = "git configuration has no user.email to list the key under";
            LedgerError::refused(Code::IdentityMissing, "signers", because)
        })
    }
}
