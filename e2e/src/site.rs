//! Where things run: a cluster, the registry it pulls from, and the tools for both.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use local_cluster::image::Buildah;
use local_cluster::parts::{Cache, Part};
use local_cluster::{Cluster, ControlPlane, output};

use crate::admin::Admin;
use crate::image;

/// A cluster to install on, and a registry that it pulls from.
#[derive(Debug, Clone)]
pub struct Site {
    kubeconfig: Option<PathBuf>,
    /// A connection to a cluster of `local_cluster`.
    admin: Option<Arc<Admin>>,
    registry: String,
    plain_http: bool,
    buildah: Buildah,
    kubectl: PathBuf,
    helm: PathBuf,
}

impl Site {
    /// A cluster of `local_cluster`, with its own registry.
    pub fn local(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            kubeconfig: Some(cluster.kubeconfig()),
            admin: Some(Arc::new(Admin::of(cluster)?)),
            registry: cluster.registry().to_owned(),
            plain_http: true,
            buildah: Buildah::at(cluster.folder().join("buildah")),
            kubectl: part("kubectl")?,
            helm: part("helm")?,
        })
    }

    /// A control plane of `local_cluster`, which has no registry of its own.
    ///
    /// # Errors
    /// When a tool cannot be built.
    pub fn host(plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            kubeconfig: Some(plane.kubeconfig()),
            admin: Some(Arc::new(Admin::of(plane)?)),
            registry: String::new(),
            plain_http: true,
            buildah: Buildah::at(plane.folder().join("buildah")),
            kubectl: part("kubectl")?,
            helm: part("helm")?,
        })
    }

    /// An existing cluster, by its kubeconfig, with a registry without TLS.
    ///
    /// `storage` is a folder for the images while they are built.
    ///
    /// # Errors
    /// When a tool cannot be built.
    pub fn at(kubeconfig: PathBuf, registry: &str, storage: PathBuf) -> Result<Self> {
        Ok(Self {
            kubeconfig: Some(kubeconfig),
            ..Self::current(registry, true, storage)?
        })
    }

    /// The cluster of the current kubeconfig, with a registry (`host/path`) that it can pull from.
    ///
    /// `storage` is a folder for the images while they are built.
    pub fn current(registry: &str, plain_http: bool, storage: PathBuf) -> Result<Self> {
        Ok(Self {
            kubeconfig: None,
            admin: None,
            registry: registry.trim_end_matches('/').to_owned(),
            plain_http,
            buildah: Buildah::at(storage),
            kubectl: part("kubectl")?,
            helm: part("helm")?,
        })
    }

    /// `host[:port][/path]`, to which images and charts are pushed.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// True when the registry speaks HTTP without TLS.
    pub fn plain_http(&self) -> bool {
        self.plain_http
    }

    /// The builder of images.
    pub fn buildah(&self) -> &Buildah {
        &self.buildah
    }

    /// The kubeconfig; `None` is that of the environment.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// A connection to the API server as admin, if this is a cluster of `local_cluster`. Whoever asks often uses this
    /// instead of `kubectl`, which takes 60 ms of a processor to start.
    pub fn admin(&self) -> Option<&Admin> {
        self.admin.as_deref()
    }

    /// `kubectl`, as admin.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.tool(&self.kubectl, arguments)
    }

    /// `helm`, as admin.
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.tool(&self.helm, arguments)
    }

    /// `kco`, as admin.
    ///
    /// # Errors
    /// When it is not built.
    pub fn kco<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Command> {
        Ok(self.tool(&image::binary("kco")?, arguments))
    }

    fn tool<A: AsRef<OsStr>>(&self, program: &PathBuf, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(program);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.args(arguments);
        command
    }

    /// The output of a command of this site.
    ///
    /// # Errors
    /// When it failed; the message has what it said.
    pub fn run(&self, mut command: Command) -> Result<String> {
        output(&mut command)
    }
}

/// The real Helm, for commands that need no cluster.
///
/// # Errors
/// When it cannot be built.
pub fn helm() -> Result<PathBuf> {
    part("helm")
}

fn part(name: &str) -> Result<PathBuf> {
    let part = Part::named(name).with_context(|| format!("there is no part {name}"))?;
    Cache::of_user()?.path(part)
}
