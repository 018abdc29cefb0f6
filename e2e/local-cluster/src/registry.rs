//! The OCI registry (distribution): the one of a cluster, and additional ones that require a login or use TLS.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

pub(crate) const PORT: u16 = 5000;

/// How a registry is reached, and what login it requires.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Without it the registry uses plain HTTP.
    pub tls: Option<Tls>,
    /// The required login.
    pub access: Access,
}

/// PEM files.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The registry's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA that must have signed clients' certificates; if not set, clients need none.
    pub clients: Option<PathBuf>,
}

/// The login that a registry requires.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// None.
    #[default]
    Anonymous,
    /// A password in this file, as `htpasswd -B` writes it.
    Password(PathBuf),
    /// A token of a token service.
    Token {
        /// The URL where clients get one.
        realm: String,
        /// The registry's name in tokens.
        service: String,
        /// The service's name.
        issuer: String,
        /// The service's public keys, a JSON Web Key Set.
        keys: PathBuf,
    },
}

/// The configuration of the registry of a cluster: plain HTTP, at one address for the host, the nodes and the pods.
pub(crate) fn config(address: Ipv4Addr, storage: &Path) -> String {
    let address = SocketAddrV4::new(address, PORT).into();
    config_with(address, storage, &Settings::default())
}

/// The configuration of a registry.
pub(crate) fn config_with(address: SocketAddr, storage: &Path, settings: &Settings) -> String {
    let mut http = json!({"addr": address.to_string()});
    if let Some(Tls {
        certificate,
        key,
        clients,
    }) = &settings.tls
    {
        http["tls"] = json!({"certificate": certificate, "key": key});
        if let Some(authority) = clients {
            http["tls"]["clientcas"] = json!([authority]);
        }
    }
    let mut config = json!({
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": storage}, "delete": {"enabled": true}},
        "http": http,
    });
    if let Some(access) = access(&settings.access) {
        config["auth"] = access;
    }
    config.to_string()
}

fn access(access: &Access) -> Option<Value> {
    match access {
        Access::Anonymous => None,
        Access::Password(file) => Some(json!({"htpasswd": {"realm": "e2e", "path": file}})),
        Access::Token {
            realm,
            service,
            issuer,
            keys,
        } => Some(json!({"token": {"realm": realm, "service": service, "issuer": issuer, "jwks": keys}})),
    }
}

/// Otherwise it would look for a collector of traces.
pub(crate) const ENVIRONMENT: [(&str, &str); 1] = [("OTEL_TRACES_EXPORTER", "none")];

/// containerd's settings for it (`hosts.toml`): that it uses plain HTTP.
pub(crate) fn hosts_file(registry: &str) -> String {
    format!(
        "server = \"http://{registry}\"\n\
         [host.\"http://{registry}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n"
    )
}
