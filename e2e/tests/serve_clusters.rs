//! Tenants and deployments over two control planes: the short form of the multicluster operator's acceptance test.

use std::time::{Duration, Instant};

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use e2e::Namespace;
use e2e::namespace::condition;
use e2e::trials::multicluster::{CLUSTERS, Clusters, LABEL, deployment, events, said, tenant};
use serde_json::{Value, json};

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn reason(object: &Value) -> &str {
    let ready = condition(object, "Ready");
    ready
        .and_then(|ready| ready["reason"].as_str())
        .unwrap_or_default()
}

fn records(namespace: &Namespace) -> Result<Vec<String>> {
    let printed = namespace.kubectl(&[
        "get",
        "secrets",
        "--selector=owner=helm",
        "--output=jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}",
    ])?;
    Ok(printed.lines().map(str::to_owned).collect())
}

#[test]
fn a_tenant_is_released_on_its_own_cluster() -> Result<()> {
    Clusters::shared()?.explained(release_a_tenant)
}

fn release_a_tenant(clusters: &Clusters) -> Result<()> {
    let (teams, acme) = (clusters.at_remote("teams"), clusters.at_remote("acme"));
    let operator = clusters.start_operator(&[])?;
    // Found after the start.
    clusters.join("remote", &clusters.remote.kubeconfig(), "")?;
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "teams"}}))?;
    teams.wait_until("the type to be served", || {
        Ok((clusters.state("remote")?.as_deref() == Some("Engaged")).then_some(()))
    })?;
    let begun = Instant::now();
    teams.apply(&tenant("teams", "acme", &json!({"values": {"greeting": "hi"}})))?;
    let ready = teams.wait("tenants", "acme", |tenant| phase(tenant) == "Ready")?;
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    assert_eq!(said(&ready, "ClusterReady/remote"), "True Installed", "{ready}");
    assert_eq!(said(&ready, "ClusterProgress/remote"), "False InstallComplete");
    assert_eq!(ready["status"]["releases"][0]["name"], "tenant-acme-remote");
    let settings = acme.get("configmaps", "settings")?;
    assert_eq!(
        settings.map(|settings| settings["data"]["greeting"].clone()),
        Some(json!("hi"))
    );
    assert!(clusters.at_home("acme").get("namespaces", "acme")?.is_none());
    assert_eq!(records(&acme)?, ["sh.helm.release.v1.tenant-acme-remote.v1"]);

    // A tenant of another cluster is not touched.
    let elsewhere = json!({"clusterRef": {"secretName": "self-cluster"}});
    teams.apply(&tenant("teams", "elsewhere", &elsewhere))?;
    let version = |tenant: &Value| tenant["metadata"]["resourceVersion"].clone();
    let before = teams.get("tenants", "elsewhere")?.map(|tenant| version(&tenant));

    // An edit by hand is reverted, because of the watch.
    acme.kubectl(&["delete", "service", "web"])?;
    acme.kubectl(&[
        "patch",
        "configmap",
        "settings",
        "--patch={\"data\":{\"greeting\":\"moved\"}}",
    ])?;
    acme.wait("services", "web", |_| true)?;
    acme.wait("configmaps", "settings", |settings| {
        settings["data"]["greeting"] == "hi"
    })?;

    // The same flags change nothing, another version is one upgrade.
    clusters.kill_operator(&operator)?;
    let operator = clusters.start_operator(&[])?;
    teams.wait_until("the tenant to be skipped", || {
        Ok(events(&teams, "acme")?
            .contains(&"HelmSkip".to_owned())
            .then_some(()))
    })?;
    assert_eq!(records(&acme)?.len(), 1);
    clusters.kill_operator(&operator)?;
    let operator = clusters.start_operator(&["--chart-version=1.1.0"])?;
    let upgraded = teams.wait("tenants", "acme", |tenant| {
        said(tenant, "ClusterReady/remote") == "True Upgraded"
    })?;
    assert!(
        upgraded["status"]["lastAppliedChart"]
            .as_str()
            .is_some_and(|chart| chart.ends_with("/charts/shop:1.1.0")),
        "{upgraded}"
    );
    assert_eq!(records(&acme)?.len(), 2);

    // If the record is gone although there is a fingerprint, the release is installed again.
    acme.kubectl(&["delete", "secrets", "--selector=owner=helm"])?;
    acme.kubectl(&["delete", "service", "web"])?;
    acme.wait("secrets", "sh.helm.release.v1.tenant-acme-remote.v1", |_| true)?;
    acme.wait("services", "web", |_| true)?;

    let after = teams.get("tenants", "elsewhere")?.map(|tenant| version(&tenant));
    assert_eq!(before, after);
    assert!(events(&teams, "elsewhere")?.is_empty());
    assert!(
        clusters
            .at_remote("elsewhere")
            .get("namespaces", "elsewhere")?
            .is_none()
    );

    clusters.kill_operator(&operator)?;
    try_versions_that_fail(clusters, &teams, &acme)?;
    let operator = clusters.start_operator(&["--chart-version=1.1.0"])?;
    let over = teams.wait("tenants", "acme", |tenant| phase(tenant) == "Ready")?;
    assert_eq!(said(&over, "ClusterError/remote"), "False Resolved");

    // Everything that was created for a deleted object is deleted with it.
    teams.kubectl(&["delete", "tenant", "acme", "--wait=false"])?;
    teams.wait_gone("tenants", "acme")?;
    assert!(
        acme.get("namespaces", "acme")?
            .is_none_or(|it| phase(&it) == "Terminating")
    );
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "remote"])?;
    Ok(())
}

