//! The cluster's own CA: certificates and kubeconfigs for its programs and users.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

/// The CA of one cluster; its files are in one folder, each certificate `name.crt` with its key `name.key`.
pub struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The identity in a client certificate.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// Its name.
    pub user: &'a str,
    /// Its group.
    pub group: Option<&'a str>,
}

impl Authority {
    /// A new CA, with the key pair that signs the tokens of service accounts.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn create(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let mut params = params("local-cluster", None, Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("could not make the cluster's certificate authority")?;
        let authority = Self { folder, issuer };
        authority.write("ca.crt", &authority.issuer.pem())?;
        authority.write("ca.key", &authority.issuer.key().serialize_pem())?;
        let tokens = KeyPair::generate()?;
        authority.write("tokens.key", &tokens.serialize_pem())?;
        authority.write("tokens.pub", &tokens.public_key_pem())?;
        Ok(authority)
    }

    /// A server certificate for these DNS names and addresses.
    ///
    /// # Errors
    /// When a name is none, or the folder cannot be written.
    pub fn serve(&self, name: &str, subjects: Vec<String>) -> Result<()> {
        let mut params = params(name, None, subjects)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params).map(drop)
    }

    /// A client certificate.
    ///
    /// # Errors
    /// As [`Authority::serve`].
    pub fn identify(&self, name: &str, who: Identity<'_>) -> Result<Credentials> {
        let mut params = params(who.user, who.group, Vec::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params)
    }

    /// A kubeconfig for `who`, below the folder of the CA.
    pub(crate) fn kubeconfig(&self, name: &str, who: Identity<'_>, api_server: &str) -> Result<PathBuf> {
        let credentials = self.identify(name, who)?;
        let file = self.folder.join(format!("{name}.kubeconfig"));
        write_private(
            &file,
            &kubeconfig(api_server, &self.issuer.pem(), &credentials.user()),
        )?;
        Ok(file)
    }

    /// The file with the CA's own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<Credentials> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("could not sign the certificate of {name}"))?
            .pem();
        let key = key.serialize_pem();
        self.write(&format!("{name}.crt"), &certificate)?;
        self.write(&format!("{name}.key"), &key)?;
        Ok(Credentials { certificate, key })
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        write_private(&self.folder.join(name), text)
    }
}

/// A client certificate and its key, in PEM.
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Credentials {
    fn user(&self) -> Value {
        json!({
            "client-certificate-data": BASE64_STANDARD.encode(&self.certificate),
            "client-key-data": BASE64_STANDARD.encode(&self.key),
        })
    }
}

fn params(user: &str, group: Option<&str>, subjects: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(subjects)?;
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, user);
    // A cluster exists for minutes; the wide range tolerates a wrong clock.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    Ok(params)
}

/// A kubeconfig that needs no other file, as JSON, which is YAML too.
pub(crate) fn kubeconfig(api_server: &str, authority: &str, user: &Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "local",
            "cluster": {
                "server": api_server,
                "certificate-authority-data": BASE64_STANDARD.encode(authority),
            },
        }],
        "users": [{"name": "local", "user": user}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    })
    .to_string()
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let folder = file.parent().unwrap_or(Path::new("."));
    // Only its owner can read such a file, and whoever is reading the previous one can still read all of it.
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut unfinished| {
        unfinished.write_all(text.as_bytes())?;
        Ok(unfinished.persist(file)?)
    });
    written
        .map(drop)
        .with_context(|| format!("could not write {}", file.display()))
}
