//! The OCI registry (distribution): the one of a cluster, and additional ones that require a login or use TLS.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

pub(crate) const PORT: u16 = 5000;

/// How a registry is reached and whom it lets in.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Without it the registry speaks plain HTTP.
    pub tls: Option<Tls>,
    /// Whom it lets in.
    pub access: Access,
}

/// Files of PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The registry's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that clients must have their certificates from; without it nobody needs one.
    pub clients: Option<PathBuf>,
}

/// Whom a registry lets in.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Everybody.
    #[default]
    Anonymous,
    /// Who knows a password of this file, as `htpasswd -B` writes it.
    Password(PathBuf),
    /// Who brings a token of a service.
    Token {
        /// Where clients get one.
        realm: String,
        /// The registry's name there.
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

/// It would look for a collector of traces.
pub(crate) const ENVIRONMENT: [(&str, &str); 1] = [("OTEL_TRACES_EXPORTER", "none")];

/// What containerd is told about it (`hosts.toml`): that it speaks plain HTTP.
pub(crate) fn hosts_file(registry: &str) -> String {
    format!(
        "server = \"http://{registry}\"\n\
         [host.\"http://{registry}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n"
    )
}
