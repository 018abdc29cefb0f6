//! Files that are installed before kubeadm runs, each verified by its hash.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component as Part, Path, PathBuf};
use std::time::Duration;

use attest::{Bytes, Digest};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

/// The largest file, in bytes: a kubelet has 100 MB.
const LONGEST: u64 = 1 << 30;

/// How long a server may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// A file to install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    url: Url,
    hash: String,
    path: PathBuf,
    extract: bool,
    digest: Digest,
}

/// A component that cannot be installed, whatever the download contains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "component {0:?}: it needs an http or https URL, a hash sha256:<hexadecimal> and an absolute path without dots"
)]
pub struct Invalid(String);

/// Why a component was not installed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error("could not download {url}")]
    Download { url: Url, source: reqwest::Error },
    #[error("{url} is longer than {LONGEST} bytes")]
    TooLong { url: Url },
    #[error("{url} has the SHA-256 {found}; {expected} was expected")]
    Hash {
        url: Url,
        expected: String,
        found: Digest,
    },
    #[error("could not install {}", path.display())]
    Install { path: PathBuf, source: io::Error },
}

impl Component {
    /// Parses a requested component.
    pub fn new(url: &str, hash: &str, path: &str, extract: bool) -> Result<Self, Invalid> {
        let invalid = || Invalid(url.to_owned());
        let parsed = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        let digest = hash.strip_prefix("sha256:").and_then(|hash| hash.parse().ok());
        let install = Path::new(path);
        let mut parts = install.components();
        let is_plain = parts.next() == Some(Part::RootDir)
            && parts.all(|part| matches!(part, Part::Normal(_)))
            && install.file_name().is_some();
        let (Some(url), Some(digest), true) = (parsed, digest, is_plain) else {
            return Err(invalid());
        };
        Ok(Self {
            url,
            hash: hash.to_owned(),
            path: install.to_owned(),
            extract,
            digest,
        })
    }

    /// True if installing this component may write this file.
    pub fn may_install(&self, file: &Path) -> bool {
        if self.extract {
            file.starts_with(&self.path)
        } else {
            file == self.path
        }
    }

    /// The JSON that describes it in the cluster.
    pub fn described(&self) -> Value {
        json!({
            "url": self.url.as_str(),
            "hash": self.hash,
            "installPath": self.path,
            "extract": self.extract,
        })
    }

    /// Downloads it, verifies its hash, and only then moves it to its destination.
    pub async fn install(&self, client: &reqwest::Client) -> Result<(), Error> {
        let folder = if self.extract {
            Some(self.path.as_path())
        } else {
            self.path.parent()
        };
        let folder = folder.unwrap_or(Path::new("/"));
        let error = |source| Error::Install {
            path: self.path.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(error)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(error)?;
        self.download(client, file.as_file_mut()).await?;
        if self.extract {
            let mut file = file.into_file();
            file.rewind().map_err(error)?;
            return extract(file, folder).map_err(error);
        }
        let mode = Permissions::from_mode(0o755);
        file.as_file().set_permissions(mode).map_err(error)?;
        file.as_file().sync_all().map_err(error)?;
        file.persist(&self.path).map_err(|failed| error(failed.error))?;
        Ok(())
    }

    async fn download(&self, client: &reqwest::Client, file: &mut File) -> Result<(), Error> {
        let url = || self.url.clone();
        let download = |source| Error::Download { url: url(), source };
        let response = client.get(self.url.clone()).send().await.map_err(download)?;
        let mut response = response.error_for_status().map_err(download)?;
        let (mut hasher, mut length) = (Sha256::new(), 0);
        while let Some(chunk) = response.chunk().await.map_err(download)? {
            length += chunk.len() as u64;
            if length > LONGEST {
                return Err(Error::TooLong { url: url() });
            }
            hasher.update(&chunk);
            file.write_all(&chunk).map_err(|source| Error::Install {
                path: self.path.clone(),
                source,
            })?;
        }
        let found = Bytes(hasher.finalize().into());
        if found == self.digest {
            return Ok(());
        }
        Err(Error::Hash {
            url: url(),
            expected: self.digest.to_string(),
            found,
        })
    }
}

impl std::fmt::Display for Component {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} from {}", self.path.display(), self.url)
    }
}

