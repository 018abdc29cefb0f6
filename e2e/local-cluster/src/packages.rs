//! Packages of the distribution: programs that a node needs and that are not built here.

use std::{
    env,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::progress;

/// A Debian package and a file that exists if it is installed.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// Name for `apt-get install`.
    pub name: &'static str,
    program: &'static str,
    purpose: &'static str,
}

/// Where Debian puts the CNI plugins.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// What every node needs.
pub static NODES: [Package; 9] = [
    Package {
        name: "runc",
        program: "runc",
        purpose: "starts containers",
    },
    Package {
        name: "containernetworking-plugins",
        program: "/usr/lib/cni/bridge",
        purpose: "connects pods",
    },
    Package {
        name: "buildah",
        program: "buildah",
        purpose: "builds and pushes images",
    },
    Package {
        name: "iproute2",
        program: "ip",
        purpose: "makes links and addresses",
    },
    Package {
        name: "nftables",
        program: "nft",
        purpose: "kube-proxy writes its rules with it",
    },
    Package {
        name: "conntrack",
        program: "conntrack",
        purpose: "kube-proxy ends stale connections with it",
    },
    Package {
        name: "gnupg",
        program: "gpg-agent",
        purpose: "signs charts in tests",
    },
    Package {
        name: "curl",
        program: "curl",
        purpose: "fetches ready-made parts, and asks the demo's pods",
    },
    Package {
        name: "ca-certificates",
        program: "update-ca-certificates",
        purpose: "tells authorities whose certificates are trusted",
    },
];

/// Additional packages of a node that enforces `NetworkPolicies`, besides [`NODES`].
pub static NETWORK_POLICIES: [Package; 2] = [
    Package {
        name: "iptables",
        program: "iptables",
        purpose: "kube-router writes its rules with it",
    },
    Package {
        name: "ipset",
        program: "ipset",
        purpose: "kube-router keeps sets of addresses with it",
    },
];

const NO_APT: &str = "could not start apt-get, by which Debian's packages are installed";

/// The packages that this machine lacks.
pub fn missing(packages: &'static [Package]) -> Vec<&'static Package> {
    packages
        .iter()
        .filter(|package| find_program(package.program).is_none())
        .collect()
}

/// Fails with the command to run if a package is missing.
///
/// # Errors
/// When one is.
pub fn require(packages: &'static [Package]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = missing
        .iter()
        .map(|package| format!("{} ({})", package.name, package.purpose))
        .collect();
    bail!(
        "a cluster needs packages this machine lacks: {}; install them with: {}",
        reasons.join(", "),
        install_line(&missing)
    )
}

/// Installs missing packages; needs root.
///
/// # Errors
/// When apt-get fails.
pub fn install(packages: &'static [Package]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    // A new machine may not know of any package yet, and an old list names files that are gone.
    progress::line("apt-get update");
    let updated = Command::new("apt-get").args(["update", "--quiet=2"]).status();
    let updated = updated.context(NO_APT)?;
    // Packages of an old list may still be there.
    if !updated.success() {
        progress::line("apt-get update failed: trying with the lists of packages that are here");
    }
    progress::line(install_line(&missing));
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(missing.iter().map(|package| package.name))
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context(NO_APT)?;
    ensure!(status.success(), "apt-get install failed");
    require(packages)
}

fn install_line(packages: &[&Package]) -> String {
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    format!("apt-get install --yes {}", names.join(" "))
}

/// The program on the `PATH`, or in the folders of root's `PATH` that a user's may lack.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_type_names_every_missing_package() {
        let packages: Vec<&Package> = NODES.iter().collect();
        assert_eq!(
            install_line(&packages[..2]),
            "apt-get install --yes runc containernetworking-plugins"
        );
    }
}