/// A failed upgrade is an error without a fingerprint, and a version that does not exist is never released.
fn try_versions_that_fail(clusters: &Clusters, teams: &Namespace, acme: &Namespace) -> Result<()> {
    let fingerprint =
        |tenant: &Value| tenant["metadata"]["annotations"]["mesh.openkcm.io/fingerprint-remote"].clone();
    let installed = teams.get("tenants", "acme")?.map(|tenant| fingerprint(&tenant));
    let mut revisions = None;
    for (version, reason, event) in [
        ("2.0.0", "True UpgradeFailed", "HelmUpgradeFailed"),
        ("1.x.y", "True VersionInvalid", "ChartVersionInvalid"),
        ("9.9.9", "True VersionNotFound", "ChartVersionNotFound"),
        ("garbage", "True VersionInvalid", "ChartVersionInvalid"),
    ] {
        let operator = clusters.start_operator(&[&format!("--chart-version={version}")])?;
        let failed = teams.wait("tenants", "acme", |tenant| {
            said(tenant, "ClusterError/remote") == reason
        })?;
        assert_eq!(phase(&failed), "Error", "{version}");
        assert_eq!(Some(fingerprint(&failed)), installed, "{version}");
        teams.wait_until("the failure to be told", || {
            let told = events(teams, "acme")?;
            Ok(told.iter().any(|reason| reason == event).then_some(()))
        })?;
        clusters.kill_operator(&operator)?;
        // There is no attempt to release a version that does not exist.
        let released = records(acme)?;
        assert!(
            revisions.is_none_or(|before| version == "2.0.0" || before == released),
            "{version}: {released:?}"
        );
        revisions = Some(released);
    }
    Ok(())
}

#[test]
fn a_deployment_is_routed_repaired_and_waits_for_its_cluster() -> Result<()> {
    Clusters::shared()?.explained(route_a_deployment)
}