/// The HTTP client for downloads.
pub fn client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .read_timeout(SILENCE)
        .connect_timeout(SILENCE)
        .build()
}

/// Extracts a tar archive, optionally compressed with gzip. Nothing is written outside the folder: the tar library
/// skips such entries.
fn extract(mut file: File, folder: &Path) -> io::Result<()> {
    let mut magic = [0; 2];
    let is_compressed = file.read_exact(&mut magic).is_ok() && magic == [0x1f, 0x8b];
    file.rewind()?;
    if is_compressed {
        tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(folder)
    } else {
        tar::Archive::new(file).unpack(folder)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each connection with this body.
    async fn server(body: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = socket.read(&mut request).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all(&[head.as_bytes(), &body].concat()).await;
            }
        });
        format!("http://{address}/file")
    }

    fn hash(body: &[u8]) -> String {
        format!("sha256:{}", attest::sha256(&[body]))
    }

    fn installable() -> reqwest::Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        client().unwrap()
    }

    #[test]
    fn a_component_may_install_what_is_at_its_path_or_in_its_archive() {
        let component = |path, extract| {
            let hash = format!("sha256:{}", attest::Bytes([1; 32]));
            Component::new("http://host/file", &hash, path, extract).unwrap()
        };
        let kubeadm = Path::new("/usr/bin/kubeadm");
        assert!(component("/usr/bin/kubeadm", false).may_install(kubeadm));
        assert!(component("/usr", true).may_install(kubeadm));
        assert!(!component("/usr", false).may_install(kubeadm));
        assert!(!component("/opt", true).may_install(kubeadm));
    }

    #[tokio::test]
    async fn only_a_file_with_the_right_hash_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bin/kubelet");
        let url = server(b"program".to_vec()).await;
        let text = path.to_str().unwrap();
        let wrong = Component::new(&url, &hash(b"other"), text, false).unwrap();
        let error = wrong.install(&installable()).await.unwrap_err();
        assert!(matches!(error, Error::Hash { .. }), "{error}");
        assert_eq!(std::fs::read_dir(folder.path().join("bin")).unwrap().count(), 0);
        let right = Component::new(&url, &hash(b"program"), text, false).unwrap();
        right.install(&installable()).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"program");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[tokio::test]
    async fn an_archive_is_extracted_below_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o755);
        archive
            .append_data(&mut header, "host-local", &b"abc"[..])
            .unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.as_mut_bytes()[..6].copy_from_slice(b"../bad");
        header.set_cksum();
        archive.append(&header, &b"bad"[..]).unwrap();
        let body = archive.into_inner().unwrap().finish().unwrap();
        let path = folder.path().join("cni/bin");
        let component = Component::new(
            &server(body.clone()).await,
            &hash(&body),
            path.to_str().unwrap(),
            true,
        );
        component.unwrap().install(&installable()).await.unwrap();
        assert_eq!(std::fs::read(path.join("host-local")).unwrap(), b"abc");
        assert!(!folder.path().join("cni/bad").exists());
    }

    #[test]
    fn a_component_that_says_too_little_is_refused() {
        let good = hash(b"");
        for (url, hash, path) in [
            ("ftp://host/a", good.as_str(), "/usr/bin/a"),
            ("a", &good, "/usr/bin/a"),
            ("http://host/a", "md5:00", "/usr/bin/a"),
            ("http://host/a", &good[..20], "/usr/bin/a"),
            ("http://host/a", &good, "usr/bin/a"),
            ("http://host/a", &good, "/usr/../a"),
            ("http://host/a", &good, "/"),
            ("http://host/a", &good, ""),
        ] {
            assert!(
                Component::new(url, hash, path, false).is_err(),
                "{url} {hash} {path}"
            );
        }
    }
}
