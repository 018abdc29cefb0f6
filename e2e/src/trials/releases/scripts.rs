//! The verbs for repositories and registries: `kco` and the real Helm 4 take the same steps, each with its own home
//! folder and registry, and with one repository on loopback that both use.
//!
//! After each step, the output, the status and all files must be the same, including the files' modes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::parts::{Cache, Part};
use local_cluster::registry;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::compared::{Compared, Ended, Row, Table, listed};
use crate::http_server::{Answer, Asked};
use crate::{HttpServer, host_platform, image, site};

const USER: &str = "robot";
const PASSWORD: &str = "correct-horse-battery";
/// When all archives were written, of which the manifest in a registry tells.
const WRITTEN: Duration = Duration::from_secs(1_750_000_000);

/// One command line, with its standard input.
struct Step {
    arguments: &'static str,
    input: &'static str,
    compared: Compared,
}

const fn same(arguments: &'static str) -> Step {
    typed(arguments, "", Compared::All)
}

const fn effects(arguments: &'static str) -> Step {
    typed(arguments, "", Compared::Effects)
}

const fn typed(arguments: &'static str, input: &'static str, compared: Compared) -> Step {
    Step {
        arguments,
        input,
        compared,
    }
}

/// The steps. `REGISTRY` and `REPOSITORY` stand for addresses, `FOLDER` for the working folder.
const SCRIPTS: &[&[Step]] = &[
    &[
        typed(
            "registry login REGISTRY --plain-http -u robot --password-stdin",
            "wrong\n",
            Compared::Effects,
        ),
        effects("registry login REGISTRY --plain-http"),
        effects("registry login REGISTRY/charts --plain-http -u robot -p wrong"),
        effects("push web-1.0.0.tgz oci://REGISTRY/charts --plain-http"),
        typed(
            "registry login REGISTRY --plain-http -u robot --password-stdin",
            "correct-horse-battery\n",
            Compared::All,
        ),
        same("push web-1.0.0.tgz oci://REGISTRY/charts --plain-http"),
        same("push web-1.0.0.tgz oci://REGISTRY/charts --plain-http"),
        same("push plus-1.1.0+b.tgz oci://REGISTRY/more/charts/ --plain-http"),
        effects("push web oci://REGISTRY/charts --plain-http"),
        effects("push absent.tgz oci://REGISTRY/charts --plain-http"),
        effects("push web-1.0.0.tgz REGISTRY/charts --plain-http"),
        effects("push web-1.0.0.tgz https://REGISTRY/charts --plain-http"),
        effects("push web-1.0.0.tgz oci://REGISTRY/Charts --plain-http"),
        effects("push web-1.0.0.tgz oci://REGISTRY --plain-http --username robot --password wrong"),
        same("pull oci://REGISTRY/charts/web --plain-http --version 1.0.0 --untar --untardir out"),
        same("show chart oci://REGISTRY/more/charts/plus --plain-http --version 1.1.0+b"),
        same("registry logout REGISTRY"),
        same("registry logout REGISTRY"),
        effects("push web-1.0.0.tgz oci://REGISTRY/charts --plain-http"),
    ],
    &[
        same("repo list"),
        same("repo list --output json"),
        same("repo list --output yaml"),
        effects("repo update"),
        effects("repo remove shop"),
        effects("search repo"),
        effects("show chart shop/web"),
        effects("repo add none REPOSITORY/none"),
        effects("repo add a/b REPOSITORY/charts"),
        effects("repo add gone https://kubernetes-charts.storage.googleapis.com"),
        effects("repo add odd ftp://example.com"),
        same("repo add shop REPOSITORY/charts"),
        same("repo add shop REPOSITORY/charts"),
        effects("repo add shop REPOSITORY/other"),
        same("repo add shop REPOSITORY/charts/ --force-update"),
        effects("repo add closed REPOSITORY/closed"),
        typed(
            "repo add closed REPOSITORY/closed --username robot --password-stdin",
            "correct-horse-battery\n",
            Compared::All,
        ),
        same("repo list"),
        same("repo ls --no-headers"),
        same("repo list -o json"),
        same("repo list -o yaml"),
        same("search repo"),
        same("search repo web"),
        same("search repo WEB --versions"),
        same("search repo server -l --version ^1"),
        same("search repo web --devel"),
        same("search repo --regexp ^(web|plus)"),
        effects("search repo --regexp ("),
        effects("search repo --version one"),
        same("search repo nothing"),
        effects("search repo nothing --fail-on-no-result"),
        same("search repo nothing -o json"),
        same("search repo -o json"),
        same("search repo -o yaml"),
        same("search repo --max-col-width 12"),
        same("pull shop/web"),
        same("pull shop/web --version <1.0.1 --untar --untardir out"),
        same("pull shop/web --devel"),
        same("pull closed/plus"),
        same("show chart closed/plus"),
        same("template one shop/web --version 1.0.0"),
        effects("pull shop/absent"),
        effects("pull shop/web --version 9"),
        effects("pull other/web"),
        effects("pull shop"),
        effects("dependency update wanting"),
        effects("dependency build wanting"),
        effects("dependency update stray"),
        same("repo update shop"),
        effects("repo up"),
        effects("repo update absent"),
        same("repo remove closed"),
        effects("repo rm absent"),
        same("repo rm shop"),
        same("repo list"),
    ],
    &[
        same("repo index archives"),
        same("repo index archives --url https://example.com/charts/"),
        same("repo index archives --merge old.yaml"),
        same("repo index archives --merge archives/made.yaml --json"),
        effects("repo index archives --merge web/Chart.yaml"),
        effects("repo index absent"),
    ],
    &[
        same("create fresh"),
        same("create fresh"),
        same("create FOLDER/charts/archives/fresh-2.x_y"),
        effects("create wrong%name"),
        effects("create absent/fresh"),
        effects("create old.yaml"),
        same("create begun --starter FOLDER/charts/starter"),
        effects("create begun --starter absent"),
        same("lint fresh"),
    ],
    &[
        same("package web --sign --key Signer --keyring keys/rsa.secret --destination made"),
        same("package web --sign --key signer@example.com --keyring keys/rsa.secret.asc --destination made"),
        same("package plus --sign --key Signer --keyring keys/ed25519.secret --destination made"),
        same(
            "package web plus --sign --key Signer --keyring keys/rsa-locked.secret --passphrase-file tiger --destination made",
        ),
        typed(
            "package plus --sign --key Signer --keyring keys/nistp256-locked.secret --passphrase-file - --destination made",
            "tiger\n",
            Compared::All,
        ),
        same(
            "package web --sign --key Signer --keyring keys/nistp384-locked.secret --passphrase-file tiger --destination made",
        ),
        same(
            "package web --sign --key Signer --keyring keys/sha256-aes256-locked.secret --passphrase-file tiger --destination made",
        ),
        effects("package web --sign --keyring keys/rsa.secret --destination made"),
        effects("package web --sign --key nobody --keyring keys/rsa.secret --destination made"),
        effects("package web --sign --key Signer --keyring keys/rsa.public --destination made"),
        effects("package web --sign --key Signer --keyring keys/absent --destination made"),
        effects("package web --sign --key Signer --keyring keys/two.secret --destination made"),
        effects("package web --sign --key Signer --keyring keys/ed25519-locked.secret --destination made"),
        effects(
            "package web --sign --key Signer --keyring keys/ed25519-locked.secret --passphrase-file old.yaml --destination made",
        ),
        effects(
            "package web --sign --key Signer --keyring keys/ed25519-locked.secret --passphrase-file absent --destination made",
        ),
    ],
    &[
        same("verify by-helm/rsa/web-1.0.0.tgz --keyring keys/rsa.public"),
        same("verify by-kco/rsa/web-1.0.0.tgz --keyring keys/rsa.public"),
        same("verify by-kco/rsa/web-1.0.0.tgz --keyring keys/rsa.asc"),
        same("verify by-kco/rsa/web-1.0.0.tgz --keyring keys/rsa.kbx"),
        same("verify by-helm/ed25519-locked/web-1.0.0.tgz --keyring keys/ed25519-locked.public"),
        same("verify by-kco/ed25519-locked/web-1.0.0.tgz --keyring keys/ed25519-locked.public"),
        same("verify by-helm/nistp256-locked/web-1.0.0.tgz --keyring keys/nistp256-locked.public"),
        same("verify by-kco/nistp256-locked/web-1.0.0.tgz --keyring keys/nistp256-locked.public"),
        same("verify by-helm/nistp384-locked/web-1.0.0.tgz --keyring keys/nistp384-locked.public"),
        same("verify by-kco/nistp384-locked/web-1.0.0.tgz --keyring keys/nistp384-locked.public"),
        effects("verify by-helm/rsa/web-1.0.0.tgz --keyring keys/ed25519.public"),
        effects("verify by-helm/rsa/web-1.0.0.tgz"),
        effects("verify by-helm/changed/web-1.0.0.tgz --keyring keys/rsa.public"),
        effects("verify by-helm/renamed/web-1.0.1.tgz --keyring keys/rsa.public"),
        effects("verify plus-1.1.0+b.tgz --keyring keys/rsa.public"),
        effects("verify web-1.0.0.tgz --keyring keys/rsa.public"),
        effects("verify web --keyring keys/rsa.public"),
        effects("verify old.yaml --keyring keys/rsa.public"),
        effects("verify absent.tgz --keyring keys/rsa.public"),
        effects("verify"),
        same("template one by-helm/rsa/web-1.0.0.tgz --verify --keyring keys/rsa.public"),
        effects("template one web-1.0.0.tgz --verify --keyring keys/rsa.public"),
        same("show chart by-kco/rsa/web-1.0.0.tgz --verify --keyring keys/rsa.public"),
        same("pull REPOSITORY/signed/web-1.0.0.tgz --prov"),
        same("pull REPOSITORY/signed/web-1.0.0.tgz --verify --keyring keys/rsa.public --destination keys"),
        effects(
            "pull REPOSITORY/signed/web-1.0.0.tgz --verify --keyring keys/ed25519.public --destination keys",
        ),
        effects("pull REPOSITORY/charts/web-1.0.1.tgz --prov"),
        typed(
            "registry login REGISTRY --plain-http -u robot --password-stdin",
            "correct-horse-battery\n",
            Compared::All,
        ),
        same("push by-kco/rsa/web-1.0.0.tgz oci://REGISTRY/charts --plain-http"),
        effects("pull oci://REGISTRY/charts/web --version 1.0.0 --plain-http --prov --destination keys"),
        effects(
            "pull oci://REGISTRY/charts/web --version 1.0.0 --plain-http --verify --keyring keys/rsa.public --destination keys",
        ),
    ],
];

