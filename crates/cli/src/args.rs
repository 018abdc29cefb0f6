//! Arguments that several verbs share: values, chart sources, and access to repositories and registries.

use std::path::PathBuf;

use clap::Args;

/// The sources of values; the groups are applied in the order of these fields.
#[derive(Debug, Args)]
pub(crate) struct Values {
    /// Values in a YAML file, "-" for standard input (can specify multiple).
    #[arg(short = 'f', long = "values", value_delimiter = ',')]
    pub(crate) files: Vec<String>,
    /// Set JSON values: key1=jsonval1,key2=jsonval2 or {"key1": jsonval1}.
    #[arg(long)]
    pub(crate) set_json: Vec<String>,
    /// Set values: key1=val1,key2=val2.
    #[arg(long)]
    pub(crate) set: Vec<String>,
    /// Set string values: key1=val1,key2=val2.
    #[arg(long)]
    pub(crate) set_string: Vec<String>,
    /// Set values from files: key1=path1,key2=path2.
    #[arg(long)]
    pub(crate) set_file: Vec<String>,
    /// Set a literal string: key=val.
    #[arg(long)]
    pub(crate) set_literal: Vec<String>,
}

impl Values {
    /// True when none are given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            files,
            set_json,
            set,
            set_string,
            set_file,
            set_literal,
        } = self;
        [files, set_json, set, set_string, set_file, set_literal]
            .iter()
            .all(|given| given.is_empty())
    }
}

/// The source of a chart that is not on disk.
#[derive(Debug, Default, Args)]
pub(crate) struct Source {
    /// Address of the chart repository in which the chart is looked up by name.
    #[arg(long)]
    pub(crate) repo: Option<String>,
    /// Version of the chart.
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// Accept pre-releases too; equivalent to --version '>0.0.0-0'.
    #[arg(long)]
    pub(crate) devel: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// What we present when a chart is fetched, and which certificates and keys we trust.
#[derive(Debug, Default, Args)]
pub(crate) struct Access {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Take the chart only when one of the keyring's keys has signed it.
    #[arg(long)]
    pub(crate) verify: bool,
    /// A file with public keys, by default that of gpg: pubring.gpg or pubring.kbx in $GNUPGHOME or ~/.gnupg.
    #[arg(long)]
    pub(crate) keyring: Option<PathBuf>,
    /// Fetch the chart's provenance file as well; `kco pull` keeps it.
    #[arg(skip)]
    pub(crate) provenance: bool,
    /// Accepted without effect: user name and password stay with the host they are for.
    #[arg(long)]
    pass_credentials: bool,
}

/// Access to a repository or registry.
#[derive(Debug, Default, Args)]
pub(crate) struct Remote {
    /// User name for the repository or registry.
    #[arg(long)]
    pub(crate) username: Option<String>,
    /// Password for the repository or registry.
    #[arg(long)]
    pub(crate) password: Option<String>,
    /// Use HTTP without TLS for the registry.
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Accept any certificate of the server.
    #[arg(long)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// File with certificates of additional trusted certificate authorities.
    #[arg(long)]
    pub(crate) ca_file: Option<PathBuf>,
    /// File with the client certificate.
    #[arg(long)]
    pub(crate) cert_file: Option<PathBuf>,
    /// File with the private key of the client certificate.
    #[arg(long)]
    pub(crate) key_file: Option<PathBuf>,
}
