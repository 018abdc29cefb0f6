//! Images: one static program in an OCI archive, or built from a Dockerfile by `buildah`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{digest::hex, packages::find_program, process::output};

/// Writes an image of one program that runs as user 65532, as an OCI archive.
///
/// The archive depends only on the program and the name.
pub(crate) fn write_archive(program: &Path, name: &str, archive: &Path) -> Result<()> {
    let file_name = file_name(program)?;
    let how = json!({"Entrypoint": [format!("/{file_name}")], "User": "65532:65532"});
    let files = BTreeMap::from([(file_name.to_owned(), program.to_owned())]);
    write(&files, name, archive, &how)
}

/// Where images of Kubernetes have their programs; kubeadm's pods use this path.
const PROGRAMS: &str = "usr/local/bin";

/// The content of an image whose programs run as root and are found on the `PATH`, as pods of a control plane need it.
#[derive(Debug, Clone, Copy)]
pub struct System<'a> {
    /// Static programs; the image runs the first of them.
    pub programs: &'a [PathBuf],
    /// Programs of this machine, which are added with the libraries that they need.
    pub tools: &'a [&'a str],
    /// Folders of this machine with libraries that these load at run time.
    pub folders: &'a [&'a str],
}

impl System<'_> {
    /// Writes the image as an OCI archive.
    ///
    /// # Errors
    /// When a program is not there or cannot be read, or the archive cannot be written.
    pub fn write(&self, name: &str, archive: &Path) -> Result<()> {
        let first = self.programs.first().context("an image without a program")?;
        let mut files = BTreeMap::new();
        for program in self.programs {
            files.insert(format!("{PROGRAMS}/{}", file_name(program)?), program.clone());
        }
        let mut tools = Vec::new();
        for tool in self.tools {
            tools.push(find_program(tool).with_context(|| format!("{tool} is not on this machine"))?);
        }
        for folder in self.folders {
            let entries = fs::read_dir(folder).with_context(|| format!("could not read {folder}"))?;
            for entry in entries {
                tools.push(entry?.path());
            }
        }
        for file in libraries(&tools)?.into_iter().chain(tools) {
            files.insert(inside(&file), file);
        }
        let how = json!({
            "Entrypoint": [format!("/{PROGRAMS}/{}", file_name(first)?)],
            "Env": [format!("PATH=/{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin")],
        });
        write(&files, name, archive, &how)
    }
}

fn file_name(program: &Path) -> Result<&str> {
    let name = program.file_name().and_then(|name| name.to_str());
    name.context("the program of an image has no name")
}

/// The path of a file of this machine in an image: the same.
fn inside(file: &Path) -> String {
    file.display().to_string().trim_start_matches('/').to_owned()
}

/// The libraries of programs and libraries, and their loader, each at the path where they look for it.
fn libraries(of: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let listed = output(Command::new("ldd").args(of))?;
    Ok(paths_of(&listed))
}

/// The paths in lines like `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`. A line with a colon names the program.
fn paths_of(listed: &str) -> Vec<PathBuf> {
    let lines = listed.lines().filter(|line| !line.ends_with(':'));
    let paths = lines.filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Writes an image of these files, by their paths in it.
fn write(files: &BTreeMap<String, PathBuf>, name: &str, archive: &Path, how: &Value) -> Result<()> {
    let layer = archive.with_extension("layer");
    write_layer(files, &layer)?;
    let (layer_digest, layer_size) = digest_of(&layer)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": how,
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer_digest,
            "size": layer_size,
        }],
    })
    .to_string();
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    entry["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name,
    });
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();

    let mut tar = tar::Builder::new(BufWriter::new(File::create(archive)?));
    append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", index.as_bytes())?;
    append(&mut tar, &blob(&digest(manifest.as_bytes())), manifest.as_bytes())?;
    append(&mut tar, &blob(&digest(config.as_bytes())), config.as_bytes())?;
    let mut content = File::open(&layer)?;
    tar.append_data(&mut header(layer_size, 0o644), blob(&layer_digest), &mut content)?;
    tar.into_inner()?.flush()?;
    fs::remove_file(&layer)?;
    Ok(())
}

fn write_layer(files: &BTreeMap<String, PathBuf>, layer: &Path) -> Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(File::create(layer)?));
    for (place, file) in files {
        let mut content = File::open(file).with_context(|| format!("could not read {}", file.display()))?;
        let size = content.metadata()?.len();
        tar.append_data(&mut header(size, 0o755), place, &mut content)?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> Result<()> {
    tar.append_data(&mut header(content.len() as u64, 0o644), name, content)?;
    Ok(())
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn digest(content: &[u8]) -> String {
    named(&Sha256::digest(content))
}

pub(crate) fn digest_of(file: &Path) -> Result<(String, u64)> {
    let mut content = BufReader::with_capacity(1 << 20, File::open(file)?);
    let mut sum = Sha256::new();
    let mut size = 0;
    let mut piece = vec![0; 1 << 20];
    loop {
        let length = content.read(&mut piece)?;
        if length == 0 {
            return Ok((named(&sum.finalize()), size));
        }
        sum.update(&piece[..length]);
        size += length as u64;
    }
}

fn named(sum: &[u8]) -> String {
    format!("sha256:{}", hex(sum))
}

/// The name of this machine's architecture in Go and OCI.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `buildah` with its own storage, so that nothing of it stays on the host.
#[derive(Debug, Clone)]
pub struct Buildah {
    storage: PathBuf,
}

impl Buildah {
    /// With its storage in that folder, which need not exist yet.
    pub fn at(storage: PathBuf) -> Self {
        Self { storage }
    }

    /// Builds a Dockerfile into an image of that reference.
    ///
    /// # Errors
    /// When the build fails; the message has what buildah said.
    pub fn build(
        &self,
        dockerfile: &Path,
        context: &Path,
        arguments: &[&str],
        reference: &str,
    ) -> Result<()> {
        let mut build = self.command("build");
        build
            // Without a daemon and with few namespaces: works wherever there is root.
            .args(["--isolation", "chroot", "--layers=false", "--tag", reference])
            .arg("--file")
            .arg(dockerfile)
            .args(arguments)
            .arg(context);
        output(&mut build).map(drop)
    }

    /// Puts an image into the registry that its reference names.
    ///
    /// # Errors
    /// When the push fails; the message has what buildah said.
    pub fn push(&self, reference: &str, plain_http: bool) -> Result<()> {
        let mut push = self.command("push");
        if plain_http {
            push.arg("--tls-verify=false");
        }
        push.arg(reference).arg(format!("docker://{reference}"));
        output(&mut push).map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("buildah");
        command
            .arg("--storage-driver=vfs")
            .arg("--root")
            .arg(self.storage.join("images"))
            .arg("--runroot")
            .arg(self.storage.join("run"))
            .arg(verb);
        command
    }
}

/// Writes an image of the user's own `buildah` storage as an archive.
pub(crate) fn export(reference: &str, archive: &Path) -> Result<()> {
    output(
        Command::new("buildah")
            .args(["push", reference])
            .arg(format!("oci-archive:{}:{reference}", archive.display())),
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_depends_on_the_program_and_the_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/true").unwrap();
        let archives = ["one.tar", "two.tar"].map(|name| folder.path().join(name));
        for archive in &archives {
            write_archive(&program, "localhost/program:v1", archive).unwrap();
        }
        assert_eq!(fs::read(&archives[0]).unwrap(), fs::read(&archives[1]).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn libraries_are_where_the_program_looks_for_them() {
        let listed = "/usr/sbin/nft:\n\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            paths_of(listed),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }
}
