//! A composition that nobody touches costs no request; if one of its objects is touched, a pass follows at once.

use std::time::Duration;

use anyhow::Result;
use e2e::Scenario;
use local_cluster::audit::AuditRecord;
use serde_json::json;

#[test]
fn a_composition_that_nobody_touches_costs_no_request() -> Result<()> {
    let scenario = Scenario::start("leave-composition-alone")?;
    let url = scenario.push_web_chart("quiet", "1.0.0")?;
    scenario.define("quiet", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "quiet", "Ready", "True")?;
    for name in ["one", "two"] {
        scenario.apply(&json!({
            "apiVersion": "composition.krateo.io/v1-0-0",
            "kind": "Quiet",
            "metadata": {
                "name": name, "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": name},
            },
            "spec": {"image": scenario.web_image()},
        }))?;
    }
    for name in ["one", "two"] {
        scenario.wait_for("quiets", name, "Ready", "True")?;
    }
    // Requests in flight may still arrive.
    std::thread::sleep(Duration::from_secs(3));

    let mark = scenario.cluster().audit().mark()?;
    scenario.kubectl(&["annotate", "quiets", "one", "example.com/touched=yes"])?;
    scenario.kubectl(&["label", "quiets", "two", "team=a"])?;
    std::thread::sleep(Duration::from_secs(5));
    let requests = requests(&scenario, mark)?;
    assert!(requests.is_empty(), "{requests:#?}");

    // Only the object that changed is read (and the added field is removed again).
    let mark = scenario.cluster().audit().mark()?;
    scenario.kubectl(&["annotate", "services", "one-web", "example.com/touched=yes"])?;
    scenario.wait_until("a look at the service", || {
        let looked = self::requests(&scenario, mark)?;
        Ok(looked.iter().any(|record| record.name == "one-web").then_some(()))
    })?;
    for record in self::requests(&scenario, mark)? {
        let is_of_two = record.name.starts_with("two") || record.name.contains(".two.");
        assert!(!is_of_two, "{record:?}");
    }
    Ok(())
}

/// The requests of the type's controller, except for its Lease. A renewed watch does not count.
fn requests(scenario: &Scenario, mark: local_cluster::audit::Mark) -> Result<Vec<AuditRecord>> {
    let account = "system:serviceaccount:krateo-system:quiets-v1-0-0";
    let mut requests = Vec::new();
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        if record.user == account && record.resource != "leases" && record.verb != "watch" {
            requests.push(record);
        }
    }
    Ok(requests)
}