fn route_a_deployment(clusters: &Clusters) -> Result<()> {
    let (home, payments) = (clusters.at_home("owners"), clusters.at_remote("payments"));
    home.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "owners"}}))?;
    let operator = clusters.start_operator(&["--mode=deployment", "--self-cluster=false"])?;
    home.wait(
        "customresourcedefinitions",
        "kryptondeployments.mesh.openkcm.io",
        |it| it["status"]["acceptedNames"]["kind"] == "KryptonDeployment",
    )?;
    // At first no Secret leads to a cluster, then one without consent, then one with it.
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "edge", "namespace": "owners"}}});
    home.apply(&deployment(
        "owners",
        "payments",
        &region,
        &json!({"greeting": "hi"}),
    ))?;
    home.wait("kryptondeployments", "payments", |it| {
        reason(it) == "EdgeUnavailable"
    })?;
    clusters.join("eu-kubeconfig", &clusters.remote.kubeconfig(), "others")?;
    clusters.join("eu-kubeconfig", &clusters.remote.kubeconfig(), "others,owners")?;
    let touch = |value: &str| {
        let annotation = format!("touched={value}");
        home.kubectl(&[
            "annotate",
            "kryptondeployment",
            "payments",
            &annotation,
            "--overwrite",
        ])
    };
    touch("1")?;
    let ready = home.wait("kryptondeployments", "payments", |it| phase(it) == "Ready")?;
    let release = &ready["status"]["release"];
    assert_eq!(
        [&release["name"], &release["cluster"]],
        ["ced-payments", "eu-kubeconfig"],
        "{ready}"
    );
    assert_eq!(reason(&ready), "Deployed");
    assert!(
        clusters
            .at_home("payments")
            .get("namespaces", "payments")?
            .is_none()
    );

    let begun = Instant::now();
    payments.kubectl(&["delete", "service", "web"])?;
    payments.wait("services", "web", |_| true)?;
    // Within the check interval and 20 s.
    assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
    home.wait_until("the repair to be told", || {
        Ok(events(&home, "payments")?
            .contains(&"RepairTriggered".to_owned())
            .then_some(()))
    })?;

    // There are no pods here.
    let values = |values: &str| {
        let patch = format!("{{\"spec\":{{\"values\":{values}}}}}");
        home.kubectl(&[
            "patch",
            "kryptondeployment",
            "payments",
            "--type=merge",
            "--patch",
            &patch,
        ])
    };
    values(r#"{"workload":true,"replicaCount":1}"#)?;
    let waits = home.wait("kryptondeployments", "payments", |it| reason(it) == "NotReady")?;
    let told = waits["status"]["lastMessage"].as_str().unwrap();
    assert!(
        told.starts_with("not up: ") && told.ends_with(" payments/web"),
        "{told}"
    );
    let operator = restart_before_it_is_noted(clusters, &home, &operator)?;
    values(r#"{"replicaCount":0}"#)?;
    home.wait("kryptondeployments", "payments", |it| phase(it) == "Ready")?;

    // The cluster is unreachable while the object is deleted.
    clusters.remote.kill_component("kube-apiserver")?;
    home.wait_until("the cluster to be missed", || {
        Ok((clusters.state("eu-kubeconfig")?.as_deref() == Some("Unreachable")).then_some(()))
    })?;
    home.kubectl(&["delete", "kryptondeployment", "payments", "--wait=false"])?;
    home.wait("kryptondeployments", "payments", |it| {
        reason(it) == "EdgeUnavailable" && it["metadata"]["deletionTimestamp"].is_string()
    })?;
    clusters.remote.restart_component("kube-apiserver")?;
    home.wait_gone("kryptondeployments", "payments")?;
    payments.wait_until("the namespace to go", || {
        let namespace = payments
            .get("namespaces", "payments")
            .unwrap_or(Some(Value::Null));
        Ok(namespace.is_none().then_some(()))
    })?;

    leave_a_namespace_that_was_there(clusters, &home)?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "eu-kubeconfig"])?;
    Ok(())
}

/// An operator that ends between a release and writing its fingerprint: the next one does not call anything ready that
/// is not up. Returns its name.
fn restart_before_it_is_noted(clusters: &Clusters, home: &Namespace, operator: &str) -> Result<String> {
    const NOTE: &str = "mesh.openkcm.io/fingerprint-eu-kubeconfig";
    let waits_since = || {
        let object = home.get("kryptondeployments", "payments")?.unwrap();
        let ready = condition(&object, "Ready").unwrap().clone();
        anyhow::Ok((ready["status"].clone(), ready["lastTransitionTime"].clone()))
    };
    clusters.kill_operator(operator)?;
    let before = waits_since()?;
    home.kubectl(&["annotate", "kryptondeployment", "payments", &format!("{NOTE}-")])?;
    let operator = clusters.start_operator(&["--mode=deployment", "--self-cluster=false"])?;
    home.wait("kryptondeployments", "payments", |it| {
        it["metadata"]["annotations"][NOTE].is_string()
    })?;
    // For the status, which is written after the fingerprint, and the pass that follows.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(waits_since()?, before);
    Ok(operator)
}

/// A namespace that existed before must consent, and stays.
fn leave_a_namespace_that_was_there(clusters: &Clusters, home: &Namespace) -> Result<()> {
    let shared = clusters.at_remote("shared");
    shared.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shared"}}))?;
    home.apply(&deployment(
        "owners",
        "shared",
        &json!({"name": "eu"}),
        &json!({}),
    ))?;
    home.wait("kryptondeployments", "shared", |it| reason(it) == "HelmFailed")?;
    shared.kubectl(&[
        "annotate",
        "namespace",
        "shared",
        "mesh.openkcm.io/kryptondeployment=shared",
    ])?;
    home.wait("kryptondeployments", "shared", |it| phase(it) == "Ready")?;
    // It withdraws its consent. What was released is still removed with the object.
    shared.kubectl(&[
        "annotate",
        "namespace",
        "shared",
        "mesh.openkcm.io/kryptondeployment-",
    ])?;
    home.kubectl(&["delete", "kryptondeployment", "shared"])?;
    assert!(
        shared
            .get("namespaces", "shared")?
            .is_some_and(|it| phase(&it) == "Active")
    );
    assert!(shared.get("configmaps", "settings")?.is_none());
    Ok(())
}

#[test]
fn a_deployment_is_left_alone_once_its_secret_withdraws_consent_or_is_deleted() -> Result<()> {
    Clusters::shared()?.explained(withdraw_a_secret)
}

