//! Secrets that do not exist, lack the key, or belong to somebody else.

use anyhow::Result;
use e2e::namespace::condition;
use serde_json::json;

use super::grants::may_read;
use super::sources::{PASSWORD, Sources, USER, credentials, fetched, refused, refused_for_now, secret};

#[test]
fn a_secret_that_cannot_be_used_is_named_with_what_it_lacks() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("secrets")?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (url, _) = sources.push(&sources.guarded, "secretive", "1.0.0", &login)?;
    let chart = |credentials| json!({"url": url, "version": "1.0.0", "credentials": credentials});
    refused_for_now(
        &namespace,
        "missing-secret",
        &chart(credentials("secrets", "nowhere", "password")),
        "Secret secrets/nowhere with the registry's password does not exist: create it, or correct credentials.passwordRef",
    )?;
    secret(&namespace, "other-key", &json!({"token": PASSWORD}))?;
    refused(
        &namespace,
        "missing-key",
        &chart(credentials("secrets", "other-key", "password")),
        "Secret secrets/other-key has no key password with the registry's password: its keys are token",
    )?;
    // Once the Secret exists, the definition continues by itself.
    secret(&namespace, "nowhere", &json!({"password": PASSWORD}))?;
    namespace.wait_for("compositiondefinitions", "missing-secret", "Synced", "True")?;
    Ok(())
}

#[test]
fn a_secret_of_another_namespace_is_used_only_when_it_says_so() -> Result<()> {
    let sources = Sources::shared()?;
    let vault = sources.platform.namespace("vault")?;
    let namespace = sources.platform.namespace("borrower")?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (url, _) = sources.push(&sources.guarded, "borrowed", "1.0.0", &login)?;
    secret(&vault, "password", &json!({"password": PASSWORD}))?;
    let before = sources.service.asked().len();
    let chart =
        json!({"url": url, "version": "1.0.0", "credentials": credentials("vault", "password", "password")});
    let message = "Secret vault/password with the registry's password does not exist or does not allow its use from \
                   namespace borrower: annotate it with krateo.io/allow-from-namespaces: borrower, or name one of that \
                   namespace in credentials.passwordRef";
    refused_for_now(&namespace, "borrowed", &chart, message)?;
    assert_eq!(sources.service.asked().len(), before, "nothing was sent anywhere");

    vault.kubectl(&[
        "annotate",
        "secret",
        "password",
        "krateo.io/allow-from-namespaces=other,borrower",
    ])?;
    namespace.wait_for("compositiondefinitions", "borrowed", "Synced", "True")?;
    let readers = [
        "krateo-system:core-provider-chart-inspector",
        "krateo-system:borroweds-v1-0-0",
    ];
    for reader in readers {
        assert!(may_read(&vault, reader, "password")?, "{reader}");
    }

    // Consent can be withdrawn, and given again.
    vault.kubectl(&[
        "annotate",
        "secret",
        "password",
        "krateo.io/allow-from-namespaces-",
    ])?;
    let definition = namespace.wait_for("compositiondefinitions", "borrowed", "Synced", "False")?;
    assert_eq!(
        condition(&definition, "Synced").unwrap()["message"],
        format!("could not observe the definition: could not fetch the chart: {message}")
    );
    assert!(vault.get("role", "borroweds-v1-0-0-secret")?.is_none());
    assert!(vault.get("rolebinding", "borroweds-v1-0-0-secret")?.is_none());
    vault.kubectl(&[
        "annotate",
        "secret",
        "password",
        "krateo.io/allow-from-namespaces=borrower",
    ])?;
    namespace.wait_for("compositiondefinitions", "borrowed", "Synced", "True")?;
    for reader in readers {
        assert!(may_read(&vault, reader, "password")?, "{reader}");
    }
    Ok(())
}

#[test]
fn a_namespace_that_is_not_there_is_named() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("lost")?;
    let chart = json!({
        "url": format!("oci://{}/charts/none", sources.guarded),
        "version": "1.0.0",
        "credentials": credentials("nirvana", "password", "password"),
    });
    namespace.define_as("lost", &chart)?;
    let definition = namespace.wait_for("compositiondefinitions", "lost", "Synced", "False")?;
    assert_eq!(
        condition(&definition, "Synced").unwrap()["message"],
        "could not reconcile the definition: namespace nirvana of the Secrets that fetching the chart needs does not \
         exist: create it, or correct the reference"
    );
    Ok(())
}

#[test]
fn fields_that_contradict_each_other_are_refused_at_once() -> Result<()> {
    let namespace = Sources::shared()?.platform.namespace("contradictions")?;
    let check = |chart: serde_json::Value, message: &str| {
        let error = namespace
            .define_as("contradiction", &chart)
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{chart}: {error}");
    };
    let url = "https://charts.example/web-1.0.0.tgz";
    let item = json!({"name": "some"});
    check(
        json!({"url": url, "credentials": credentials("a", "b", "c"), "dockerConfigRef": item}),
        "credentials and dockerConfigRef both say who we are: keep one of them",
    );
    check(
        json!({"url": "oci://charts.example/web", "plainHTTP": true, "caBundleRef": item}),
        "plainHTTP speaks without TLS, caBundleRef and clientCertRef are for TLS: keep the one or the others",
    );
    check(
        json!({"url": url, "insecureSkipVerifyTLS": true, "caBundleRef": item}),
        "insecureSkipVerifyTLS takes any certificate, caBundleRef only those it signs: keep one of them",
    );
    check(
        json!({"url": url, "verify": {}}),
        "verify needs exactly one of keyringRef and cosignKeyRef",
    );
    check(
        json!({"url": url, "verify": {"cosignKeyRef": item}}),
        "cosign signatures are kept in registries: verify.cosignKeyRef needs an oci:// url",
    );
    check(json!({"url": url, "digest": "sha256:short"}), "spec.chart.digest");
    Ok(())
}

#[test]
fn a_definition_goes_although_its_registry_and_its_secret_are_gone() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("goes")?;
    let plane = sources.platform.plane();
    let address = plane.start_registry("short-lived", &local_cluster::registry::Settings::default())?;
    let (url, _) = sources.push(&address.to_string(), "short-lived", "1.0.0", &["--plain-http"])?;
    let credentials = super::sources::password(&namespace)?;
    let definition = fetched(
        &namespace,
        "short-lived",
        &json!({"url": url, "version": "1.0.0", "credentials": credentials}),
    )?;
    let uid = definition["metadata"]["uid"].as_str().unwrap().to_owned();
    plane.kill_component("short-lived")?;
    namespace.kubectl(&["delete", "secret", "password"])?;
    namespace.kubectl(&["delete", "compositiondefinition", "short-lived", "--timeout=60s"])?;
    let label = format!("krateo.io/composition-definition-id={uid}");
    let left = namespace.kubectl(&[
        "get",
        "roles,rolebindings",
        "--all-namespaces",
        "--selector",
        &label,
        "--output",
        "name",
    ])?;
    assert_eq!(left.trim(), "");
    Ok(())
}
