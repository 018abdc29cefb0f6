//! Turns the kubeconfig of this process into one that needs no other files.

use std::env;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster as Server, Config, Kubeconfig};
use serde_json::json;

use super::Error;
use super::current_context::{CurrentContext, parse};
use super::inline::{inline_authority, read_file, written};

/// The folder of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where a process finds the configuration of its cluster.
#[derive(Debug, Clone)]
pub struct Sources {
    /// `$KUBECONFIG`; only its first path is used.
    pub kubeconfig: Option<OsString>,
    /// The context to use, if not the current one of the file.
    pub context: Option<String>,
    /// The home folder, for `.kube/config`.
    pub home: Option<PathBuf>,
    /// The folder of a pod's service account.
    pub service_account: PathBuf,
    /// Host and port of the API server, from a pod's environment.
    pub server: Option<(String, String)>,
}

impl Sources {
    /// The sources of this process.
    pub fn of_process() -> Self {
        let text = |name| env::var(name).ok().filter(|text: &String| !text.is_empty());
        Self {
            kubeconfig: env::var_os("KUBECONFIG"),
            context: None,
            home: env::home_dir(),
            service_account: SERVICE_ACCOUNT.into(),
            server: text("KUBERNETES_SERVICE_HOST").zip(text("KUBERNETES_SERVICE_PORT")),
        }
    }

    /// True in a pod, which has a service account and the address of the API server.
    pub fn are_of_pod(&self) -> bool {
        self.server.is_some() && self.service_account.join("token").exists()
    }

    /// The file to read, whether it exists or not.
    fn path(&self) -> Option<PathBuf> {
        let listed = self.kubeconfig.as_ref().and_then(|paths| {
            let mut paths = env::split_paths(paths);
            paths.find(|path| !path.as_os_str().is_empty())
        });
        listed.or_else(|| Some(self.home.as_ref()?.join(".kube").join("config")))
    }
}

/// A kubeconfig for use elsewhere.
#[derive(Debug)]
pub struct SelfContained {
    /// Its text. The same sources always give the same text.
    pub text: String,
    /// How it was made.
    pub form: Form,
}

/// How a kubeconfig was made.
#[derive(Debug)]
pub enum Form {
    /// Only the current context, with all certificates, keys and tokens inline.
    Reduced,
    /// The file unchanged, except for the current context.
    Full {
        /// Why it is not reduced.
        why: Box<dyn StdError + Send + Sync>,
    },
    /// From a pod's service account. The token stays in its file, where the kubelet renews it: a copy would expire.
    InCluster,
}

/// Why a file is kept unchanged although its current context is complete.
#[derive(Debug, thiserror::Error)]
#[error("user {user} takes credentials from {from}, which cannot be put into a kubeconfig")]
struct Elsewhere {
    user: String,
    from: &'static str,
}

/// The kubeconfig of this process, changed to need no other file.
///
/// It is that of the first path in `$KUBECONFIG`, otherwise `~/.kube/config`, reduced to the selected context;
/// relative paths in it start at its folder, and the files they name are put inline. `validate` gets a configuration
/// of the result and may request `/version`. If it fails, if the current context or a file is missing, or if
/// credentials come from a program, the file is kept unchanged. If there is no file, the pod's service account is
/// used.
///
/// # Errors
///
/// [`Error::ReadFile`] when the file exists and cannot be read, [`Error::TooLarge`], and [`Error::Nowhere`] when
/// there is neither a file nor a service account.
pub async fn self_contained<E>(
    sources: &Sources,
    validate: impl AsyncFnOnce(Config) -> Result<(), E>,
) -> Result<SelfContained, Error>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let path = sources.path();
    let full = match &path {
        Some(path) => read_if_there(path)?,
        None => None,
    };
    let (Some(path), Some(full)) = (&path, full) else {
        let looked_at = path.map_or_else(
            || "$KUBECONFIG or ~/.kube/config".to_owned(),
            |path| path.display().to_string(),
        );
        return in_cluster(sources, looked_at);
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let full = meant(full, sources.context.as_deref());
    let why = match reduced(full.as_bytes(), folder) {
        Ok(text) => match check(&text, validate).await {
            Ok(()) => {
                return Ok(SelfContained {
                    text,
                    form: Form::Reduced,
                });
            }
            Err(why) => why,
        },
        Err(why) => why,
    };
    Ok(SelfContained {
        text: full,
        form: Form::Full { why },
    })
}

