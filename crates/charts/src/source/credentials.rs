//! Credentials for a registry.

use secrecy::{ExposeSecret as _, SecretString};

/// A user name and its password for the host of one chart reference.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The user name. Not secret, but not in any error either.
    pub username: String,
    /// The password or access token.
    pub password: Password,
}

/// A password, token or key that can be sent, but not printed by accident; its memory is wiped.
#[derive(Debug, Clone)]
pub struct Password(SecretString);

impl Password {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Self {
        Self(SecretString::from(password.into()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// The login at one host.
#[derive(Debug, Clone)]
pub(super) enum Login {
    /// A user name and a password.
    Basic(Credentials),
    /// A token that the registry's token service exchanges for one of a single repository.
    Identity(Password),
    /// A token that is sent as it is.
    Bearer(Password),
}