fn withdraw_a_secret(clusters: &Clusters) -> Result<()> {
    let (home, ledger) = (clusters.at_home("lenders"), clusters.at_remote("ledger"));
    home.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lenders"}}))?;
    let operator = clusters.start_operator(&["--self-cluster=false"])?;
    home.wait(
        "customresourcedefinitions",
        "kryptondeployments.mesh.openkcm.io",
        |it| it["status"]["acceptedNames"]["kind"] == "KryptonDeployment",
    )?;
    let lend_to = |namespaces: &str| clusters.join("lent", &clusters.remote.kubeconfig(), namespaces);
    let waits_for = |why: &str| {
        home.wait("kryptondeployments", "ledger", |it| {
            let message = it["status"]["lastMessage"].as_str().unwrap_or_default();
            reason(it) == "EdgeUnavailable" && message.contains(why)
        })
    };
    lend_to("lenders")?;
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "lent"}}});
    home.apply(&deployment("lenders", "ledger", &region, &json!({})))?;
    home.wait("kryptondeployments", "ledger", |it| phase(it) == "Ready")?;

    // Without consent nothing is done there, and with it everything continues.
    lend_to("others")?;
    waits_for("does not allow its use from namespace lenders")?;
    ledger.kubectl(&["delete", "service", "web"])?;
    lend_to("lenders")?;
    ledger.wait("services", "web", |_| true)?;
    home.wait("kryptondeployments", "ledger", |it| phase(it) == "Ready")?;

    // A deleted Secret leads nowhere, whoever names it.
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "lent"])?;
    waits_for("is not there")?;
    let log = format!("logs/{operator}.log");
    home.wait_until("the cluster to be let go of", || {
        let log = std::fs::read_to_string(clusters.home.folder().join(&log))?;
        let mut lines = log.lines();
        Ok(lines
            .any(|line| line.contains("Disengaged") && line.contains("lent"))
            .then_some(()))
    })?;
    lend_to("lenders")?;
    home.wait("kryptondeployments", "ledger", |it| phase(it) == "Ready")?;

    // The deprecated field leads there as well.
    let region = json!({"name": "eu", "kubeconfigSecretName": "lent"});
    home.apply(&deployment("lenders", "journal", &region, &json!({})))?;
    home.wait("kryptondeployments", "journal", |it| phase(it) == "Ready")?;
    use_a_secret_of_ones_own(clusters, &home)?;

    // Objects left behind by a forced deletion are listed where the cluster is known.
    let operator = leave_behind(clusters, &home, &operator)?;
    home.kubectl(&["delete", "kryptondeployment", "ledger", "journal"])?;

    // A Secret that is not a kubeconfig of ours any more says so, and so does one that never was.
    let own = clusters.at_home(CLUSTERS);
    own.kubectl(&["label", "secret", "lent", &format!("{LABEL}-")])?;
    clusters.wait_for_state("lent", "Disengaged")?;
    own.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "keyless", "namespace": CLUSTERS, "labels": {LABEL: "true"}},
        "stringData": {"config": "{}"},
    }))?;
    let keyless = own.wait("secrets", "keyless", |it| {
        it["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].is_string()
    })?;
    let told = keyless["metadata"]["annotations"].to_string();
    assert!(
        told.contains("Unreachable") && told.contains("under the key kubeconfig"),
        "{told}"
    );
    clusters.kill_operator(&operator)?;
    own.kubectl(&["delete", "secret", "lent", "keyless"]).map(drop)
}

/// A Secret in the deployment's namespace needs neither consent nor label, and takes precedence over one of the same
/// name in the operator's namespace.
fn use_a_secret_of_ones_own(clusters: &Clusters, home: &Namespace) -> Result<()> {
    let kubeconfig = BASE64_STANDARD.encode(std::fs::read(clusters.remote.kubeconfig())?);
    home.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lent", "namespace": "lenders"},
        "data": {"kubeconfig": kubeconfig},
    }))?;
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "lent", "namespace": "lenders"}}});
    home.apply(&deployment("lenders", "diary", &region, &json!({})))?;
    let ready = home.wait("kryptondeployments", "diary", |it| phase(it) == "Ready")?;
    let release = &ready["status"]["release"];
    assert_eq!(
        [&release["cluster"], &release["clusterNamespace"]],
        ["lent", "lenders"],
        "{ready}"
    );
    home.kubectl(&["delete", "kryptondeployment", "diary", "--timeout=110s"])?;
    assert!(
        clusters
            .at_remote("diary")
            .get("configmaps", "settings")?
            .is_none()
    );
    home.kubectl(&["delete", "secret", "lent"]).map(drop)
}

