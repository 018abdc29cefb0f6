//! A cluster whose registry has our images, the components' charts and the installer's chart, and actions on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use local_cluster::audit::{AuditRecord, Mark, Stage};
use local_cluster::{Cluster, Options};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::rendered::NAMESPACE;
use super::{Component, Package, Profile, Subcharts, charts};
use crate::scenario::on_node;
use crate::{Namespace, Site, image, progress, scenario};

/// The first version of the installer.
pub const VERSION: &str = "1.2.3";

/// Name of the release of its bootstrap mode.
pub const RELEASE: &str = "installer";

/// The namespace of core-provider and its controllers.
pub const PLATFORM: &str = "krateo-platform";

/// The group of compositions.
pub const GROUP: &str = "composition.krateo.io";

/// The program that installs and removes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tool {
    /// `helm install` and `helm uninstall`.
    #[default]
    Helm,
    /// `kco installer install` and `kco installer uninstall`.
    Kco,
}

impl Tool {
    /// The command line that a user types, without the verb.
    pub fn words(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Kco => "kco installer",
        }
    }
}

/// The charts of components and of the installer in a site's registry.
pub struct Catalog {
    site: Site,
    folder: TempDir,
}

impl Catalog {
    /// Fills the registry with the charts of a profile and the installer.
    ///
    /// # Errors
    /// When Helm refuses one.
    pub fn publish(site: &Site, profile: &Profile) -> Result<Self> {
        let catalog = Self {
            site: site.clone(),
            folder: tempfile::tempdir()?,
        };
        progress(format_args!(
            "pushing {} charts of components and the installer",
            profile.components().len()
        ));
        for component in profile.components() {
            catalog.push_component(component)?;
        }
        catalog.push_installer(VERSION, profile)?;
        Ok(catalog)
    }

    /// Pushes the chart that stands in for a component.
    ///
    /// # Errors
    /// When Helm refuses it.
    pub fn push_component(&self, component: &Component) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let image = image::reference(&self.site, "web-server");
        let source = charts::write_component(component, folder.path(), &image)?;
        let archives = folder.path().join("archives");
        let mut package = self.site.helm(["package"]);
        package.arg(source).arg("--destination").arg(&archives);
        self.site.run(package)?;
        self.push(&archives.join(format!("{}-{}.tgz", component.name, component.version)))
    }

    /// Pushes a version of the installer, with the values schemas of its components.
    ///
    /// # Errors
    /// When a component's chart is not there, or Helm refuses it.
    pub fn push_installer(&self, version: &str, profile: &Profile) -> Result<()> {
        let temporary = tempfile::tempdir()?;
        let foreign = temporary.path().join("foreign");
        charts::write_foreign(&foreign)?;
        let package = Package {
            version,
            subcharts: Subcharts::From(&foreign),
        };
        let helm = crate::site::helm()?;
        let folder = package.folder(&helm)?;
        let chart = folder.path().join("installer");
        let (chart, values) = (chart.to_string_lossy(), self.values(profile)?);
        let mut schema = self.site.kco(["installer", "schema", &chart, "--values"])?;
        schema.arg(values);
        if self.site.plain_http() {
            schema.arg("--plain-http");
        }
        self.site.run(schema)?;
        self.push(&package.pack(&helm, &folder, temporary.path())?)
    }

    fn push(&self, archive: &Path) -> Result<()> {
        let mut push = self.site.helm(["push"]);
        push.arg(archive).arg(self.charts());
        if self.site.plain_http() {
            push.arg("--plain-http");
        }
        self.site.run(push).map(drop)
    }

    /// Where charts are.
    pub fn charts(&self) -> String {
        format!("oci://{}/charts", self.site.registry())
    }

    /// The installer's chart.
    pub fn chart(&self) -> String {
        format!("{}/installer", self.charts())
    }

    /// A values file: this registry, images with the tag of the scenarios, and these components, each with its feature
    /// on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn values(&self, profile: &Profile) -> Result<PathBuf> {
        let image = json!({"tag": image::TAG, "pullPolicy": "Always"});
        let features = profile.components().iter();
        let features = features.filter_map(|component| component.feature);
        let values = json!({
            "ociRepo": self.charts(),
            "global": {"imageRegistry": self.site.registry()},
            "registryAuth": {"plainHTTP": self.site.plain_http()},
            "hooks": {"image": image},
            "features": features.map(|feature| (feature.to_owned(), json!(true))).collect::<Map<_, _>>(),
            "vertexAI": {"projectID": "trial"},
            "components": profile.list(),
            "core-provider": {"image": image},
        });
        let path = self.folder.path().join("values.yaml");
        // JSON is YAML.
        std::fs::write(&path, values.to_string())?;
        Ok(path)
    }
}

