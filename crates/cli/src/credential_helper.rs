//! Logins for registries that a Docker credential helper stores, such as `docker-credential-ecr-login`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use charts::source::{Credentials, Password, StoredLogin};
use docker_credential::{CredentialRetrievalError as Failure, DockerCredential};
use serde_json::json;

/// Asks a helper for the login at a server. None if it has none.
///
/// # Errors
///
/// If the helper cannot be run, or fails. The message does not include the helper's output, which may contain a
/// password.
pub(crate) fn ask(helper: &str, server: &str) -> Result<Option<StoredLogin>, String> {
    let config = json!({"credHelpers": {server: helper}}).to_string();
    match docker_credential::get_credential_from_reader(config.as_bytes(), server) {
        Ok(DockerCredential::IdentityToken(token)) => {
            Ok(Some(StoredLogin::IdentityToken(Password::new(token))))
        }
        Ok(DockerCredential::UsernamePassword(username, password)) => {
            Ok(Some(StoredLogin::Credentials(Credentials {
                username,
                password: Password::new(password),
            })))
        }
        // The message of Docker's helpers for that; like in Docker, the registry is then accessed anonymously.
        Err(Failure::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => Ok(None),
        Err(Failure::HelperFailure { .. }) => Err("it failed".to_owned()),
        Err(Failure::MalformedHelperResponse) => {
            Err("its answer is not in the format of a credential helper".to_owned())
        }
        Err(_) => Err("it cannot be run: is it installed and on the PATH?".to_owned()),
    }
}

/// Stores a login in a helper.
///
/// # Errors
/// If it cannot be run, or fails. The message does not include its output.
pub(crate) fn store(helper: &str, server: &str, username: &str, password: &str) -> Result<()> {
    let login = json!({"ServerURL": server, "Username": username, "Secret": password});
    tell(helper, "store", &login.to_string())
}

/// Removes the login at a server from a helper.
///
/// # Errors
/// See [`store`].
pub(crate) fn erase(helper: &str, server: &str) -> Result<()> {
    tell(helper, "erase", server)
}

/// Runs one of the two commands that `docker_credential` does not support.
fn tell(helper: &str, verb: &str, input: &str) -> Result<()> {
    let program = format!("docker-credential-{helper}");
    // A name, not a path.
    ensure!(
        !helper.contains(['/', '\\']),
        "{helper:?} is not the name of a credential helper"
    );
    let mut child = Command::new(&program)
        .arg(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("could not run {program}: is it installed and on the PATH?"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it fails without reading its input, its exit status shows that.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = child
        .wait()
        .with_context(|| format!("could not wait for {program}"))?;
    ensure!(status.success(), "{program} {verb} failed for this registry");
    Ok(())
}
