//! The multicluster operator in pods, from its chart, and releases with pods of their own.

use anyhow::{Context as _, Result, ensure};
use e2e::namespace::condition;
use e2e::trials::multicluster::{deployment, tenant};
use e2e::{ChartFolder, Namespace, Scenario, Site, image};
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

const OPERATOR: &str = "multicluster-operator";
const HOME: &str = "mesh-home";
const CHART: &str = "tenant-web";

fn is_ready(object: &Value) -> bool {
    object["status"]["phase"] == "Ready"
}

fn reason(object: &Value) -> &str {
    let ready = condition(object, "Ready");
    ready
        .and_then(|ready| ready["reason"].as_str())
        .unwrap_or_default()
}

fn has_pods(place: &Namespace, number: usize) -> Result<()> {
    place.wait_until("the pods of the release to run", || {
        let phases = place.kubectl(&[
            "get",
            "pods",
            "--output=jsonpath={range .items[*]}{.status.phase}{\"\\n\"}{end}",
        ])?;
        let running = phases.lines().filter(|phase| *phase == "Running").count();
        Ok((running == number).then_some(()))
    })
}

#[test]
fn tenants_and_deployments_get_pods_from_an_operator_in_pods() -> Result<()> {
    let scenario = Scenario::start("serve-tenant-pods")?;
    let home = Namespace::make(HOME, scenario.site())?;
    let outcome = serve(&scenario, &home);
    if outcome.is_err() {
        let logs = home.kubectl(&[
            "logs",
            "--selector=app.kubernetes.io/name=multicluster-operator",
            "--tail=200",
        ]);
        e2e::progress(logs.unwrap_or_default());
    }
    home.helm(&["uninstall", OPERATOR])?;
    outcome
}

fn serve(scenario: &Scenario, home: &Namespace) -> Result<()> {
    let site = scenario.site();
    let chart = ChartFolder::copy("web", CHART, "1.0.0")?;
    let url = chart.push(site)?;
    let repo = url.strip_suffix(&format!("/{CHART}")).context("an unusual URL")?;
    let folder = chart.folder().to_string_lossy().into_owned();
    let kubeconfig = scenario.cluster().kubeconfig().to_string_lossy().into_owned();
    let target = [
        "--target-kubeconfig",
        &kubeconfig,
        "--chart",
        &folder,
        "--namespace",
        HOME,
    ];

    // The rights that the chart's objects need, as joining would grant them.
    let mut dry = site.kco(["cluster", "join", "here", "--dry-run"])?;
    dry.args(target);
    let printed: Value = serde_json::from_str(&site.run(dry)?)?;
    let objects = printed["items"].as_array().into_iter().flatten();
    let role = objects.into_iter().find(|object| object["kind"] == "ClusterRole");
    let rules = role.context("no ClusterRole is printed")?["rules"]
        .as_array()
        .cloned();
    let of_chart = |rule: &Value| {
        ["deployments", "services", "configmaps"]
            .iter()
            .any(|kind| rule["resources"].to_string().contains(kind))
    };
    let rules: Vec<Value> = rules.into_iter().flatten().filter(of_chart).collect();
    let values = tempfile::NamedTempFile::new()?;
    let given = json!({
        "image": {"name": image::reference(site, OPERATOR)},
        "chart": {"repo": repo, "name": CHART, "version": "1.0.0", "plainHTTP": true},
        "selfCluster": {"enabled": true, "rules": rules},
        "env": {"KRYPTON_CHECK_INTERVAL": "15"},
    });
    std::fs::write(values.path(), given.to_string())?;
    home.helm(&[
        "install",
        OPERATOR,
        &image::root()
            .join("charts/multicluster-operator")
            .to_string_lossy(),
        "--values",
        &values.path().to_string_lossy(),
    ])?;
    home.kubectl(&["rollout", "status", "deployment", OPERATOR, "--timeout=120s"])?;

    // A Tenant at home.
    let web = |greeting: &str| json!({"image": scenario.web_image(), "greeting": greeting});
    let acme = Namespace::of("pods-acme", site);
    let spec =
        |greeting: &str| json!({"clusterRef": {"secretName": "self-cluster"}, "values": web(greeting)});
    scenario.apply(&tenant(scenario.namespace(), "pods-acme", &spec("one")))?;
    scenario.wait("tenants", "pods-acme", is_ready)?;
    has_pods(&acme, 1)?;

    // A KryptonDeployment on a cluster that joined.
    let mut join = site.kco(["cluster", "join", "edge", "--allow-from", scenario.namespace()])?;
    join.args(target);
    site.run(join)?;
    let shop = Namespace::of("pods-shop", site);
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "edge"}}});
    let shop_with =
        |values: &Value| scenario.apply(&deployment(scenario.namespace(), "pods-shop", &region, values));
    shop_with(&web("one"))?;
    scenario.wait("kryptondeployments", "pods-shop", is_ready)?;
    has_pods(&shop, 1)?;

    // A deleted object is restored, and one that cannot run is reported until it can.
    shop.kubectl(&["delete", "service", "ced-pods-shop-web"])?;
    shop.wait("services", "ced-pods-shop-web", |_| true)?;
    shop_with(&json!({"image": "web.invalid/none:1"}))?;
    scenario.wait("kryptondeployments", "pods-shop", |it| reason(it) == "NotReady")?;
    shop_with(&web("two"))?;
    scenario.wait("kryptondeployments", "pods-shop", is_ready)?;
    has_pods(&shop, 1)?;

    // The leading replica is deleted, and the other one takes over.
    let lease = home.get("leases", OPERATOR)?.context("nobody leads")?;
    let holder = lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let pods = home.kubectl(&["get", "pods", "--output=name"])?;
    let leader = pods
        .lines()
        .find(|pod| holder.contains(pod.trim_start_matches("pod/")));
    let leader = leader.with_context(|| format!("no pod is called as the holder {holder}"))?;
    home.kubectl(&["delete", leader, "--wait=false"])?;
    scenario.apply(&tenant(scenario.namespace(), "pods-acme", &spec("two")))?;
    acme.wait("configmaps", "tenant-pods-acme-self-cluster-web", |it| {
        it["data"]["GREETING"] == "two"
    })?;
    scenario.wait("tenants", "pods-acme", is_ready)?;
    has_pods(&acme, 1)?;

    scenario.kubectl(&["delete", "tenant", "pods-acme", "--timeout=120s"])?;
    scenario.kubectl(&["delete", "kryptondeployment", "pods-shop", "--timeout=120s"])?;
    scenario.wait_gone("namespace", "pods-acme")?;
    scenario.wait_gone("namespace", "pods-shop")?;
    let mut leaving = site.kco(["cluster", "leave", "edge", "--target-kubeconfig", &kubeconfig])?;
    leaving.args(["--namespace", HOME]);
    site.run(leaving).map(drop)
}