/// A cluster of its own for the platform.
pub struct Umbrella {
    cluster: Cluster,
    site: Site,
    home: Namespace,
    catalog: Catalog,
}

impl Umbrella {
    /// Starts the cluster and fills its registry with our images, the charts of a profile, and the installer.
    ///
    /// # Errors
    /// When the cluster does not come up, or Helm refuses a chart.
    pub fn prepare(profile: &Profile) -> Result<Self> {
        let (cluster, site) = scenario::cluster_with_images(Options::default(), |_| Ok(()))?;
        Ok(Self {
            home: Namespace::of(NAMESPACE, &site),
            catalog: Catalog::publish(&site, profile)?,
            cluster,
            site,
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its tools.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What its registry has.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The namespace of components.
    pub fn home(&self) -> &Namespace {
        &self.home
    }

    /// Installs the installer in a version with the components of a profile, or upgrades it to that.
    ///
    /// # Errors
    /// When values cannot be written, or `kco` is not built.
    pub fn install_by(
        &self,
        tool: Tool,
        is_upgrade: bool,
        version: &str,
        profile: &Profile,
    ) -> Result<Command> {
        let mut command = match tool {
            Tool::Helm if is_upgrade => self.site.helm(["upgrade", RELEASE]),
            Tool::Helm => self.site.helm(["install", RELEASE, "--create-namespace"]),
            Tool::Kco => self.site.kco(["installer", "install"])?,
        };
        command.args([&self.catalog.chart(), "--version", version, "--plain-http"]);
        command.args(["--namespace", NAMESPACE, "--wait", "--timeout", "10m"]);
        command.arg("--values").arg(self.catalog.values(profile)?);
        Ok(command)
    }

    /// Removes it.
    ///
    /// # Errors
    /// When `kco` is not built.
    pub fn uninstall_by(&self, tool: Tool) -> Result<Command> {
        let mut command = match tool {
            Tool::Helm => self.site.helm(["uninstall", RELEASE]),
            Tool::Kco => self.site.kco(["installer", "uninstall"])?,
        };
        command.args(["--namespace", NAMESPACE, "--timeout", "20m"]);
        Ok(command)
    }

    /// What programs of the platform's namespace asked since, watches and Leases aside.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn asked_since(&self, mark: Mark) -> Result<Vec<AuditRecord>> {
        let records = self.cluster.audit().since(mark)?;
        records
            .filter(|record| record.as_ref().map_or(true, is_of_a_program))
            .collect()
    }

    /// MiB that each pod of the platform's namespace holds, by its name.
    ///
    /// # Errors
    /// When one does not tell.
    pub fn memory(&self) -> Result<BTreeMap<String, f64>> {
        let pods = Namespace::of(PLATFORM, &self.site).kubectl(&["get", "pods", "--output", "json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        let mut memory = BTreeMap::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let Some(address) = figures_of(pod) else {
                continue;
            };
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let curl = ["curl", "--silent", "--fail", "--max-time", "5", &address];
            let figures = self.site.run(on_node(&self.cluster, &curl)?)?;
            let bytes = figures
                .lines()
                .find_map(|line| line.strip_prefix("process_resident_memory_bytes "))
                .with_context(|| format!("{name} does not say what memory it holds"))?;
            let bytes: f64 = bytes.trim().parse()?;
            memory.insert(name.to_owned(), bytes / f64::from(1 << 20));
        }
        Ok(memory)
    }

    /// Keeps the logs of pods and of the cluster's programs, and says where.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn keep_logs(&self) -> Result<()> {
        let folder = scenario::logs().join("installer");
        self.cluster.collect_logs(&folder)?;
        progress(format_args!("logs are in {}", folder.display()));
        Ok(())
    }
}

fn is_of_a_program(record: &AuditRecord) -> bool {
    let in_platform = |user: &str| {
        user.strip_prefix("system:serviceaccount:")
            .and_then(|user| user.strip_prefix(PLATFORM))
            .is_some_and(|rest| rest.starts_with(':'))
    };
    record.stage == Stage::ResponseComplete
        && in_platform(&record.user)
        && record.verb != "watch"
        && record.resource != "leases"
}

/// Where a pod's figures are; none for one that does not run or has none.
fn figures_of(pod: &Value) -> Option<String> {
    let ports = pod["spec"]["containers"][0]["ports"].as_array()?;
    let mut ports = ports
        .iter()
        .filter(|port| port["name"] == "metrics" || port["name"] == "http");
    let port = ports.find_map(|port| port["containerPort"].as_u64())?;
    let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    runs.then_some(format!(
        "http://{}:{port}/metrics",
        pod["status"]["podIP"].as_str()?
    ))
}