/// The keys that charts are signed with before the scripts begin.
const KEYS: [&str; 4] = ["rsa", "ed25519-locked", "nistp256-locked", "nistp384-locked"];

/// Takes all steps with both programs.
///
/// # Errors
/// When a part cannot be built, `kco` is not built, or something does not start.
pub(super) fn run(table: &mut Table) -> Result<()> {
    let (helm, kco) = (site::helm()?, image::binary("kco")?);
    let material = material(&helm)?;
    sign(material.path(), &helm, &kco)?;
    let repository = serve(material.path())?;
    for script in SCRIPTS {
        let ours = Stage::new(kco.clone(), material.path(), &repository)?;
        let theirs = Stage::new(helm.clone(), material.path(), &repository)?;
        for step in *script {
            let fault = ours.take(step)?.difference(&theirs.take(step)?, step.compared);
            let command = step.arguments.to_owned();
            table.rows.push(Row { command, fault });
        }
    }
    Ok(())
}

/// What both begin with: archives made by Helm, an index, and folders.
fn material(helm: &Path) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let run = |arguments: &[&str]| -> Result<()> {
        let output = Command::new(helm)
            .args(arguments)
            .current_dir(folder.path())
            .output()?;
        ensure!(output.status.success(), "helm {arguments:?}: {output:?}");
        Ok(())
    };
    let write = |path: &str, text: &str| -> Result<()> {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        Ok(fs::write(path, text)?)
    };
    run(&["create", "web"])?;
    write(
        "plus/Chart.yaml",
        "apiVersion: v2\nname: plus\nversion: 1.1.0+b\nappVersion: \"7\"\ndescription: A web server & <more>.\nhome: https://example.com\n\
        sources: [https://example.com/source]\nkeywords: [http, proxy]\nmaintainers: [{name: A, email: a@example.com}, {name: B}]\n\
        annotations: {team: 'a & b', org.opencontainers.image.title: other}\n\
        dependencies: []\nkubeVersion: '>=1.20'\n",
    )?;
    write("plus/values.yaml", "a: 1\n")?;
    for version in ["1.0.0", "1.0.1", "2.0.0-rc.1"] {
        run(&["package", "web", "--version", version, "--destination", "charts"])?;
    }
    run(&["package", "plus", "--destination", "charts"])?;
    run(&["package", "plus", "--destination", "closed"])?;
    for served in ["charts", "closed"] {
        run(&["repo", "index", served])?;
    }
    for name in ["web-1.0.0.tgz", "plus-1.1.0+b.tgz"] {
        fs::copy(folder.path().join("charts").join(name), folder.path().join(name))?;
    }
    write("plus-1.1.0+b.tgz.prov", "a signature\n")?;
    write(
        "old.yaml",
        "apiVersion: v1\nentries:\n  old:\n  - {apiVersion: v2, name: old, version: 0.1.0, urls: [old-0.1.0.tgz], created: \"2020-01-02T03:04:05Z\", digest: abc}\n  \
        web:\n  - {apiVersion: v1, name: web, version: 1.0.0, urls: [elsewhere], created: \"2020-01-02T03:04:05Z\"}\n  \
        - {apiVersion: v1, name: web, version: 0.9.0, urls: [elsewhere], created: \"2020-01-02T03:04:05Z\"}\n\
        generated: \"2020-01-02T03:04:05Z\"\n",
    )?;
    fs::create_dir_all(folder.path().join("archives/below"))?;
    fs::copy(
        folder.path().join("web-1.0.0.tgz"),
        folder.path().join("archives/web-1.0.0.tgz"),
    )?;
    fs::copy(
        folder.path().join("charts/web-1.0.1.tgz"),
        folder.path().join("archives/web-1.0.1.tgz"),
    )?;
    fs::copy(
        folder.path().join("plus-1.1.0+b.tgz"),
        folder.path().join("archives/below/plus-1.1.0+b.tgz"),
    )?;
    write("archives/none.tgz", "no archive")?;
    write(
        "wanting/Chart.yaml",
        "apiVersion: v2\nname: wanting\nversion: 1.0.0\ndependencies:\n- {name: web, version: ^1, repository: '@shop'}\n\
        - {name: plus, version: 1.x, repository: 'alias:closed'}\n",
    )?;
    write(
        "stray/Chart.yaml",
        "apiVersion: v2\nname: stray\nversion: 1.0.0\ndependencies: [{name: web, version: ^1, repository: '@absent'}]\n",
    )?;
    write(
        "starter/Chart.yaml",
        "apiVersion: v2\nname: starter\nversion: 3.0.0\n",
    )?;
    write("starter/values.yaml", "name: <CHARTNAME> # kept\n")?;
    write("starter/README.md", "<CHARTNAME>\n")?;
    write("starter/templates/a.yaml", "a: <CHARTNAME>\n")?;
    Ok(folder)
}

