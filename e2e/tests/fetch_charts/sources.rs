//! The registries of all kinds that the scenarios fetch from, and helpers for definitions.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;
use e2e::http_server::{Answer, Asked};
use e2e::namespace::condition;
use e2e::token_service::TokenService;
use e2e::{ChartFolder, HostPlatform, HttpServer, Namespace};
use local_cluster::certificates::{Authority, Identity};
use local_cluster::registry::{Access, Settings, Tls};
use serde_json::{Value, json};

pub(super) const USER: &str = "robot";
pub(super) const PASSWORD: &str = "correct-horse-battery";

/// Registries on loopback, each with another kind of login.
pub(super) struct Sources {
    pub(super) platform: &'static HostPlatform,
    /// Without a login.
    pub(super) open: String,
    /// With a password.
    pub(super) guarded: String,
    /// With tokens.
    pub(super) tokens: String,
    /// Without a login, by TLS with a certificate of our own CA.
    pub(super) sealed: String,
    /// With a client certificate of that CA.
    pub(super) mutual: String,
    pub(super) service: TokenService,
    pki: PathBuf,
}

impl Sources {
    /// Those that all scenarios share.
    pub(super) fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Sources, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn start() -> Result<Self> {
        let platform = HostPlatform::shared()?;
        let plane = platform.plane();
        let folder = plane.folder().join("sources");
        let authority = Authority::create(folder.clone())?;
        authority.serve("registry", vec!["127.0.0.1".to_owned()])?;
        authority.identify(
            "client",
            Identity {
                user: USER,
                group: None,
            },
        )?;
        let service = TokenService::start(USER, PASSWORD)?;
        let tls = |clients| Tls {
            certificate: folder.join("registry.crt"),
            key: folder.join("registry.key"),
            clients,
        };
        let start = |name: &str, access: Access, tls: Option<Tls>| -> Result<String> {
            let address = plane.start_registry(name, &Settings { tls, access })?;
            Ok(address.to_string())
        };
        Ok(Self {
            open: start("open", Access::Anonymous, None)?,
            guarded: start(
                "guarded",
                e2e::host_platform::password(&folder, USER, PASSWORD)?,
                None,
            )?,
            tokens: start("tokens", service.access(&folder)?, None)?,
            sealed: start("sealed", Access::Anonymous, Some(tls(None)))?,
            mutual: start(
                "mutual",
                Access::Anonymous,
                Some(tls(Some(authority.certificate()))),
            )?,
            service,
            platform,
            pki: folder,
        })
    }

    /// A file server with TLS, with a certificate of the CA.
    pub(super) fn serve_tls(
        &self,
        decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<HttpServer> {
        HttpServer::start_tls(
            &self.pki.join("registry.crt"),
            &self.pki.join("registry.key"),
            decide,
        )
    }

    /// A file of the CA, for Helm's flags.
    pub(super) fn file(&self, name: &str) -> String {
        self.pki.join(name).to_string_lossy().into_owned()
    }

    /// The content of a file of the CA.
    pub(super) fn pem(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.pki.join(name))?)
    }

    /// Pushes a chart with that name and version, with these flags; returns its URL and digest.
    pub(super) fn push(
        &self,
        registry: &str,
        name: &str,
        version: &str,
        flags: &[&str],
    ) -> Result<(String, String)> {
        let package = chart(name, version)?.package(self.platform.site())?;
        let url = package.push(self.platform.site(), registry, flags)?;
        Ok((url, package.digest()?))
    }
}

/// The sample chart without its pods, because there is no node to run them.
pub(super) fn chart(name: &str, version: &str) -> Result<ChartFolder> {
    let chart = ChartFolder::copy("web", name, version)?;
    for file in [
        "templates/deployment.yaml",
        "templates/service.yaml",
        "templates/NOTES.txt",
    ] {
        chart.remove(file)?;
    }
    Ok(chart)
}

/// Applies a Secret with these texts.
pub(super) fn secret(namespace: &Namespace, name: &str, data: &Value) -> Result<()> {
    namespace.apply(&json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace.namespace()},
        "stringData": data,
    }))
}

/// Applies the Secret with which most scenarios log in.
pub(super) fn password(namespace: &Namespace) -> Result<Value> {
    secret(namespace, "password", &json!({"password": PASSWORD}))?;
    Ok(credentials(namespace.namespace(), "password", "password"))
}

/// `credentials` of a definition.
pub(super) fn credentials(namespace: &str, name: &str, key: &str) -> Value {
    json!({"username": USER, "passwordRef": {"namespace": namespace, "name": name, "key": key}})
}

/// Applies a definition and waits until its chart has become a type; returns the definition.
pub(super) fn fetched(namespace: &Namespace, name: &str, chart: &Value) -> Result<Value> {
    namespace.define_as(name, chart)?;
    // Without a node its controller never becomes ready, so wait for Synced, which says that everything is in place.
    namespace.wait("compositiondefinitions", name, |definition| {
        condition(definition, "Synced").is_some_and(|synced| synced["status"] == "True")
            && definition["status"]["chart"]["observedGeneration"] == definition["metadata"]["generation"]
    })
}

/// Applies a definition and waits until its chart is refused with exactly this message; returns the definition and
/// removes it, because failing ones are retried again and again, and would delay others.
pub(super) fn refused(namespace: &Namespace, name: &str, chart: &Value, message: &str) -> Result<Value> {
    let definition = refused_for_now(namespace, name, chart, message)?;
    namespace.kubectl(&["delete", "compositiondefinition", name, "--wait=false"])?;
    Ok(definition)
}

/// Like [`refused`], but the definition stays.
///
/// The password must not appear in it, nor in its events.
pub(super) fn refused_for_now(
    namespace: &Namespace,
    name: &str,
    chart: &Value,
    message: &str,
) -> Result<Value> {
    namespace.define_as(name, chart)?;
    let definition = namespace.wait("compositiondefinitions", name, |definition| {
        condition(definition, "Synced").is_some_and(|synced| {
            synced["status"] == "False"
                && synced["observedGeneration"] == definition["metadata"]["generation"]
        })
    })?;
    let said = |type_: &str| {
        condition(&definition, type_).unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let message = format!("could not observe the definition: could not fetch the chart: {message}");
    assert_eq!(said("Synced"), message, "{name}");
    assert_eq!(said("Ready"), message, "{name}");
    let regarding = format!("regarding.name={name}");
    let events = namespace.kubectl(&[
        "get",
        "events.events.k8s.io",
        "--field-selector",
        &regarding,
        "--output",
        "json",
    ])?;
    for text in [definition.to_string(), events] {
        assert!(!text.contains(PASSWORD), "{name} shows the password: {text}");
    }
    Ok(definition)
}

/// The plural of a fetched definition's kind is served.
pub(super) fn assert_served(namespace: &Namespace, definition: &Value) -> Result<()> {
    let resource = format!(
        "{}.composition.krateo.io",
        definition["status"]["resource"].as_str().unwrap()
    );
    namespace.kubectl(&["get", &resource]).map(drop)
}
