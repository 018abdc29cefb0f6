//! The output of a failed hook is shown in the status of its composition.

use anyhow::Result;
use e2e::{ChartFolder, Scenario, image};
use serde_json::json;

/// A flag that none of our programs knows, so that the one in the hook prints its name.
const FLAG: &str = "--told-by-the-hook";

const HOOK: &str = r#"
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-check
  annotations:
    helm.sh/hook: pre-install
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: check
          image: {{ .Values.image | quote }}
          args: ["--told-by-the-hook"]
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
"#;

#[test]
fn the_output_of_a_failed_hook_is_in_the_message_and_the_event_of_its_composition() -> Result<()> {
    let scenario = Scenario::start("report-failed-hook")?;
    let chart = ChartFolder::copy("web", "hooked", "1.0.0")?;
    chart.write("templates/check.yaml", HOOK)?;
    let url = chart.push(scenario.site())?;
    scenario.define("hooked", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "hooked", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Hooked",
        "metadata": {"name": "web", "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": image::reference(scenario.site(), "chart-inspector")},
    }))?;
    let is_told = |text: &str| text.contains("which printed: ") && text.contains(FLAG);
    scenario.wait_until("a condition that quotes the hook", || {
        let found = scenario.get("hookeds", "web")?;
        Ok(found.filter(|composition| is_told(&composition["status"]["conditions"].to_string())))
    })?;
    scenario.wait_until("an event that quotes the hook", || {
        let events = scenario.kubectl(&["get", "events", "--output", "json"])?;
        Ok(is_told(&events).then_some(()))
    })?;
    let role = scenario
        .get("roles", "composition:hookeds:report-failed-hook:fixed")?
        .unwrap();
    let of = |resource: &str| {
        let rules = role["rules"].as_array().into_iter().flatten();
        let verbs = rules
            .filter(|rule| rule["resources"][0] == resource)
            .map(|rule| rule["verbs"].clone());
        verbs.collect::<Vec<_>>()
    };
    assert_eq!(
        (of("pods"), of("pods/log")),
        (vec![json!(["list"])], vec![json!(["get"])])
    );
    Ok(())
}
