//! `kco env`: the environment variables that Helm uses, with their values (Helm's `pkg/cli/environment.go`).

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;
use clap::Args;

use crate::report;

/// The arguments of `helm env`.
#[derive(Debug, Args)]
pub(crate) struct Env {
    /// Print the value of this one alone.
    name: Option<String>,
}

/// What flags say in place of variables, by the variables' names.
static GIVEN: OnceLock<BTreeMap<&'static str, String>> = OnceLock::new();

/// Lets flags count in place of variables, from now on.
pub(crate) fn give(flags: impl IntoIterator<Item = (&'static str, String)>) {
    // A second command in one process keeps the first's; that happens in tests only.
    let _ = GIVEN.set(flags.into_iter().collect());
}

/// The text of a variable, or of the flag in its place.
fn text(name: &str) -> String {
    let given = GIVEN.get().and_then(|given| given.get(name)).cloned();
    given.unwrap_or_else(|| env::var(name).unwrap_or_default())
}

/// Prints all of them sorted by name, or one.
pub(crate) fn run(args: &Env) -> Result<()> {
    let variables = variables();
    if let Some(name) = &args.name {
        let value = variables.get(name.as_str()).map_or("", String::as_str);
        return report::out(&format!("{value}\n"));
    }
    let lines = variables
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\"\n"));
    report::out(&lines.collect::<String>())
}

/// The file or folder that this variable names.
pub(crate) fn path(name: &str) -> PathBuf {
    variables().remove(name).unwrap_or_default().into()
}

fn variables() -> BTreeMap<&'static str, String> {
    let or = |name: &str, default: &str| {
        Some(text(name))
            .filter(|value| !value.is_empty())
            .unwrap_or(default.to_owned())
    };
    let cache = home("HELM_CACHE_HOME", "XDG_CACHE_HOME", ".cache");
    let config = home("HELM_CONFIG_HOME", "XDG_CONFIG_HOME", ".config");
    let data = home("HELM_DATA_HOME", "XDG_DATA_HOME", ".local/share");
    let below = |name: &str, folder: &str, path: &str| or(name, &format!("{folder}/{path}"));
    let number = |name: &str, default: &str| {
        let value = text(name);
        if value.parse::<i64>().is_ok() {
            value
        } else {
            default.to_owned()
        }
    };
    let flag =
        |name: &str| matches!(text(name).as_str(), "1" | "t" | "T" | "TRUE" | "true" | "True").to_string();
    let rate = text("HELM_QPS").parse::<f32>().unwrap_or_default();
    [
        ("HELM_BIN", env::args().next().unwrap_or_default()),
        ("HELM_BURST_LIMIT", number("HELM_BURST_LIMIT", "100")),
        (
            "HELM_CONTENT_CACHE",
            below("HELM_CONTENT_CACHE", &cache, "content"),
        ),
        ("HELM_DEBUG", flag("HELM_DEBUG")),
        ("HELM_KUBEAPISERVER", text("HELM_KUBEAPISERVER")),
        ("HELM_KUBEASGROUPS", text("HELM_KUBEASGROUPS")),
        ("HELM_KUBEASUSER", text("HELM_KUBEASUSER")),
        ("HELM_KUBECAFILE", text("HELM_KUBECAFILE")),
        ("HELM_KUBECONTEXT", text("HELM_KUBECONTEXT")),
        (
            "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
            flag("HELM_KUBEINSECURE_SKIP_TLS_VERIFY"),
        ),
        ("HELM_KUBETLS_SERVER_NAME", text("HELM_KUBETLS_SERVER_NAME")),
        ("HELM_KUBETOKEN", text("HELM_KUBETOKEN")),
        ("HELM_MAX_HISTORY", number("HELM_MAX_HISTORY", "10")),
        ("HELM_NAMESPACE", or("HELM_NAMESPACE", "default")),
        ("HELM_PLUGINS", below("HELM_PLUGINS", &data, "plugins")),
        ("HELM_QPS", format!("{rate:.2}")),
        (
            "HELM_REGISTRY_CONFIG",
            below("HELM_REGISTRY_CONFIG", &config, "registry/config.json"),
        ),
        (
            "HELM_REPOSITORY_CACHE",
            below("HELM_REPOSITORY_CACHE", &cache, "repository"),
        ),
        (
            "HELM_REPOSITORY_CONFIG",
            below("HELM_REPOSITORY_CONFIG", &config, "repositories.yaml"),
        ),
        ("HELM_CACHE_HOME", cache),
        ("HELM_CONFIG_HOME", config),
        ("HELM_DATA_HOME", data),
    ]
    .into()
}

/// One of Helm's folders: named by its own variable, or below the XDG folder or the home folder.
fn home(own: &str, base: &str, usual: &str) -> String {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let folder = set(own).unwrap_or_else(|| {
        let base = set(base).unwrap_or_else(|| env::home_dir().unwrap_or_default().join(usual));
        base.join("helm")
    });
    folder.display().to_string()
}
