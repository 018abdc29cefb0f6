//! Who we are to a registry.

use std::fmt;

/// A user name and its password for the host of one chart reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name. Not secret, yet named in no error either.
    pub username: String,
    /// The password or access token.
    pub password: Password,
}

/// A password that can be sent, but not be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Keeps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}
