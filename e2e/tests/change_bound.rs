//! A changed policy can be distinguished from the previous one by its messages, so that one is never mistaken for the
//! other.

use anyhow::Result;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::trials::attacks::Holder;
use e2e::{ChartFolder, HostPlatform};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

#[test]
fn a_refusal_names_the_edition_of_the_policy() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace("change-bound")?;
    let registry = platform
        .plane()
        .start_registry("change-bound", &Settings::default())?;
    let package = ChartFolder::copy("web", "edition", "1.0.0")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.define("edition", &url, "1.0.0")?;

    let name = "editions-v1-0-0-grants";
    let edition = |policy: &Value| {
        let message = policy["spec"]["validations"][0]["message"].as_str();
        message.unwrap_or_default().to_owned()
    };
    let before = edition(&scenario.wait("validatingadmissionpolicies", name, |_| true)?);
    let wider = "krateo.io/allowed-kinds=batch/jobs";
    scenario.kubectl(&["annotate", "compositiondefinition", "edition", wider])?;
    let policy = scenario.wait("validatingadmissionpolicies", name, |policy| {
        edition(policy) != before
    })?;
    let now = edition(&policy);
    assert!(now.starts_with("edition "), "{now}");
    let tried = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "composition:editions:editions-v1-0-0:core-provider-dry-run"},
        "rules": [],
    });
    let provider = Holder::of(platform, (NAMESPACE, RELEASE), NAMESPACE)?;
    scenario.wait_until("the policy as it is now to be in force", || {
        let answer = provider.dry_run(&tried)?;
        let said = answer.refusal().unwrap_or_default();
        // Nothing is refused until the API server has loaded the first edition.
        assert!(
            said.is_empty() || said.contains(&now) || said.contains(&before),
            "{said}"
        );
        Ok(said.contains(&now).then_some(()))
    })
}