/// A release that cannot be removed, because a policy keeps one of its objects; returns the name of the operator that
/// runs after it.
fn leave_behind(clusters: &Clusters, home: &Namespace, operator: &str) -> Result<String> {
    let stuck = clusters.at_remote("stuck");
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "lent"}}});
    home.apply(&deployment("lenders", "stuck", &region, &json!({})))?;
    home.wait("kryptondeployments", "stuck", |it| phase(it) == "Ready")?;
    stuck.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "stuck"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["DELETE"],
            }]},
            "validations": [{"expression": "request.namespace != 'stuck'", "message": "it stays"}],
        },
    }))?;
    stuck.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "stuck"}, "spec": {"policyName": "stuck", "validationActions": ["Deny"]},
    }))?;
    stuck.wait_until("services to stay", || {
        let refused = stuck.kubectl(&["delete", "service", "web", "--dry-run=server"]);
        Ok(refused.is_err().then_some(()))
    })?;
    home.kubectl(&["delete", "kryptondeployment", "stuck", "--wait=false"])?;
    home.wait("kryptondeployments", "stuck", |it| reason(it) == "HelmFailed")?;
    home.kubectl(&[
        "annotate",
        "kryptondeployment",
        "stuck",
        "mesh.openkcm.io/force-delete=true",
    ])?;
    home.wait_gone("kryptondeployments", "stuck")?;
    let left = |secret: &Value| {
        let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
        let told: Value = serde_json::from_str(told.unwrap_or("null")).unwrap_or_default();
        told["leftBehind"] == json!(["release ced-stuck in namespace stuck of cluster lent"])
    };
    clusters.at_home(CLUSTERS).wait("secrets", "lent", left)?;
    // It is still reported after the cluster was unreachable, and by another operator.
    clusters.remote.kill_component("kube-apiserver")?;
    home.wait_until("the cluster to be missed", || {
        Ok((clusters.state("lent")?.as_deref() == Some("Unreachable")).then_some(()))
    })?;
    clusters.remote.restart_component("kube-apiserver")?;
    home.wait_until("the cluster to be back", || {
        Ok((clusters.state("lent")?.as_deref() == Some("Engaged")).then_some(()))
    })?;
    clusters.at_home(CLUSTERS).wait("secrets", "lent", left)?;
    clusters.kill_operator(operator)?;
    let operator = clusters.start_operator(&["--self-cluster=false"])?;
    clusters
        .at_home(CLUSTERS)
        .wait("leases", "multicluster-operator", |it| {
            it["spec"]["holderIdentity"]
                .as_str()
                .is_some_and(|holder| !holder.is_empty())
        })?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["annotate", "secret", "lent", "touched=1"])?;
    home.wait("kryptondeployments", "ledger", |it| phase(it) == "Ready")?;
    clusters.at_home(CLUSTERS).wait("secrets", "lent", left)?;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        stuck.kubectl(&["delete", kind, "stuck"])?;
    }
    Ok(operator)
}

#[test]
fn a_repository_that_is_down_is_reported_once_and_retried() -> Result<()> {
    Clusters::shared()?.explained(miss_the_repository)
}

fn miss_the_repository(clusters: &Clusters) -> Result<()> {
    let home = clusters.at_home("patients");
    home.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "patients"}}))?;
    let operator = clusters.start_operator(&[])?;
    home.wait("customresourcedefinitions", "tenants.mesh.openkcm.io", |it| {
        it["status"]["acceptedNames"]["kind"] == "Tenant"
    })?;
    home.apply(&tenant("patients", "beta", &json!({})))?;
    home.wait("tenants", "beta", |it| phase(it) == "Ready")?;
    clusters.kill_operator(&operator)?;

    clusters.repository_is_away(true);
    let operator = clusters.start_operator(&[])?;
    let failed = home.wait("tenants", "beta", |it| phase(it) == "Error")?;
    assert_eq!(said(&failed, "ClusterError/self-cluster"), "True ChartNotLoaded");
    clusters.kill_operator(&operator)?;
    let operator = clusters.start_operator_with(&[], &[("ALLOW_CHART_SKIP", "true")])?;
    home.wait("tenants", "beta", |it| phase(it) == "Ready")?;
    let told = events(&home, "beta")?;
    let told = told.iter().filter(|reason| *reason == "ChartNotLoaded").count();
    assert_eq!(told, 1);
    clusters.repository_is_away(false);
    home.wait("tenants", "beta", |it| {
        said(it, "ClusterError/self-cluster") == "False Resolved"
    })?;
    home.kubectl(&["delete", "tenant", "beta"])?;
    clusters.kill_operator(&operator)
}

