//! Somebody who has the token of a ServiceAccount, and nothing else.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use local_cluster::output;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{HostPlatform, Site};

/// The API server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Allowed, with the output.
    Allowed(String),
    /// Refused by its rules.
    Denied(String),
    /// Failed for another reason, for example because the object does not exist.
    Failed(String),
}

impl Answer {
    /// Why not; `None` if it was allowed.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(why) | Self::Failed(why) => Some(why),
        }
    }

    /// The output.
    ///
    /// # Errors
    /// When it was not allowed: for what the holder has a right to.
    pub fn printed(self) -> Result<String> {
        match self {
            Self::Allowed(printed) => Ok(printed),
            Self::Denied(why) | Self::Failed(why) => {
                bail!("the attacker may not do what he has a right to: {why}")
            }
        }
    }
}

/// The holder of a token.
pub struct Holder {
    site: Site,
    kubeconfig: NamedTempFile,
    namespace: String,
}

impl Holder {
    /// With the token of a ServiceAccount, by TokenRequest; commands without a namespace use `namespace`.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn of(platform: &HostPlatform, account: (&str, &str), namespace: &str) -> Result<Self> {
        let (place, name) = account;
        let made = platform.plane().kubeconfig_for(place, name)?;
        // A kubeconfig of its own: the original is overwritten for the next holder of the same token.
        let kubeconfig = NamedTempFile::new()?;
        fs::copy(&made, kubeconfig.path()).with_context(|| format!("could not read {}", made.display()))?;
        Ok(Self {
            site: platform.site().clone(),
            kubeconfig,
            namespace: namespace.to_owned(),
        })
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        // A namespace among the arguments comes later and takes precedence.
        let mut command = self.site.kubectl(["--namespace", &self.namespace]);
        command.args(arguments).env("KUBECONFIG", self.kubeconfig.path());
        command.stdin(Stdio::null());
        command
    }

    /// Runs kubectl with these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Result<Answer> {
        let output = self.kubectl(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(Answer::Allowed(
                String::from_utf8_lossy(&output.stdout).into_owned(),
            ));
        }
        let is_denied = ["orbidden", "denied request", "not allowed"]
            .iter()
            .any(|word| said.contains(word));
        let why = reason(&said);
        Ok(if is_denied {
            Answer::Denied(why)
        } else {
            Answer::Failed(why)
        })
    }

    /// Applies an object by server-side apply, taking every field.
    ///
    /// # Errors
    /// As [`Holder::run`].
    pub fn apply(&self, object: &Value) -> Result<Answer> {
        self.write(
            object,
            &["apply", "--server-side", "--force-conflicts", "--validate=false"],
        )
    }

    /// The same as a dry run.
    ///
    /// # Errors
    /// As [`Holder::run`].
    pub fn dry_run(&self, object: &Value) -> Result<Answer> {
        let words = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            "--dry-run=server",
        ];
        self.write(object, &words)
    }

    /// Writes an object with these kubectl arguments.
    ///
    /// # Errors
    /// As [`Holder::run`].
    pub fn write(&self, object: &Value, words: &[&str]) -> Result<Answer> {
        let file = NamedTempFile::new()?;
        fs::write(file.path(), object.to_string())?;
        let path = file.path().to_string_lossy();
        let place = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or(&self.namespace);
        let mut arguments = words.to_vec();
        arguments.extend(["--filename", &path, "--namespace", place]);
        self.run(&arguments)
    }

    /// An object as the holder sees it.
    ///
    /// # Errors
    /// When the holder does not see it.
    pub fn get(&self, resource: &str, name: &str) -> Result<Value> {
        let text = output(&mut self.kubectl(&["get", resource, name, "--output", "json"]))?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// The part of a refusal that contains the reason.
fn reason(said: &str) -> String {
    let said = said.trim().lines().last().unwrap_or_default();
    let start = said
        .find("denied request: ")
        .map_or(0, |at| at + "denied request: ".len());
    said[start..].to_owned()
}
