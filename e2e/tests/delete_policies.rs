//! The policies that bound a controller are deleted with its definition, even if others changed the roles before.

use anyhow::Result;
use e2e::{ChartFolder, HostPlatform};
use local_cluster::registry::Settings;

#[test]
fn policies_are_deleted_even_if_somebody_removed_the_role_for_that() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace("delete-policies")?;
    let registry = platform
        .plane()
        .start_registry("policies", &Settings::default())?;
    let package = ChartFolder::copy("web", "bounded", "1.0.0")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.define("bounded", &url, "1.0.0")?;
    scenario
        .platform()
        .wait("deployments", "boundeds-v1-0-0-controller", |_| true)?;

    // Paused, so that nothing restores the role before the definition is deleted.
    let pause = |value: &str| {
        let words = [
            "annotate",
            "compositiondefinition",
            "bounded",
            value,
            "--overwrite",
        ];
        scenario.kubectl(&words)
    };
    pause("krateo.io/paused=true")?;
    scenario.wait("compositiondefinitions", "bounded", |definition| {
        e2e::scenario::condition(definition, "Synced")
            .is_some_and(|synced| synced["reason"] == "ReconcilePaused")
    })?;
    scenario.kubectl(&["delete", "clusterrole", "boundeds-v1-0-0-provider"])?;
    scenario.kubectl(&["delete", "compositiondefinition", "bounded", "--wait=false"])?;
    pause("krateo.io/paused-")?;

    scenario.wait_gone("compositiondefinitions", "bounded")?;
    let kinds =
        "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings";
    let mark = "krateo.io/controller-resource=boundeds";
    let left = scenario.kubectl(&["get", kinds, "--selector", mark, "--output=name"])?;
    assert_eq!(left, "");
    Ok(())
}
