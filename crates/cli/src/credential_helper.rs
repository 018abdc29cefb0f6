//! What a program of Docker's, such as `docker-credential-ecr-login`, keeps as the login for a registry.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
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

/// Has a helper keep a login.
///
/// # Errors
/// When it cannot be run or fails. What it printed is not part of the message.
pub(crate) fn store(helper: &str, server: &str, username: &str, password: &str) -> Result<()> {
    let login = json!({"ServerURL": server, "Username": username, "Secret": password});
    tell(helper, "store", &login.to_string())
}

/// Has a helper forget the login at a server.
///
/// # Errors
/// As [`store`].
pub(crate) fn erase(helper: &str, server: &str) -> Result<()> {
    tell(helper, "erase", server)
}

/// The two verbs that `docker_credential` does not have.
fn tell(helper: &str, verb: &str, input: &str) -> Result<()> {
    let program = format!("docker-credential-{helper}");
    // A name, not a path.
    ensure!(
        !helper.contains(['/', '\\']),
        "{helper:?} is no name of a credential helper"
    );
    let mut child = Command::new(&program)
        .arg(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("could not run {program}: is it installed and on the PATH?"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read its input says so by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = child
        .wait()
        .with_context(|| format!("could not wait for {program}"))?;
    ensure!(status.success(), "{program} {verb} failed for this registry");
    Ok(())
}
