//! What a program of Docker's, such as `docker-credential-ecr-login`, keeps as the login for a registry.

use charts::source::{Credentials, Kept, Password};
use docker_credential::{CredentialRetrievalError as Failure, DockerCredential};
use serde_json::json;

/// Asks a helper for the login at a server. None when it keeps none.
///
/// # Errors
///
/// When the helper cannot be run or fails. What it printed is not part of the message: it may be a password.
pub(crate) fn ask(helper: &str, server: &str) -> Result<Option<Kept>, String> {
    let config = json!({"credHelpers": {server: helper}}).to_string();
    match docker_credential::get_credential_from_reader(config.as_bytes(), server) {
        Ok(DockerCredential::IdentityToken(token)) => Ok(Some(Kept::IdentityToken(Password::new(token)))),
        Ok(DockerCredential::UsernamePassword(username, password)) => {
            Ok(Some(Kept::Credentials(Credentials {
                username,
                password: Password::new(password),
            })))
        }
        // How the helpers of Docker say so; the registry is then asked as nobody, as Docker does.
        Err(Failure::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => Ok(None),
        Err(Failure::HelperFailure { .. }) => Err("it failed".to_owned()),
        Err(Failure::MalformedHelperResponse) => {
            Err("its answer is not that of a credential helper".to_owned())
        }
        Err(_) => Err("it cannot be run: is it installed and on the PATH?".to_owned()),
    }
}
