//! Images: one static program in an OCI archive, and what `buildah` makes of a Dockerfile.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{digest::hex, process::output};

/// Writes an image of one program that runs as user 65532, as an OCI archive.
///
/// The archive depends on nothing but the program and the name.
pub(crate) fn write_archive(program: &Path, name: &str, archive: &Path) -> Result<()> {
    write(
        program,
        name,
        archive,
        |path| json!({"Entrypoint": [path], "User": "65532:65532"}),
    )
}

/// Writes an image of one program that runs as root and is found on the `PATH`, as pods of a control plane want it.
///
/// # Errors
/// When the program cannot be read or the archive not be written.
pub fn write_system_archive(program: &Path, name: &str, archive: &Path) -> Result<()> {
    write(
        program,
        name,
        archive,
        |path| json!({"Entrypoint": [path], "Env": ["PATH=/"]}),
    )
}

fn write(program: &Path, name: &str, archive: &Path, how: impl Fn(String) -> Value) -> Result<()> {
    let file_name = program
        .file_name()
        .and_then(|name| name.to_str())
        .context("the program of an image has no name")?;
    let layer = archive.with_extension("layer");
    write_layer(program, file_name, &layer)?;
    let (layer_digest, layer_size) = digest_of(&layer)?;
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": how(format!("/{file_name}")),
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

fn write_layer(program: &Path, file_name: &str, layer: &Path) -> Result<()> {
    let mut content = File::open(program)?;
    let size = content.metadata()?.len();
    let mut tar = tar::Builder::new(BufWriter::new(File::create(layer)?));
    tar.append_data(&mut header(size, 0o755), file_name, &mut content)?;
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

/// What Go and OCI call this machine's processor.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `buildah` with storage of its own, so that nothing of it stays on the host.
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
            // The daemonless, namespace-poor way: works wherever root does.
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
}