/// The kubeconfig with this context as its current one. If it cannot be read, it is returned unchanged.
fn meant(full: String, context: Option<&str>) -> String {
    let Some(context) = context else { return full };
    let Ok(mut kubeconfig) = parse(full.as_bytes()) else {
        return full;
    };
    if kubeconfig.current_context.as_deref() == Some(context) {
        return full;
    }
    kubeconfig.current_context = Some(context.to_owned());
    // Converted to a value first, which sorts the keys: the maps of a kubeconfig have no order.
    serde_json::to_value(&kubeconfig).map_or(full, |value| value.to_string())
}

async fn check<E>(
    text: &str,
    validate: impl AsyncFnOnce(Config) -> Result<(), E>,
) -> Result<(), Box<dyn StdError + Send + Sync>>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let kubeconfig: Kubeconfig = parse(text.as_bytes())?;
    let config = crate::client::configured(kubeconfig, None)?;
    validate(config).await.map_err(Into::into)
}

/// The current context with everything inline.
fn reduced(full: &[u8], folder: &Path) -> Result<String, Box<dyn StdError + Send + Sync>> {
    let mut current = CurrentContext::of(parse(full)?)?;
    let elsewhere = |from| Elsewhere {
        user: current.of_user(),
        from,
    };
    if current.user.exec.is_some() {
        return Err(elsewhere("a program").into());
    }
    if current.user.auth_provider.is_some() {
        return Err(elsewhere("a provider").into());
    }
    let absolute = |path: &mut Option<String>| {
        if let Some(relative) = path.take().filter(|path| !path.is_empty()) {
            *path = Some(folder.join(relative).to_string_lossy().into_owned());
        }
    };
    absolute(&mut current.cluster.certificate_authority);
    absolute(&mut current.user.client_certificate);
    absolute(&mut current.user.client_key);
    absolute(&mut current.user.token_file);
    let cluster = inline_authority(current.cluster)?;
    let user = inline_user(current.user)?;
    let user = serde_json::to_value(user)?;
    let namespace = current.context.namespace.as_deref();
    Ok(written(&current.context_name, namespace, &cluster, &user))
}

/// As in kubectl, inline values have precedence over files.
fn inline_user(mut user: AuthInfo) -> Result<AuthInfo, Error> {
    if let Some(path) = user.client_certificate.take()
        && user.client_certificate_data.is_none()
    {
        user.client_certificate_data = Some(STANDARD.encode(read_file(path.as_ref())?));
    }
    if let Some(path) = user.client_key.take()
        && user.client_key_data.is_none()
    {
        user.client_key_data = Some(STANDARD.encode(read_file(path.as_ref())?).into());
    }
    if let Some(path) = user.token_file.take()
        && user.token.is_none()
    {
        let token = String::from_utf8_lossy(&read_file(path.as_ref())?)
            .trim()
            .to_owned();
        user.token = Some(token.into());
    }
    Ok(user)
}

fn in_cluster(sources: &Sources, looked_at: String) -> Result<SelfContained, Error> {
    let token = sources.service_account.join("token");
    let Some((host, port)) = sources.server.as_ref().filter(|_| sources.are_of_pod()) else {
        return Err(Error::Nowhere { looked_at });
    };
    let authority = read_file(&sources.service_account.join("ca.crt"))?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    let server = Server {
        server: Some(format!("https://{host}:{port}")),
        certificate_authority_data: Some(STANDARD.encode(authority)),
        ..Server::default()
    };
    Ok(SelfContained {
        text: written("in-cluster", None, &server, &json!({"tokenFile": token})),
        form: Form::InCluster,
    })
}

