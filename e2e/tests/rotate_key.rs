//! The key of a type: generated once for all versions, again if an admin asks for it, readable by few and written by
//! nobody else.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::Value;

const HOME: &str = "rotate-key";
const SECRET: &str = "keyholders.composition.krateo.io-release-key";

#[test]
fn a_type_has_one_key_until_an_admin_rotates_it_and_keeps_the_previous_one() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let mut url = String::new();
    for version in ["1.0.0", "2.0.0"] {
        let package = ChartFolder::copy("web", "keyholder", version)?.package(home.site())?;
        url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    }
    home.define("one", &url, "1.0.0")?;
    is_deployed(&home, "v1-0-0")?;
    let first = data(&home)?;
    let bytes = BASE64_STANDARD.decode(first["key"].as_str().unwrap())?;
    assert_eq!((bytes.len(), &first["previous"]), (32, &Value::Null));
    // Another version has the same key, and the definitions do not overwrite each other's request.
    home.define("two", &url, "2.0.0")?;
    is_deployed(&home, "v2-0-0")?;
    assert_eq!(data(&home)?, first);

    let ask = |definition: &str, text: &str| {
        let text = format!("krateo.io/rotate-release-key={text}");
        home.kubectl(&[
            "annotate",
            "compositiondefinition",
            definition,
            &text,
            "--overwrite",
        ])
    };
    ask("two", "may")?;
    let second = changed(&home, &first)?;
    assert_eq!(second["previous"], first["key"]);
    // The same text does not ask for another key, on whichever definition.
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "two",
        "krateo.io/rotate-release-key-",
    ])?;
    ask("two", "may")?;
    ask("two", "june")?;
    let third = changed(&home, &second)?;
    assert_eq!(third["previous"], second["key"], "one key was drawn, not two");

    for (account, expected) in [
        ("keyholders-v1-0-0", true),
        ("keyholders-v2-0-0", true),
        ("core-provider", true),
        ("core-provider-chart-inspector", false),
    ] {
        let account = format!("krateo-system:{account}");
        let secret = format!("secrets/{SECRET}");
        let platform = home.platform();
        assert_eq!(platform.may(&account, "get", &secret)?, expected, "{account}");
        assert!(!platform.may(&account, "list", "secrets")?, "{account}");
    }
    assert!(!home.platform().may(
        "krateo-system:keyholders-v1-0-0",
        "patch",
        &format!("secrets/{SECRET}")
    )?);

    // Lost, and generated again at the next pass.
    home.platform().kubectl(&["delete", "secret", SECRET])?;
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "one",
        "example.org/look=again",
    ])?;
    let fourth = changed(&home, &third)?;
    assert_eq!(fourth["previous"], Value::Null);

    home.kubectl(&["delete", "compositiondefinition", "two", "--timeout=90s"])?;
    assert_eq!(data(&home)?, fourth, "the type is still there");
    home.kubectl(&["delete", "compositiondefinition", "one", "--timeout=90s"])?;
    home.platform().wait_gone("secret", SECRET)
}

fn is_deployed(home: &Namespace, version: &str) -> Result<()> {
    let deployment = format!("keyholders-{version}-controller");
    home.platform()
        .wait("deployments", &deployment, |_| true)
        .map(drop)
}

fn data(home: &Namespace) -> Result<Value> {
    let secret = home
        .platform()
        .get("secret", SECRET)?
        .context("the type has no key")?;
    Ok(secret["data"].clone())
}

fn changed(home: &Namespace, before: &Value) -> Result<Value> {
    let is_another =
        |secret: &Value| secret["data"]["key"].is_string() && secret["data"]["key"] != before["key"];
    let secret = home.platform().wait("secret", SECRET, is_another)?;
    Ok(secret["data"].clone())
}