/// The name of the cluster with the pods, in its home.
const TARGET: &str = "podded";

/// The namespace of the operator's account there: other scenarios join as well.
const ACCOUNT: &str = "away-account";

/// The releases on it, and the namespaces that are created for them.
const RELEASED: [&str; 2] = ["away-acme", "away-shop"];

#[test]
fn pods_run_on_the_target_and_nothing_at_home() -> Result<()> {
    let scenario = Scenario::start("serve-pods-away")?;
    let plane = ControlPlane::start(Options::default())?;
    let site = Site::host(&plane)?;
    let home = Namespace::make("away-home", &site)?;
    let outcome = serve_away(&scenario, &plane, &home);
    if outcome.is_err() {
        let folder = image::root().join("target/e2e-logs/serve-pods-away-home");
        plane.collect_logs(&folder)?;
        e2e::progress(format_args!("logs of the operator are in {}", folder.display()));
    }
    // The cluster is shared: nothing may be left there, whatever happened to the operator.
    let cleared = clear_away(&scenario, &home);
    outcome?;
    cleared
}

/// An operator with a home of its own, which has no nodes; the shared cluster is its target.
fn serve_away(scenario: &Scenario, plane: &ControlPlane, home: &Namespace) -> Result<()> {
    let (site, namespace) = (scenario.site(), home.namespace());
    let chart = ChartFolder::copy("web", "away-web", "1.0.0")?;
    let url = chart.push(site)?;
    let repo = url.strip_suffix("/away-web").context("an unusual URL")?;
    let kubeconfig = scenario.cluster().kubeconfig().to_string_lossy().into_owned();
    let mut join = home.site().kco(["cluster", "join", TARGET])?;
    join.args(["--namespace", namespace, "--allow-from", namespace]);
    join.args(["--target-kubeconfig", &kubeconfig, "--account-namespace", ACCOUNT]);
    join.args(["--chart", &chart.folder().to_string_lossy()]);
    site.run(join)?;
    let own = plane.kubeconfig().to_string_lossy().into_owned();
    let arguments = [
        "--chart-name=away-web",
        "--chart-version=1.0.0",
        "--chart-plain-http",
        "--metrics-port=0",
        "--health-port=0",
        "--allow-loopback-clusters",
        "--ensure-watch-crds",
        "--self-cluster=false",
        "--check-interval=15s",
        "--debug",
    ];
    let named = [
        ("namespace", namespace),
        ("own-namespace", namespace),
        ("chart-repo", repo),
    ];
    let named = named.map(|(flag, value)| format!("--{flag}={value}"));
    let arguments: Vec<String> = arguments.map(str::to_owned).into_iter().chain(named).collect();
    plane.start_program(
        OPERATOR,
        &image::binary(OPERATOR)?,
        arguments,
        &[("KUBECONFIG", &own)],
    )?;
    home.wait("secrets", TARGET, |secret| {
        let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
        told.is_some_and(|told| told.contains("Engaged"))
    })?;

    let [acme, shop] = RELEASED.map(|name| Namespace::of(name, site));
    let web = |greeting: &str| json!({"image": scenario.web_image(), "greeting": greeting});
    let spec = json!({"clusterRef": {"secretName": TARGET}, "values": web("one")});
    scenario.apply(&tenant(scenario.namespace(), acme.namespace(), &spec))?;
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": TARGET}}});
    let shop_with = |values: &Value| home.apply(&deployment(namespace, shop.namespace(), &region, values));
    let stands = |is_so: &dyn Fn(&Value) -> bool| home.wait("kryptondeployments", shop.namespace(), is_so);
    shop_with(&web("one"))?;
    scenario.wait("tenants", acme.namespace(), is_ready)?;
    has_pods(&acme, 1)?;
    stands(&is_ready)?;
    has_pods(&shop, 1)?;

    // A deleted object is restored, and one that cannot run is named from the first status on, until it can.
    shop.kubectl(&["delete", "service", "ced-away-shop-web"])?;
    shop.wait("services", "ced-away-shop-web", |_| true)?;
    stands(&is_ready)?;
    shop_with(&json!({"image": "web.invalid/none:1"}))?;
    let waits = stands(&|it| reason(it) == "NotReady")?;
    let told = waits["status"]["lastMessage"].as_str().unwrap();
    ensure!(
        told.starts_with("not up: ") && told.ends_with(" away-shop/ced-away-shop-web"),
        "{told}"
    );
    shop_with(&web("two"))?;
    stands(&is_ready)?;
    has_pods(&shop, 1)?;
    for name in RELEASED {
        ensure!(home.get("namespaces", name)?.is_none(), "{name} is at home");
    }
    let pods = home.kubectl(&["get", "pods", "--all-namespaces", "--output=name"])?;
    ensure!(pods.trim().is_empty(), "{pods}");

    scenario.kubectl(&["delete", "tenant", acme.namespace(), "--timeout=120s"])?;
    home.kubectl(&["delete", "kryptondeployment", shop.namespace(), "--timeout=120s"])?;
    for name in RELEASED {
        scenario.wait_gone("namespace", name)?;
    }
    Ok(())
}

/// Removes everything from the target that an operator created there, without an operator.
fn clear_away(scenario: &Scenario, home: &Namespace) -> Result<()> {
    let site = scenario.site();
    if scenario.get("tenants", RELEASED[0])?.is_some() {
        let free = "--patch={\"metadata\":{\"finalizers\":null}}";
        scenario.kubectl(&["patch", "tenant", RELEASED[0], "--type=merge", free])?;
        scenario.kubectl(&["delete", "tenant", RELEASED[0], "--ignore-not-found"])?;
    }
    for name in RELEASED {
        scenario.kubectl(&["delete", "namespace", name, "--ignore-not-found", "--wait=false"])?;
    }
    let kubeconfig = scenario.cluster().kubeconfig().to_string_lossy().into_owned();
    let mut leave = home.site().kco(["cluster", "leave", TARGET, "--keep-releases"])?;
    leave.args([
        "--namespace",
        home.namespace(),
        "--target-kubeconfig",
        &kubeconfig,
    ]);
    site.run(leave).map(drop)
}