/// The content of a file, limited in size; `None` when there is no such file.
fn read_if_there(path: &Path) -> Result<Option<String>, Error> {
    match read_file(path) {
        Ok(content) => String::from_utf8(content)
            .map(Some)
            .map_err(|_| Error::Unreadable { line: 0, column: 0 }),
        Err(Error::ReadFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::fs;

    use secrecy::ExposeSecret as _;
    use tempfile::TempDir;

    use super::*;

    const CA: &str = include_str!("testdata/ca.pem");

    /// A folder with a kubeconfig and the files that it refers to.
    struct Folder(TempDir);

    impl Folder {
        fn with(kubeconfig: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write("config", kubeconfig);
            folder.write("pki/ca.pem", CA);
            folder.write("pki/client.pem", CA);
            folder.write("pki/client.key", "a key");
            folder.write("token", "t0ken\n");
            folder
        }

        fn write(&self, path: &str, content: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn sources(&self) -> Sources {
            Sources {
                kubeconfig: Some(format!(":{}:/nowhere/else", self.0.path().join("config").display()).into()),
                context: None,
                home: None,
                service_account: self.0.path().join("account"),
                server: None,
            }
        }

        async fn made(&self) -> SelfContained {
            self_contained(&self.sources(), fine).await.unwrap()
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.path().join("config")).unwrap()
        }
    }

    async fn fine(_: Config) -> Result<(), Infallible> {
        Ok(())
    }

    const FILES: &str = "
current-context: far
contexts:
- {name: near, context: {cluster: near, user: other}}
- {name: far, context: {cluster: far, user: me, namespace: shop}}
clusters:
- {name: near, cluster: {server: 'https://near'}}
- {name: far, cluster: {server: 'https://far', certificate-authority: pki/ca.pem}}
users:
- {name: other, user: {exec: {command: sh}}}
- {name: me, user: {client-certificate: pki/client.pem, client-key: ./pki/client.key}}
";

    #[tokio::test]
    async fn files_beside_the_kubeconfig_are_put_into_its_current_context() {
        let folder = Folder::with(FILES);
        let made = folder.made().await;
        assert!(matches!(made.form, Form::Reduced), "{made:?}");
        let kubeconfig = parse(made.text.as_bytes()).unwrap();
        assert_eq!((kubeconfig.contexts.len(), kubeconfig.auth_infos.len()), (1, 1));
        let current = CurrentContext::of(kubeconfig).unwrap();
        assert_eq!(current.context.namespace.as_deref(), Some("shop"));
        assert_eq!(current.cluster.certificate_authority, None);
        assert_eq!(
            current.cluster.certificate_authority_data,
            Some(STANDARD.encode(CA))
        );
        assert_eq!(current.user.client_certificate_data, Some(STANDARD.encode(CA)));
        let key = current.user.client_key_data.unwrap();
        assert_eq!(key.expose_secret(), STANDARD.encode("a key"));
        assert_eq!(folder.made().await.text, made.text);
    }

    #[tokio::test]
    async fn the_context_that_is_meant_is_the_current_one_of_what_is_made() {
        let folder = Folder::with(FILES);
        let made = async |context: &str| {
            let sources = Sources {
                context: Some(context.to_owned()),
                ..folder.sources()
            };
            self_contained(&sources, fine).await.unwrap()
        };
        assert_eq!(made("far").await.text, folder.made().await.text);
        // Its user's credentials come from a program, so the file is kept whole.
        let near = made("near").await;
        assert!(matches!(near.form, Form::Full { .. }), "{near:?}");
        let kubeconfig = parse(near.text.as_bytes()).unwrap();
        assert_eq!((kubeconfig.contexts.len(), kubeconfig.auth_infos.len()), (2, 2));
        let current = CurrentContext::of(kubeconfig).unwrap();
        assert_eq!(current.cluster.server.as_deref(), Some("https://near"));
        assert!(current.user.exec.is_some());
        let without = Folder::with(&FILES.replace("exec: {command: sh}", "tokenFile: token"));
        let sources = Sources {
            context: Some("near".to_owned()),
            ..without.sources()
        };
        let near = self_contained(&sources, fine).await.unwrap();
        assert!(matches!(near.form, Form::Reduced), "{near:?}");
        let current = CurrentContext::of(parse(near.text.as_bytes()).unwrap()).unwrap();
        assert_eq!(current.cluster.server.as_deref(), Some("https://near"));
    }

    #[tokio::test]
    async fn the_whole_file_with_another_context_is_written_with_its_keys_in_order() {
        let keys = ["h", "b", "g", "a", "f", "c", "e", "d"].map(|key| format!("{key}: {key}"));
        let provider = format!("auth-provider: {{name: oidc, config: {{{}}}}}", keys.join(", "));
        let folder = Folder::with(&FILES.replace("exec: {command: sh}", &provider));
        let sources = Sources {
            context: Some("near".to_owned()),
            ..folder.sources()
        };
        let made = self_contained(&sources, fine).await.unwrap();
        assert!(matches!(made.form, Form::Full { .. }), "{made:?}");
        let ordered = r#"{"a":"a","b":"b","c":"c","d":"d","e":"e","f":"f","g":"g","h":"h"}"#;
        assert!(made.text.contains(ordered), "{}", made.text);
    }

    #[tokio::test]
    async fn a_token_beside_the_kubeconfig_is_put_in_without_its_line_break() {
        let folder = Folder::with(&FILES.replace(
            "client-certificate: pki/client.pem, client-key: ./pki/client.key",
            "tokenFile: token",
        ));
        let current = CurrentContext::of(parse(folder.made().await.text.as_bytes()).unwrap()).unwrap();
        assert_eq!(current.user.token.unwrap().expose_secret(), "t0ken");
        assert_eq!(current.user.token_file, None);
    }

    #[tokio::test]
    async fn what_cannot_be_reduced_is_kept_as_it_is() {
        let check = async |kubeconfig: &str, words: &str| {
            let folder = Folder::with(kubeconfig);
            let made = folder.made().await;
            assert_eq!(made.text, folder.text());
            let Form::Full { why } = made.form else {
                panic!("{words}: not kept");
            };
            assert!(why.to_string().contains(words), "{why}");
        };
        check(
            &FILES.replace("current-context: far", "current-context: gone"),
            "no context \"gone\"",
        )
        .await;
        check(
            &FILES.replace("current-context: far", "current-context: near"),
            "from a program",
        )
        .await;
        check(&FILES.replace("pki/ca.pem", "pki/gone.pem"), "gone.pem").await;
        check("users: [", "cannot be read").await;
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_keeps_the_whole_file() {
        let folder = Folder::with(FILES);
        let asked = Cell::new(None);
        let made = self_contained(&folder.sources(), async |config: Config| {
            asked.set(config.cluster_url.host().map(str::to_owned));
            Err::<(), _>(io::Error::other("nobody there"))
        })
        .await
        .unwrap();
        assert_eq!(asked.take().as_deref(), Some("far"));
        assert_eq!(made.text, folder.text());
        assert!(matches!(made.form, Form::Full { why } if why.to_string() == "nobody there"));
    }

    #[tokio::test]
    async fn without_a_file_the_service_account_takes_its_place() {
        let folder = Folder::with("");
        let mut sources = folder.sources();
        sources.kubeconfig = None;
        sources.home = Some(folder.0.path().join("nobody"));
        let error = self_contained(&sources, fine).await.unwrap_err();
        assert!(matches!(&error, Error::Nowhere { .. }), "{error}");
        assert!(error.to_string().contains("nobody/.kube/config"), "{error}");

        folder.write("account/token", "t0ken");
        folder.write("account/ca.crt", CA);
        sources.server = Some(("fd00::1".to_owned(), "443".to_owned()));
        let made = self_contained(&sources, fine).await.unwrap();
        assert!(matches!(made.form, Form::InCluster), "{made:?}");
        assert!(!made.text.contains("t0ken"), "{}", made.text);
        let current = CurrentContext::of(parse(made.text.as_bytes()).unwrap()).unwrap();
        assert_eq!(current.cluster.server.as_deref(), Some("https://[fd00::1]:443"));
        assert!(current.user.token_file.unwrap().ends_with("account/token"));
    }

    #[tokio::test]
    async fn the_home_folder_is_looked_at_when_nothing_is_named() {
        let folder = Folder::with("");
        folder.write(".kube/config", &FILES.replace("pki/", "../pki/"));
        let mut sources = folder.sources();
        sources.kubeconfig = Some(OsString::new());
        sources.home = Some(folder.0.path().to_owned());
        let made = self_contained(&sources, fine).await.unwrap();
        assert!(matches!(made.form, Form::Reduced), "{made:?}");
    }

    #[tokio::test]
    async fn a_file_that_is_there_and_unreadable_is_an_error() {
        let folder = Folder::with("");
        let mut sources = folder.sources();
        sources.kubeconfig = Some(folder.0.path().join("pki").into());
        let error = self_contained(&sources, fine).await.unwrap_err();
        assert!(matches!(error, Error::ReadFile { .. }), "{error}");
    }
}
