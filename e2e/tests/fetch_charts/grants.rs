//! Who may read the Secrets of a definition: the platform's programs, exactly those Secrets, and only as long as the
//! definition names them.

use anyhow::Result;
use e2e::Namespace;
use e2e::namespace::condition;
use serde_json::json;

use super::sources::{PASSWORD, Sources, USER, credentials, fetched, secret};

#[test]
fn the_programs_read_the_named_secrets_and_no_others() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("grants")?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (url, _) = sources.push(&sources.guarded, "granted", "1.0.0", &login)?;
    for name in ["first", "second", "unrelated"] {
        secret(&namespace, name, &json!({"password": PASSWORD}))?;
    }
    let chart = |name| json!({"url": url, "version": "1.0.0", "credentials": credentials("grants", name, "password")});
    let readers = [
        "krateo-system:core-provider",
        "krateo-system:core-provider-chart-inspector",
        "krateo-system:granteds-v1-0-0",
    ];
    let check = |allowed: &str, denied: &[&str]| -> Result<()> {
        for reader in readers {
            assert!(may_read(&namespace, reader, allowed)?, "{reader} reads {allowed}");
            for name in denied {
                assert!(
                    !may_read(&namespace, reader, name)?,
                    "{reader} does not read {name}"
                );
            }
        }
        Ok(())
    };
    fetched(&namespace, "granted", &chart("first"))?;
    check("first", &["second", "unrelated"])?;

    fetched(&namespace, "granted", &chart("second"))?;
    namespace.wait_until("the first Secret to be let go", || {
        Ok((!may_read(&namespace, readers[0], "first")?).then_some(()))
    })?;
    check("second", &["first", "unrelated"])?;

    namespace.kubectl(&["delete", "compositiondefinition", "granted", "--timeout=60s"])?;
    for reader in readers {
        assert!(
            !may_read(&namespace, reader, "second")?,
            "{reader} does not read it any more"
        );
    }
    Ok(())
}

/// The whole way: core-provider, chart-inspector and the controller each fetch with the password.
#[test]
fn a_composition_of_a_chart_behind_a_password_is_installed() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("behind-a-password")?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (url, digest) = sources.push(&sources.guarded, "behind", "1.2.0", &login)?;
    sources.push(&sources.guarded, "behind", "1.0.0", &login)?;
    let credentials = super::sources::password(&namespace)?;
    let chart = json!({"url": url, "version": "~1", "credentials": credentials});
    let definition = fetched(&namespace, "behind", &chart)?;
    assert_eq!(definition["status"]["chart"]["digest"], digest);

    sources.platform.run_controller("behinds", "v1-2-0")?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-2-0",
        "kind": "Behind",
        "metadata": {"name": "web", "namespace": "behind-a-password", "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": "unused", "greeting": "Hi"},
    });
    // The API server admits a new type a moment after it is served; a definition is not Ready before, and here none
    // ever is.
    namespace.wait_until("the type to be known to admission", || {
        match namespace.apply(&composition) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.to_string().contains("There can be a delay") => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    let composition = namespace.wait_for("behinds", "web", "Ready", "True")?;
    assert!(condition(&composition, "Synced").is_some());
    let map = namespace.get("configmap", "fixed-web")?.unwrap();
    assert_eq!(map["data"]["GREETING"], "Hi");
    assert!(namespace.helm(&["list"])?.contains("behind-1.2.0"));
    Ok(())
}

pub(super) fn may_read(namespace: &Namespace, account: &str, secret: &str) -> Result<bool> {
    namespace.may(account, "get", &format!("secrets/{secret}"))
}