/// The same chart signed by both with each of the keys, and what gpg says to the signatures of `kco`.
fn sign(material: &Path, helm: &Path, kco: &Path) -> Result<()> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/charts/tests/signatures/secret");
    copy(&kept, &material.join("keys"))?;
    fs::write(material.join("tiger"), "tiger\n")?;
    let two = ["rsa.secret", "ed25519.secret"].map(|name| fs::read(kept.join(name)));
    let two: Result<Vec<_>, _> = two.into_iter().collect();
    fs::write(material.join("keys/two.secret"), two?.concat())?;
    let run = |program: &Path, arguments: &str| -> Result<()> {
        let mut command = Command::new(program);
        let output = command
            .args(arguments.split(' '))
            .current_dir(material)
            .env("GNUPGHOME", material.join("no-keys"))
            .output()
            .with_context(|| format!("could not start {}", program.display()))?;
        ensure!(output.status.success(), "{arguments}: {output:?}");
        Ok(())
    };
    for (by, program) in [("helm", helm), ("kco", kco)] {
        for key in KEYS {
            let made = format!("by-{by}/{key}");
            run(
                program,
                &format!(
                    "package web --version 1.0.0 --sign --key Signer --keyring keys/{key}.secret --passphrase-file tiger \
                     --destination {made}"
                ),
            )?;
            // Of Helm's signatures gpg 2.2 reads only some: they have no checksum.
            if by == "kco" {
                let verified = format!("--keyring ./keys/{key}.public {made}/web-1.0.0.tgz.prov");
                run(Path::new("gpgv"), &verified)?;
            }
        }
    }
    let signed = material.join("by-helm/rsa");
    copy(&signed, &material.join("signed"))?;
    let changed = material.join("by-helm/changed");
    copy(&signed, &changed)?;
    fs::copy(
        material.join("charts/web-1.0.1.tgz"),
        changed.join("web-1.0.0.tgz"),
    )?;
    let renamed = material.join("by-helm/renamed");
    fs::create_dir_all(&renamed)?;
    for end in ["tgz", "tgz.prov"] {
        fs::copy(
            signed.join(format!("web-1.0.0.{end}")),
            renamed.join(format!("web-1.0.1.{end}")),
        )?;
    }
    Ok(())
}

