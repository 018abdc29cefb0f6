//! Our programs as images: static binaries from cargo, packed by the project's own Dockerfile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use local_cluster::output;

use crate::{Site, progress};

/// The programs that run in pods.
pub const PROGRAMS: [&str; 6] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
    "multicluster-operator",
    "web-server",
    "kco",
];

/// The programs among them that are needed for compositions.
pub const ENGINE: [&str; 4] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
    "web-server",
];

/// The file that contains these programs.
const TOGETHER: &str = "programs";

/// The programs that one file contains, so that their processes share the memory of their code.
const IN_ONE_FILE: [&str; 3] = [
    "core-provider",
    "composition-dynamic-controller",
    "chart-inspector",
];

/// The tag under which a site's registry holds our images.
pub const TAG: &str = "e2e";

/// Certificates that programs in an otherwise empty image trust.
const CA_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds an image of each program and pushes it to the site's registry as `<registry>/<program>:<TAG>`.
///
/// # Errors
/// When a program was not built for this very profile and target, or buildah fails.
pub fn push_all(site: &Site) -> Result<()> {
    push(site, &PROGRAMS, TAG)
}

/// Builds the images of these programs under a tag, and pushes them.
///
/// # Errors
/// As [`push_all`].
pub fn push(site: &Site, programs: &[&str], tag: &str) -> Result<()> {
    let context = tempfile::tempdir()?;
    fs::copy(CA_CERTIFICATES, context.path().join("ca-certificates.crt"))
        .with_context(|| format!("{CA_CERTIFICATES} is missing: apt-get install ca-certificates"))?;
    let together = context.path().join(TOGETHER);
    for program in programs {
        let file = context.path().join(program);
        if IN_ONE_FILE.contains(program) {
            if !together.exists() {
                strip(&binary(TOGETHER)?, &together)?;
            }
            fs::hard_link(&together, &file)?;
        } else {
            strip(&binary(program)?, &file)?;
        }
        let reference = format!("{}/{program}:{tag}", site.registry());
        progress(format_args!("image {reference}"));
        let argument = format!("PROGRAM={program}");
        // With the same time, equal content is an equal layer, which a node keeps once.
        let arguments = ["--target", "ready", "--timestamp", "0", "--build-arg", &argument];
        site.buildah()
            .build(&root().join("Dockerfile"), context.path(), &arguments, &reference)?;
        site.buildah().push(&reference, site.plain_http())?;
    }
    Ok(())
}

/// The image of a program at a site.
pub fn reference(site: &Site, program: &str) -> String {
    format!("{}/{program}:{TAG}", site.registry())
}

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program as built by cargo, beside this one.
///
/// # Errors
/// When it is not built.
pub fn binary(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let built = own
        .ancestors()
        .skip(1)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    match built {
        Some(path) => Ok(path),
        None => bail!("{program} is not built: `make programs` builds all that images are made of"),
    }
}

/// Symbols are only useful to a debugger on the host; without them an image is a tenth of the size.
fn strip(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("strip").arg("-o").arg(to).arg(from)).map(drop)
}
