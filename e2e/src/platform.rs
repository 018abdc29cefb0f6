//! The platform as a user installs it: `helm install` of `charts/core-provider`.

use anyhow::Result;

use crate::{Site, image, progress};

/// Namespace of the platform.
pub const NAMESPACE: &str = "krateo-system";

/// Name of its release.
pub const RELEASE: &str = "core-provider";

/// Installs the platform with the images of the site's registry and waits until it is up.
///
/// Its namespace enforces the restricted Pod Security standard, so a pod that violates it never starts.
///
/// # Errors
/// When Helm fails or the pods do not come up.
pub fn install(site: &Site) -> Result<()> {
    install_with(site, &[])
}

/// Like [`install`], with additional values of its chart, each as for `--set`. An existing installation is upgraded.
///
/// # Errors
/// As [`install`].
pub fn install_with(site: &Site, values: &[String]) -> Result<()> {
    progress("helm install core-provider");
    let namespace = format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}","labels":{{"pod-security.kubernetes.io/enforce":"restricted"}}}}}}"#
    );
    apply(site, &namespace)?;
    let chart = image::root().join("charts/core-provider");
    let registry = format!("image.registry={}", site.registry());
    let tag = format!("image.tag={}", image::TAG);
    let chart = chart.to_string_lossy();
    let mut command = site.helm([
        "upgrade",
        "--install",
        RELEASE,
        chart.as_ref(),
        "--namespace",
        NAMESPACE,
        "--set",
        &registry,
        "--set",
        &tag,
        "--set",
        // The tag stays the same from one build to the next.
        "image.pullPolicy=Always",
        "--set",
        // Changes of a bundle may only be found at the next poll, which takes minutes if nobody shortens it.
        "coreProvider.env.CORE_PROVIDER_POLL_INTERVAL=10s",
        "--wait",
        "--timeout",
        "3m",
    ]);
    for value in values {
        command.args(["--set", value]);
    }
    site.run(command).map(drop)
}

/// Removes the platform and everything that `helm uninstall` leaves: the definitions' type and the namespace.
///
/// # Errors
/// When Helm fails, or something does not go.
pub fn uninstall(site: &Site) -> Result<()> {
    progress("helm uninstall core-provider");
    site.run(site.helm([
        "uninstall",
        RELEASE,
        "--namespace",
        NAMESPACE,
        "--ignore-not-found",
        "--wait",
    ]))?;
    site.run(site.kubectl([
        "delete",
        "crd",
        "compositiondefinitions.core.krateo.io",
        "chartgrants.kco.krateo.io",
        "--ignore-not-found",
    ]))?;
    site.run(site.kubectl(["delete", "namespace", NAMESPACE, "--ignore-not-found"]))?;
    Ok(())
}

/// Applies a manifest as admin.
///
/// # Errors
/// When the API server refuses it; the message has what it said.
pub fn apply(site: &Site, manifest: &str) -> Result<()> {
    apply_with(site, manifest, &[])
}

/// A dry run of it.
///
/// # Errors
/// As [`apply`].
pub fn apply_dry(site: &Site, manifest: &str) -> Result<()> {
    apply_with(site, manifest, &["--dry-run=server"])
}

fn apply_with(site: &Site, manifest: &str, flags: &[&str]) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), manifest)?;
    let path = file.path().to_string_lossy().into_owned();
    let mut command = site.kubectl(["apply", "--server-side", "--filename", &path]);
    command.args(flags);
    site.run(command).map(drop)
}
