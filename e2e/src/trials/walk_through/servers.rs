//! Servers in place of the addresses in the walk-throughs: two chart repositories and two registries on the cluster's
//! network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::Cluster;
use local_cluster::registry::Settings;
use tempfile::TempDir;

use super::charts::{Clones, fireworks, postgresql};
use super::foreign;
use crate::host_platform::password;
use crate::http_server::{Answer, Asked};
use crate::{ChartFolder, HttpServer, Site, image};

/// The user for servers with a password.
pub(super) const USER: &str = "yourusername";

/// That user's password.
const TOKEN: &str = "your_token";

/// A version of fireworks-app that ships a `ClusterRole`.
pub(super) const WITH_ROLE: &str = "1.1.9";

/// A version that brings a kind and an object of it, and whose objects pause with the composition.
pub(super) const WITH_KIND: &str = "1.2.0";

pub(super) struct Servers {
    /// `https://charts.krateo.io`.
    public: HttpServer,
    /// A repository with a password.
    guarded: HttpServer,
    /// The cluster's registry, in place of `registry-1.docker.io/bitnamicharts`.
    registry: String,
    /// A registry with a password.
    private: String,
}

impl Servers {
    pub(super) fn start(cluster: &Cluster, site: &Site, clones: &Clones) -> Result<Self> {
        let host = cluster.host_address()?;
        clones.chart(&postgresql())?.push(site)?;
        let settings = Settings {
            access: password(cluster.folder(), USER, TOKEN)?,
            ..Settings::default()
        };
        let private = cluster.start_registry_at(host, "private", &settings)?.to_string();
        let login = ["--username", USER, "--password", TOKEN, "--plain-http"];
        let old = clones.chart_as(&fireworks("5"), "0.1.0")?;
        old.package(site)?.push(site, &private, &login)?;

        let public = Repository::new(site)?;
        for patch in ["5", "6", "7"] {
            public.add(&clones.chart(&fireworks(patch))?)?;
        }
        public.add(&with_role(clones)?)?;
        public.add(&with_kind(clones)?)?;
        public.add_folder(&image::root().join("charts/core-provider"))?;
        let guarded = Repository::new(site)?;
        guarded.add(&clones.chart_as(&fireworks("5"), "0.3.0")?)?;
        let (public, guarded) = (public.indexed()?, guarded.indexed()?);
        Ok(Self {
            public: HttpServer::start_at(host, move |asked| file(&public, asked))?,
            guarded: HttpServer::start_at(host, move |asked| {
                if asked.authorization.as_deref() == Some(known().as_str()) {
                    file(&guarded, asked)
                } else {
                    Answer::AskPassword
                }
            })?,
            registry: site.registry().to_owned(),
            private,
        })
    }

    /// A text of the walk-throughs with these servers in place of its addresses.
    pub(super) fn in_place(&self, text: &str) -> String {
        let charts = |registry: &str| format!("{registry}/charts");
        text.replace("https://charts.krateo.io", &self.public.url(""))
            .replace("https://theurltoyourhelmrepo", &self.guarded.url(""))
            .replace("registry-1.docker.io/bitnamicharts", &charts(&self.registry))
            .replace("registry-1.docker.io/yourusername", &charts(&self.private))
    }

    /// Values of the platform's chart: where its images are, and short intervals to notice changes by others.
    pub(super) fn values(&self) -> String {
        format!(
            " --set image.registry={} --set image.tag={} --set coreProvider.env.CORE_PROVIDER_POLL_INTERVAL=10s",
            self.registry,
            image::TAG
        )
    }
}

/// The header with the password.
fn known() -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{TOKEN}")))
}

fn with_role(clones: &Clones) -> Result<ChartFolder> {
    let chart = clones.chart_as(&fireworks("6"), WITH_ROLE)?;
    let role = "apiVersion: rbac.authorization.k8s.io/v1\n\
                kind: ClusterRole\n\
                metadata:\n  name: {{ .Release.Name }}\n\
                rules:\n- apiGroups: ['']\n  resources: [secrets]\n  verbs: [get]\n";
    chart.write("templates/role.yaml", role)?;
    Ok(chart)
}

/// What the walk-through about pauses changes in a Repo and in an Application of the chart.
fn with_kind(clones: &Clones) -> Result<ChartFolder> {
    let chart = clones.chart_as(&fireworks("6"), WITH_KIND)?;
    let kind = ["fireworks.example.org", "v1", "Rocket", "rockets"];
    fs::create_dir_all(chart.folder().join("crds"))?;
    chart.write("crds/rockets.yaml", &foreign::definition(kind).to_string())?;
    let rocket = "apiVersion: fireworks.example.org/v1\n\
                  kind: Rocket\n\
                  metadata:\n  name: {{ .Release.Name }}\n\
                  spec: {stages: 2}\n";
    chart.write("templates/rocket.yaml", rocket)?;
    change(&chart, "templates/git-clone.yaml", |text| {
        let paused = "\n  annotations:\n    \
                      krateo.io/paused: \"{{ default false (and .Values.global .Values.global.gracefullyPaused) }}\"\nspec:";
        text.replacen("\nspec:", paused, 1)
    })?;
    change(&chart, "templates/argo-application.yaml", |text| {
        let before = text.split("  syncPolicy:").next().unwrap_or_default();
        format!(
            "{before}{{{{- if eq (toString (.Values.global).gracefullyPaused) \"true\" }}}}\n  \
             syncPolicy: {{}}\n{{{{- else }}}}\n  syncPolicy:\n    automated:\n      prune: true\n{{{{- end }}}}\n"
        )
    })?;
    Ok(chart)
}

fn change(chart: &ChartFolder, file: &str, how: impl Fn(&str) -> String) -> Result<()> {
    let text =
        fs::read_to_string(chart.folder().join(file)).with_context(|| format!("the chart has no {file}"))?;
    chart.write(file, &how(&text))
}

/// A chart repository that is being filled.
struct Repository<'s> {
    site: &'s Site,
    folder: TempDir,
}

impl<'s> Repository<'s> {
    fn new(site: &'s Site) -> Result<Self> {
        Ok(Self {
            site,
            folder: tempfile::tempdir()?,
        })
    }

    fn add(&self, chart: &ChartFolder) -> Result<()> {
        self.add_folder(chart.folder())
    }

    fn add_folder(&self, chart: &Path) -> Result<()> {
        let (chart, into) = (chart.to_string_lossy(), self.folder.path().to_string_lossy());
        let package = self.site.helm(["package", &chart, "--destination", &into]);
        self.site.run(package).map(drop)
    }

    fn indexed(self) -> Result<TempDir> {
        let into = self.folder.path().to_string_lossy();
        self.site.run(self.site.helm(["repo", "index", &into]))?;
        Ok(self.folder)
    }
}

fn file(folder: &TempDir, asked: &Asked) -> Answer {
    let name = Path::new(&asked.path).file_name().map(PathBuf::from);
    let path = folder.path().join(name.unwrap_or_default());
    fs::read(path).map_or(Answer::Status(404), Answer::Content)
}
