//! One definition leaves a type, another one takes it over: at no time does the controller have rights without the
//! policies that bound them.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::Value;

const FIRST: &str = "hand-over-first";
const SECOND: &str = "hand-over-second";
const BASE: &str = "batons-v1-0-0";

#[test]
fn a_controller_never_has_rights_without_policies() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let (first, second) = (platform.namespace(FIRST)?, platform.namespace(SECOND)?);
    let registry = platform.plane().start_registry(FIRST, &Settings::default())?;
    let push = |name: &str| -> Result<String> {
        let package = ChartFolder::copy("web", name, "1.0.0")?.package(first.site())?;
        package.push(first.site(), &registry.to_string(), &["--plain-http"])
    };
    let url = push("baton")?;
    let mark = platform.plane().audit().mark()?;
    let is_run_for = |namespace: &Namespace| {
        let role = format!("{BASE}-provider");
        let owner = "krateo.io/composition-definition-namespace";
        let is_theirs = |object: &Value| object["metadata"]["labels"][owner] == namespace.namespace();
        first.wait("clusterrole", &role, is_theirs)?;
        first.wait("clusterrolebinding", BASE, is_theirs)?;
        let deployment = format!("{BASE}-controller");
        first.platform().wait("deployments", &deployment, is_theirs)
    };
    first.define("baton", &url, "1.0.0")?;
    is_run_for(&first)?;
    for (comes, leaves) in [(&second, &first), (&first, &second), (&second, &first)] {
        comes.define("baton", &url, "1.0.0")?;
        comes.wait("compositiondefinitions", "baton", |waiting| {
            condition(waiting, "Ready").is_some_and(|ready| ready["reason"] == "Conflict")
        })?;
        leaves.kubectl(&["delete", "compositiondefinition", "baton", "--wait=false"])?;
        // It is reconciled again and again while the other one leaves.
        for look in 0..20 {
            let look = format!("example.org/look={look}");
            comes.kubectl(&["annotate", "compositiondefinition", "baton", &look, "--overwrite"])?;
        }
        is_run_for(comes)?;
        leaves.wait_gone("compositiondefinitions", "baton")?;
    }
    bounded_at_all_times(platform, mark)
}

/// Checked by core-provider's writes, in order.
fn bounded_at_all_times(platform: &HostPlatform, mark: local_cluster::audit::Mark) -> Result<()> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let bounds: BTreeSet<_> = ["grants", "bundles", "own"]
        .iter()
        .flat_map(|of| {
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
                .map(|kind| (kind.to_owned(), format!("{BASE}-{of}")))
        })
        .collect();
    let rights = ("clusterrolebindings".to_owned(), BASE.to_owned());
    let dry_run = format!("composition:batons:{BASE}:core-provider-dry-run");
    let (mut there, mut given, mut is_proven) = (BTreeSet::new(), 0, false);
    for record in platform.plane().audit().since(mark)? {
        let record = record?;
        // The policies refuse what core-provider writes as a dry run.
        if record.user == account && record.is_dry_run() && record.name == dry_run && record.code == 422 {
            is_proven = true;
        }
        let is_done =
            record.user == account && record.is_write() && !record.is_dry_run() && record.code < 300;
        let object = (record.resource.clone(), record.name.clone());
        if !is_done || !(bounds.contains(&object) || object == rights) {
            continue;
        }
        if object == rights {
            let is_given = record.verb != "delete";
            assert!(
                !is_given || is_proven,
                "{}: the policies are not proven",
                record.uri
            );
            given += usize::from(is_given);
        } else {
            is_proven = false;
        }
        if record.verb == "delete" {
            there.remove(&object);
        } else {
            there.insert(object);
        }
        let missing: Vec<_> = bounds.difference(&there).collect();
        assert!(
            !there.contains(&rights) || missing.is_empty(),
            "{} {}: the controller has its rights without {missing:?}",
            record.verb,
            record.uri
        );
    }
    progress(format_args!("rights were given {given} times"));
    assert!(given >= 4, "only {given} times");
    Ok(())
}
