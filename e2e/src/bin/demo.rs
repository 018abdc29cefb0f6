//! `make demo`: from nothing to a running composition, and back; `make demo-platform`: to a running platform;
//! `make demo-multicluster`: to tenants on two clusters.
#![allow(clippy::print_stdout, reason = "showing is what a demo is for")]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use e2e::scenario::on_node;
use e2e::trials::installer::Profile;
use e2e::trials::installer::umbrella::{Catalog, RELEASE, VERSION};
use e2e::trials::{bootstrap, multicluster};
use e2e::{ChartFolder, Site, image, platform, progress};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

/// From nothing to a running composition, and back.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set everything up and show it.
    Up(Where),
    /// Install the platform by its umbrella chart, with trial components, and show how it comes up.
    Platform(Where),
    /// A home cluster and two targets with a tenant each, as control planes on this host; one is cut off and comes
    /// back.
    Multicluster,
    /// Remove everything.
    Down {
        /// The cluster that the demo was started on.
        #[arg(long, value_enum, default_value = "local")]
        cluster: Kind,
    },
}

#[derive(Debug, clap::Args)]
struct Where {
    /// A local cluster, or the cluster of the current kubeconfig.
    #[arg(long, value_enum, default_value = "local")]
    cluster: Kind,
    /// With --cluster current: host[:port]/path of a registry that this machine may push to and the cluster
    /// may pull from.
    #[arg(long, required_if_eq("cluster", "current"))]
    registry: Option<String>,
    /// The registry speaks HTTP without TLS.
    #[arg(long, env = "REGISTRY_PLAIN_HTTP", default_value_t = false)]
    plain_http: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Local,
    Current,
}

/// Name of the demo's cluster.
const CLUSTER: &str = "demo";

/// Namespace of the demo's definition and composition.
const NAMESPACE: &str = "demo";

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Up(place) => up(&place),
        Command::Platform(place) => install_platform(&place),
        Command::Multicluster => multicluster::demo::up(&|text| println!("{text}")),
        Command::Down { cluster } => down(cluster),
    }
}

fn up(place: &Where) -> Result<()> {
    let storage = tempfile::tempdir()?;
    let (site, cluster) = site(place, storage.path())?;
    image::push(&site, &image::ENGINE, image::TAG)?;
    platform::install(&site)?;
    compose(&site)?;
    show(&site, cluster.as_ref())
}

/// The platform installed by `kco installer`, as users do it, with its waves in the terminal.
fn install_platform(place: &Where) -> Result<()> {
    let storage = tempfile::tempdir()?;
    let (site, cluster) = site(place, storage.path())?;
    image::push_all(&site)?;
    let profile = Profile::platform();
    let catalog = Catalog::publish(&site, &profile)?;
    let (chart, values) = (catalog.chart(), catalog.values(&profile)?);
    let values = values.to_string_lossy();
    let with_chart = |verb: &str| {
        let mut kco = site.kco([
            "installer",
            verb,
            &chart,
            "--version",
            VERSION,
            "--values",
            &values,
        ])?;
        if site.plain_http() {
            kco.arg("--plain-http");
        }
        Ok(kco)
    };
    println!("{}", site.run(with_chart("check")?)?);
    // It follows the installation by the other program, in this terminal.
    let mut status = site
        .kco(["installer", "status", "--watch", "--until-ready"])?
        .spawn()?;
    let installed = with_chart("install").and_then(|mut install| {
        install.args(["--wait", "--timeout", "10m"]);
        site.run(install)
    });
    if installed.is_err() {
        // It would wait for ever.
        let _ = status.kill();
    }
    let ended = status.wait()?;
    installed.context("the platform was not installed")?;
    ensure!(ended.success(), "the platform did not come up");
    println!("Remove the platform:  kco installer uninstall");
    println!(
        "Remove it all:        make demo-down{}",
        if cluster.is_some() { "" } else { " CLUSTER=current" }
    );
    if cluster.is_some() {
        println!("Look around:          cargo run -qp local-cluster -- exec --name {CLUSTER} -- bash");
    }
    Ok(())
}

/// Where the demo runs, and the cluster, if it is the demo's own.
fn site(place: &Where, storage: &Path) -> Result<(Site, Option<Cluster>)> {
    let (site, cluster) = match place.cluster {
        Kind::Current => (current(place, storage.to_owned())?, None),
        Kind::Local => {
            progress("starting a Kubernetes of its own");
            // The cluster outlives this program, even if a later step fails, so that one can look at it.
            Cluster::start(Options {
                name: Some(CLUSTER.to_owned()),
                ..Options::default()
            })
            .context(
                "the demo's cluster did not start; if there is one already, `make demo-down` removes it",
            )?
            .detach()?;
            let cluster = Cluster::open(CLUSTER)?;
            (Site::local(&cluster)?, Some(cluster))
        }
    };
    Ok((site, cluster))
}

fn current(place: &Where, storage: PathBuf) -> Result<Site> {
    let registry = place
        .registry
        .as_deref()
        .context("--cluster current needs --registry host/path")?;
    let site = Site::current(registry, place.plain_http, storage)?;
    is_reachable(&site)?;
    Ok(site)
}

fn is_reachable(site: &Site) -> Result<()> {
    let server = site.run(site.kubectl(["cluster-info"])).context(
        "the cluster of the current kubeconfig does not answer: set KUBECONFIG, or run `make demo` without \
         CLUSTER=current for a cluster of its own",
    )?;
    progress(server.lines().next().unwrap_or_default());
    Ok(())
}