#[test]
fn a_failing_install_hook_is_reported_retried_and_survives_a_crash() -> Result<()> {
    Clusters::shared()?.explained(fail_a_hook)
}

fn fail_a_hook(clusters: &Clusters) -> Result<()> {
    let (teams, hooky) = (clusters.at_remote("hooks"), clusters.at_remote("hooky"));
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hooks"}}))?;
    let operator = clusters.start_operator(&["--self-cluster=false", "--mode=tenant"])?;
    clusters.join("hooked", &clusters.remote.kubeconfig(), "")?;
    teams.wait_until("the cluster to be engaged", || {
        Ok((clusters.state("hooked")?.as_deref() == Some("Engaged")).then_some(()))
    })?;
    teams.apply(&tenant("hooks", "hooky", &json!({"values": {"hooked": true}})))?;
    // The kubelet's part.
    let pod = |ends_as: &str, but: &Value| -> Result<Value> {
        let pod = hooky.wait("pods", "check", |pod| pod["metadata"]["uid"] != *but)?;
        let patch = json!({"status": {"phase": ends_as}}).to_string();
        let patch = format!("--patch={patch}");
        hooky.kubectl(&[
            "patch",
            "pod",
            "check",
            "--subresource=status",
            "--type=merge",
            &patch,
        ])?;
        Ok(pod["metadata"]["uid"].clone())
    };
    let first = pod("Failed", &Value::Null)?;
    let failed = teams.wait("tenants", "hooky", |tenant| {
        said(tenant, "ClusterError/hooked") == "True InstallFailed"
    })?;
    assert_eq!(phase(&failed), "Error");
    let why = condition(&failed, "ClusterError/hooked").unwrap()["message"].to_string();
    assert!(why.contains("check"), "{why}");
    assert!(
        failed["metadata"]["annotations"]["mesh.openkcm.io/fingerprint-hooked"].is_null(),
        "{failed}"
    );
    assert!(hooky.get("configmaps", "settings")?.is_none());
    assert!(events(&teams, "hooky")?.contains(&"HelmInstallFailed".to_owned()));

    // It is retried by itself, with a hook of its own. Its operator is killed while that runs, and the next one
    // continues.
    hooky.wait("pods", "check", |pod| pod["metadata"]["uid"] != first)?;
    clusters.kill_operator(&operator)?;
    hooky.kubectl(&["delete", "leases", "--all"])?;
    let operator = clusters.start_operator(&["--self-cluster=false", "--mode=tenant"])?;
    let ready = teams.wait("tenants", "hooky", |tenant| {
        // The next operator decides whether the hook runs once more.
        let pod = hooky.get("pods", "check").ok().flatten().unwrap_or_default();
        if pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"] != first {
            let done = "--patch={\"status\":{\"phase\":\"Succeeded\"}}";
            let _ = hooky.kubectl(&[
                "patch",
                "pod",
                "check",
                "--subresource=status",
                "--type=merge",
                done,
            ]);
        }
        phase(tenant) == "Ready"
    })?;
    assert_eq!(said(&ready, "ClusterError/hooked"), "False Resolved", "{ready}");
    hooky.wait("configmaps", "settings", |_| true)?;
    assert!(ready["metadata"]["annotations"]["mesh.openkcm.io/fingerprint-hooked"].is_string());
    teams.kubectl(&["delete", "tenant", "hooky", "--timeout=60s"])?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "hooked"])?;
    Ok(())
}

#[test]
fn a_chart_is_fetched_with_the_configured_login_and_ca() -> Result<()> {
    Clusters::shared()?.explained(fetch_with_a_login)
}

fn fetch_with_a_login(clusters: &Clusters) -> Result<()> {
    let (repository, authority) = clusters.guarded_repository("robot:s3cr3t-of-the-charts")?;
    let (own, teams) = (clusters.at_home(CLUSTERS), clusters.at_home("readers"));
    own.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "chart-login", "namespace": CLUSTERS},
        "stringData": {"password": "s3cr3t-of-the-charts", "ca.crt": authority},
    }))?;
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "readers"}}))?;
    let repo = format!("--chart-repo={}", repository.url("/charts"));
    let ca = "--chart-ca-secret=chart-login";
    let operator = clusters.start_operator(&[&repo, ca])?;
    own.wait("customresourcedefinitions", "tenants.mesh.openkcm.io", |it| {
        it["status"]["acceptedNames"]["kind"] == "Tenant"
    })?;
    teams.apply(&tenant("readers", "reader", &json!({})))?;
    teams.wait("tenants", "reader", |it| {
        said(it, "ClusterError/self-cluster") == "True ChartNotLoaded"
    })?;
    clusters.kill_operator(&operator)?;
    let login = ["--chart-username=robot", "--chart-password-secret=chart-login"];
    let operator = clusters.start_operator(&[&repo, ca, login[0], login[1]])?;
    let ready = teams.wait("tenants", "reader", |it| phase(it) == "Ready")?;
    assert!(!ready.to_string().contains("s3cr3t"), "{ready}");
    teams.kubectl(&["delete", "tenant", "reader", "--timeout=60s"])?;
    clusters.kill_operator(&operator)?;
    own.kubectl(&["delete", "secret", "chart-login"])?;
    Ok(())
}

