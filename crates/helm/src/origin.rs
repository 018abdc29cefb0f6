//! Where a chart comes from, in the words of those who ask for it; checked by those who fetch it.

use std::fmt;

/// A chart's origin as users write it in `spec.chart`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChartSpec {
    /// `oci://…`, an archive's URL, or the root of a chart repository.
    pub url: String,
    /// Appended to an `oci://` path, or the chart's name in a repository.
    pub repo: Option<String>,
    /// The version; a registry needs one.
    pub version: Option<String>,
    /// Speak HTTP without TLS to a registry.
    pub plain_http: bool,
    /// Take any certificate.
    pub insecure_skip_verify: bool,
    /// Who we are there.
    pub credentials: Option<CredentialsSpec>,
}

/// A user name, and where its password is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialsSpec {
    /// The user name.
    pub username: String,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Key in the Secret's data.
    pub key: String,
}

impl fmt::Display for CredentialsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.secret)
    }
}