/// A definition of the sample chart, and an object of the type that it becomes.
fn compose(site: &Site) -> Result<()> {
    progress("chart into the registry");
    let url = ChartFolder::copy("web", "web", "1.0.0")?.push(site)?;
    platform::apply(
        site,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string(),
    )?;
    progress("CompositionDefinition web");
    let mut chart = json!({"url": url, "version": "1.0.0"});
    if site.plain_http() {
        chart["plainHTTP"] = json!(true);
    }
    let definition = json!({
        "apiVersion": "core.krateo.io/v1alpha1",
        "kind": "CompositionDefinition",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"chart": chart},
    });
    platform::apply(site, &definition.to_string())?;
    wait_ready(site, "compositiondefinition/web")?;
    progress("Web hello");
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Web",
        "metadata": {"name": "hello", "namespace": NAMESPACE},
        "spec": {"image": image::reference(site, "web-server"), "replicas": 2, "greeting": "Hello"},
    });
    platform::apply(site, &composition.to_string())?;
    wait_ready(site, "webs/hello")
}

fn wait_ready(site: &Site, object: &str) -> Result<()> {
    let waited = site.run(site.kubectl([
        "wait",
        "--namespace",
        NAMESPACE,
        "--for=condition=Ready",
        object,
        "--timeout=120s",
    ]));
    if let Err(error) = waited {
        let seen = site.run(site.kubectl(["get", "--namespace", NAMESPACE, object, "--output", "yaml"]))?;
        bail!("{object} did not become ready: {error:#}\n{seen}");
    }
    Ok(())
}

fn show(site: &Site, cluster: Option<&Cluster>) -> Result<()> {
    print(
        site,
        "The definition, and the type that it became:",
        &["get", "compositiondefinitions", "--output", "wide"],
    )?;
    print(site, "The composition:", &["get", "compositions"])?;
    println!("\nThe release, as the real Helm sees it:");
    println!("{}", site.run(site.helm(["list", "--namespace", NAMESPACE]))?);
    print(
        site,
        "Its pods:",
        &["get", "pods", "--selector", "app.kubernetes.io/name=web"],
    )?;
    tree(site)?;
    let release = release_name(site)?;
    print(
        site,
        "What its controller may do:",
        &[
            "describe",
            "role",
            &format!("composition:webs:{NAMESPACE}:{release}"),
        ],
    )?;
    if let Some(cluster) = cluster {
        let address = site.run(site.kubectl([
            "get",
            "service",
            "--namespace",
            NAMESPACE,
            &format!("{release}-web"),
            "--output",
            "jsonpath={.spec.clusterIP}",
        ]))?;
        let ask = on_node(
            cluster,
            &[
                "curl",
                "--silent",
                "--fail",
                &format!("http://{}/", address.trim()),
            ],
        )?;
        println!("\nWhat it answers:\n{}", site.run(ask)?);
        println!("Look around:   cargo run -qp local-cluster -- exec --name {CLUSTER} -- bash");
        println!(
            "Change it:     kubectl -n {NAMESPACE} patch web hello --type merge -p '{{\"spec\":{{\"replicas\":3}}}}'"
        );
    }
    println!(
        "Remove it all: make demo-down{}",
        if cluster.is_some() { "" } else { " CLUSTER=current" }
    );
    Ok(())
}

fn print(site: &Site, title: &str, arguments: &[&str]) -> Result<()> {
    let mut command = site.kubectl(["--namespace", NAMESPACE]);
    command.args(arguments);
    println!("\n{title}\n{}", site.run(command)?);
    Ok(())
}

/// The composition and the objects of its release.
fn tree(site: &Site) -> Result<()> {
    let composition = composition(site)?;
    println!("\nThe objects of the release:\nWeb/hello");
    let managed = composition["status"]["managed"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (place, object) in managed.iter().enumerate() {
        let branch = if place + 1 == managed.len() {
            "└─"
        } else {
            "├─"
        };
        println!(
            "{branch} {}/{}",
            object["resource"].as_str().unwrap_or_default(),
            object["name"].as_str().unwrap_or_default()
        );
    }
    Ok(())
}

fn release_name(site: &Site) -> Result<String> {
    let name = composition(site)?["status"]["releaseName"]
        .as_str()
        .map(str::to_owned);
    name.context("the composition's status names no release")
}

fn composition(site: &Site) -> Result<Value> {
    let text = site.run(site.kubectl([
        "get",
        "webs",
        "hello",
        "--namespace",
        NAMESPACE,
        "--output",
        "json",
    ]))?;
    Ok(serde_json::from_str(&text)?)
}

fn down(cluster: Kind) -> Result<()> {
    if cluster == Kind::Local {
        let clusters = local_cluster::state::StateFolder::of_user()?;
        for name in [&[CLUSTER, bootstrap::DEMO][..], &multicluster::demo::NAMES].concat() {
            clusters.remove(name)?;
        }
        return Ok(());
    }
    let storage = tempfile::tempdir()?;
    // Nothing is pushed on the way down, so no registry is needed.
    let site = Site::current("", false, storage.path().to_owned())?;
    is_reachable(&site)?;
    progress("removing the composition and its definition");
    // The objects first, while their controllers still run.
    for object in ["webs", "compositiondefinitions"] {
        let gone = site.run(site.kubectl([
            "delete",
            object,
            "--all",
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
            "--timeout=120s",
        ]));
        if let Err(error) = gone
            && !error.to_string().contains("doesn't have a resource type")
        {
            return Err(error);
        }
    }
    if site
        .run(site.helm(["list", "--short", "--namespace", platform::NAMESPACE]))?
        .lines()
        .any(|name| name == RELEASE)
    {
        progress("kco installer uninstall");
        site.run(site.kco(["installer", "uninstall"])?)?;
    }
    platform::uninstall(&site)?;
    site.run(site.kubectl(["delete", "namespace", NAMESPACE, "--ignore-not-found"]))?;
    Ok(())
}