#[test]
fn a_new_key_of_records_is_used_at_once() -> Result<()> {
    Clusters::shared()?.explained(rotate_the_key_of_records)
}

fn rotate_the_key_of_records(clusters: &Clusters) -> Result<()> {
    const KEY: &str = "multicluster-operator-release-key";
    const RECORD: &str = "sh.helm.release.v1.tenant-signed-self-cluster.v1";
    let (own, teams, signed) = (
        clusters.at_home(CLUSTERS),
        clusters.at_home("signers"),
        clusters.at_home("signed"),
    );
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "signers"}}))?;
    let operator = clusters.start_operator(&[])?;
    own.wait("customresourcedefinitions", "tenants.mesh.openkcm.io", |it| {
        it["status"]["acceptedNames"]["kind"] == "Tenant"
    })?;
    teams.apply(&tenant("signers", "signed", &json!({})))?;
    teams.wait("tenants", "signed", |it| phase(it) == "Ready")?;
    let mac = |record: &Value| record["metadata"]["annotations"]["krateo.io/release-mac"].clone();
    let before = mac(&signed.get("secrets", RECORD)?.unwrap());
    let rotate = |previous: &str, seed: &str| {
        let data = json!({"data": {"previous": previous, "key": BASE64_STANDARD.encode(seed.repeat(8))}});
        own.kubectl(&["patch", "secret", KEY, "--type=merge", &format!("--patch={data}")])
    };
    let key = own.get("secrets", KEY)?.unwrap()["data"]["key"].clone();
    rotate(key.as_str().unwrap_or_default(), "abcd")?;
    // The same revision, signed again by the same process.
    signed.wait("secrets", RECORD, |record| mac(record) != before)?;
    assert_eq!(records(&signed)?, [RECORD]);
    // After the previous key is removed, the release is still ours.
    rotate("", "abcd")?;
    signed.kubectl(&["delete", "service", "web"])?;
    signed.wait("services", "web", |_| true)?;
    assert_eq!(records(&signed)?, [RECORD]);
    teams.kubectl(&["delete", "tenant", "signed", "--timeout=60s"])?;
    assert!(signed.get("configmaps", "settings")?.is_none());
    clusters.kill_operator(&operator)?;
    Ok(())
}

#[test]
fn a_cluster_that_falls_silent_is_noticed() -> Result<()> {
    Clusters::shared()?.explained(miss_a_silent_cluster)
}

fn miss_a_silent_cluster(clusters: &Clusters) -> Result<()> {
    let lively = clusters.make_at_home("lively")?;
    let operator = clusters.start_operator(&["--probe-interval=30s"])?;
    clusters.wait_for_tenants()?;
    let mut link = clusters.join_by_link("silent")?;
    let home = clusters.at_home(CLUSTERS);
    let stands = |as_: &'static str| {
        home.wait_until(as_, || {
            Ok((clusters.state("silent")?.as_deref() == Some(as_)).then_some(()))
        })
    };
    stands("Engaged")?;
    // No program works there, no connection breaks, and no request fails.
    link.cut();
    // Another cluster is not affected, neither before the failure is noticed nor after.
    let serve_beside = |greeting: &str| -> Result<()> {
        let begun = Instant::now();
        let spec = json!({"values": {"greeting": greeting}});
        lively.apply(&tenant("lively", "beside", &spec))?;
        let place = clusters.at_home("beside");
        place.wait("configmaps", "settings", |it| it["data"]["greeting"] == greeting)?;
        lively.wait("tenants", "beside", |it| phase(it) == "Ready")?;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        Ok(())
    };
    serve_beside("before")?;
    stands("Unreachable")?;
    serve_beside("after")?;
    lively.kubectl(&["delete", "tenant", "beside"])?;
    clusters.kill_operator(&operator)?;
    home.kubectl(&["delete", "secret", "silent"])?;
    Ok(())
}

#[test]
fn a_rotated_kubeconfig_closes_connections_of_the_former_one() -> Result<()> {
    Clusters::shared()?.explained(rotate_a_kubeconfig)
}