/// A repository of everybody below `/charts` and `/signed`, and one of who knows the password below `/closed`.
fn serve(material: &Path) -> Result<HttpServer> {
    let mut files = BTreeMap::new();
    for served in ["charts", "closed", "signed"] {
        for entry in fs::read_dir(material.join(served))? {
            let entry = entry?;
            let path = format!("/{served}/{}", entry.file_name().to_string_lossy());
            files.insert(path, fs::read(entry.path())?);
        }
    }
    let files = Arc::new(files);
    let known = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
    HttpServer::start(move |asked: &Asked| {
        if asked.path.starts_with("/closed/") && asked.authorization.as_deref() != Some(known.as_str()) {
            return Answer::AskPassword;
        }
        let path = asked.path.replace("%2B", "+");
        files
            .get(&path)
            .map_or(Answer::Status(404), |bytes| Answer::Content(bytes.clone()))
    })
}

/// A registry on loopback; it ends with this value.
struct Registry {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Registry {
    fn start() -> Result<Self> {
        let part = Part::named("registry").context("there is no part registry")?;
        let program = Cache::of_user()?.path(part)?;
        let folder = tempfile::tempdir()?;
        let registry::Access::Password(passwords) = host_platform::password(folder.path(), USER, PASSWORD)?
        else {
            anyhow::bail!("no file of passwords");
        };
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let config = json!({
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": folder.path().join("storage")}},
            "http": {"addr": address.to_string()},
            "auth": {"htpasswd": {"realm": "registry", "path": passwords}},
        });
        let path = folder.path().join("config.yaml");
        fs::write(&path, config.to_string())?;
        let process = Command::new(program)
            .arg("serve")
            .arg(&path)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("could not start a registry")?;
        let registry = Self {
            process,
            address,
            _folder: folder,
        };
        let since = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(
                since.elapsed() < Duration::from_secs(30),
                "the registry does not answer"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The folders and addresses of one of the two programs.
struct Stage {
    program: PathBuf,
    folder: tempfile::TempDir,
    registry: Registry,
    repository: String,
}

impl Stage {
    fn new(program: PathBuf, material: &Path, repository: &HttpServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy(material, &folder.path().join("charts"))?;
        fs::create_dir(folder.path().join("home"))?;
        Ok(Self {
            program,
            folder,
            registry: Registry::start()?,
            repository: repository.url(""),
        })
    }

    fn take(&self, step: &Step) -> Result<Ended> {
        let arguments = step.arguments.split(' ').map(|argument| self.filled(argument));
        let mut child = Command::new(&self.program)
            .args(arguments)
            .current_dir(self.folder.path().join("charts"))
            .env_clear()
            .env("HOME", self.folder.path().join("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {}", self.program.display()))?;
        let mut stdin = child.stdin.take().context("there is no input")?;
        // A command that does not read its input may exit before everything is written.
        let _ = stdin.write_all(step.input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output()?;
        let mut files = BTreeMap::new();
        self.collect(self.folder.path(), &mut files)?;
        Ok(Ended {
            succeeded: output.status.success(),
            printed: self.hidden(&output.stdout),
            said: self.hidden(&output.stderr),
            files,
        })
    }

    fn filled(&self, text: &str) -> String {
        text.replace("REGISTRY", &self.registry.address.to_string())
            .replace("REPOSITORY", &self.repository)
            .replace("FOLDER", &self.folder.path().display().to_string())
    }

    /// Text without what is specific to one of the two.
    fn hidden(&self, text: &[u8]) -> String {
        String::from_utf8_lossy(text)
            .replace(&self.registry.address.to_string(), "<registry>")
            .replace(&self.folder.path().display().to_string(), "<folder>")
    }

    /// The files below a folder with their modes. Archives by their digests; without times, and without Helm's download
    /// cache.
    fn collect(&self, folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            if path.is_dir() {
                if !path.ends_with(".cache/helm/content") {
                    self.collect(&path, files)?;
                }
                continue;
            }
            let name = path.strip_prefix(self.folder.path())?.display().to_string();
            let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
            let content = fs::read(&path)?;
            let shown = if path.extension().is_some_and(|extension| extension == "tgz") {
                if name.starts_with("charts/made/") {
                    listed(&content)?
                } else {
                    format!("{:?}", Sha256::digest(&content))
                }
            } else if name.starts_with("charts/made/") {
                // The signatures differ, and the archives are not compressed by the same program.
                let archive = fs::read(path.with_extension(""))?;
                let digest = hex(&Sha256::digest(&archive));
                let text = self.hidden(&content).replace(&digest, "<digest>");
                let signed = text.split_once("-----BEGIN PGP SIGNATURE-----");
                signed.map_or(text.clone(), |(signed, _)| signed.to_owned())
            } else {
                let text = self.hidden(&content);
                let is_time = |line: &&str| {
                    let line = line.trim_start_matches([' ', '-', '"']);
                    line.starts_with("generated") || line.starts_with("created")
                };
                let mut lines: Vec<_> = text.lines().filter(|line| !is_time(line)).collect();
                if name.ends_with("-charts.txt") {
                    lines.sort_unstable();
                }
                lines.join("\n")
            };
            files.insert(format!("{name} {mode:o}"), shown);
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            let file = fs::OpenOptions::new().append(true).open(&target)?;
            file.set_modified(SystemTime::UNIX_EPOCH + WRITTEN)?;
        }
    }
    Ok(())
}