fn rotate_a_kubeconfig(clusters: &Clusters) -> Result<()> {
    let teams = clusters.at_remote("rotation");
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rotation"}}))?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator", "namespace": "rotation"}});
    teams.apply(&account)?;
    let admin = [
        "create",
        "clusterrolebinding",
        "operator",
        "--clusterrole=cluster-admin",
    ];
    teams.kubectl(&[&admin[..], &["--serviceaccount=rotation:operator"]].concat())?;
    let operator = clusters.start_operator(&["--self-cluster=false", "--mode=tenant"])?;
    let rotate = || {
        clusters.join(
            "rotated",
            &clusters.remote.kubeconfig_for("rotation", "operator")?,
            "",
        )
    };
    rotate()?;
    teams.wait_until("the cluster to be engaged", || {
        Ok((clusters.state("rotated")?.as_deref() == Some("Engaged")).then_some(()))
    })?;
    teams.apply(&tenant(
        "rotation",
        "gamma",
        &json!({"values": {"greeting": "0"}}),
    ))?;
    let greets = |greeting: &str| {
        clusters
            .at_remote("gamma")
            .wait("configmaps", "settings", |it| it["data"]["greeting"] == greeting)
    };
    greets("0")?;
    let mut files = Vec::new();
    for round in ["1", "2", "3", "4", "5", "6", "7"] {
        rotate()?;
        let patch = format!("{{\"spec\":{{\"values\":{{\"greeting\":\"{round}\"}}}}}}");
        teams.kubectl(&["patch", "tenant", "gamma", "--type=merge", "--patch", &patch])?;
        greets(round)?;
        teams.wait("tenants", "gamma", |it| phase(it) == "Ready")?;
        files.push(clusters.home.usage(&operator)?.files);
    }
    let told = events(&teams, "gamma")?;
    assert!(!told.iter().any(|reason| reason.ends_with("Failed")), "{told:?}");
    // A request or two may be in flight, and in the first rounds some connections have not been opened yet. Those of the
    // former kubeconfig are closed long before an idle connection would be.
    let begun = Instant::now();
    teams.wait_until("the connections to be closed", || {
        let now = clusters.home.usage(&operator)?.files;
        assert!(begun.elapsed() < Duration::from_secs(20), "{files:?}, now {now}");
        Ok((now <= files[2] + 3).then_some(()))
    })?;
    teams.kubectl(&["delete", "tenant", "gamma"])?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "rotated"])?;
    Ok(())
}

#[test]
fn slow_tenants_of_one_namespace_do_not_delay_another() -> Result<()> {
    Clusters::shared()?.explained(outlast_slow_tenants)
}

/// Each tenant of one namespace needs seconds of rendering, one after the other. A tenant of another namespace comes
/// after them, and is reconciled while they still wait.
fn outlast_slow_tenants(clusters: &Clusters) -> Result<()> {
    const GREEDY: usize = 6;
    let (greedy, modest) = (clusters.make_at_home("greedy")?, clusters.make_at_home("modest")?);
    let operator = clusters.start_operator(&["--mode=tenant", "--max-error-retry-interval=10m"])?;
    clusters.wait_for_tenants()?;
    for number in 0..GREEDY {
        let spec = json!({"values": {"tedious": true}});
        greedy.apply(&tenant("greedy", &format!("greedy-{number}"), &spec))?;
    }
    let count = |is_so: &dyn Fn(&Value) -> bool| -> Result<usize> {
        let tenants: Value = serde_json::from_str(&greedy.kubectl(&["get", "tenants", "--output=json"])?)?;
        let tenants = tenants["items"].as_array().into_iter().flatten();
        Ok(tenants.filter(|tenant| is_so(tenant)).count())
    };
    // As many as one namespace may have, of four workers.
    greedy.wait_until("the slow ones to begin", || {
        let begun = count(&|tenant| tenant["metadata"]["finalizers"].is_array())?;
        Ok((begun >= 3).then_some(()))
    })?;
    modest.apply(&tenant("modest", "brisk", &json!({})))?;
    modest.wait("tenants", "brisk", |it| phase(it) == "Ready")?;
    let over = count(&|tenant| phase(tenant) == "Error")?;
    // The one that was running, and one that began before the other's turn.
    assert!(over <= 2, "{over} of {GREEDY} slow tenants came first");
    modest.kubectl(&["delete", "tenant", "brisk"])?;
    greedy.kubectl(&["delete", "tenants", "--all", "--wait=false"])?;
    greedy.wait_until("the slow ones to go", || {
        Ok((count(&|_| true)? == 0).then_some(()))
    })?;
    clusters.kill_operator(&operator)
}
