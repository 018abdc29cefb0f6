//! The flags that verbs on a cluster share: which cluster, and how to print.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use cluster::{ClientOptions, Overrides};

/// The cluster, and the namespace in it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Connection {
    /// Namespace of the release; by default that of the kubeconfig's context.
    #[arg(short, long, env = "HELM_NAMESPACE", hide_env = true)]
    pub(crate) namespace: Option<String>,
    /// The kubeconfig file; by default $KUBECONFIG or ~/.kube/config.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "HELM_KUBECONTEXT", hide_env = true)]
    pub(crate) kube_context: Option<String>,
    /// Address of the API server, instead of the kubeconfig's.
    #[arg(long, env = "HELM_KUBEAPISERVER", hide_env = true, value_name = "URL")]
    pub(crate) kube_apiserver: Option<String>,
    /// A token to authenticate with at the API server.
    #[arg(long, env = "HELM_KUBETOKEN", hide_env = true, value_name = "TOKEN")]
    pub(crate) kube_token: Option<String>,
    /// The user to act as (impersonation).
    #[arg(long, env = "HELM_KUBEASUSER", hide_env = true, value_name = "USER")]
    pub(crate) kube_as_user: Option<String>,
    /// A group of the user to act as (can specify multiple).
    #[arg(
        long,
        env = "HELM_KUBEASGROUPS",
        hide_env = true,
        value_name = "GROUP",
        value_delimiter = ','
    )]
    pub(crate) kube_as_group: Vec<String>,
    /// File with the certificates of the API server's authorities.
    #[arg(long, env = "HELM_KUBECAFILE", hide_env = true, value_name = "FILE")]
    pub(crate) kube_ca_file: Option<PathBuf>,
    /// The name that the API server's certificate must have.
    #[arg(long, env = "HELM_KUBETLS_SERVER_NAME", hide_env = true, value_name = "NAME")]
    pub(crate) kube_tls_server_name: Option<String>,
    /// Accept any certificate of the API server.
    #[arg(
        long,
        env = "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
        hide_env = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) kube_insecure_skip_tls_verify: bool,
    /// When to colour the output; by default on a terminal, unless $`NO_COLOR` is set.
    #[arg(
        long,
        alias = "colour",
        value_enum,
        default_value = "auto",
        env = "HELM_COLOR",
        hide_env = true
    )]
    pub(crate) color: Colour,
    /// Storage of records: secret or configmap.
    #[arg(long, env = "HELM_DRIVER", default_value = "", hide = true)]
    pub(crate) storage_driver: String,
    /// Print debug output.
    #[arg(long, env = "HELM_DEBUG", hide_env = true)]
    pub(crate) debug: bool,
}

impl Connection {
    /// Which server, and who asks it.
    pub(crate) fn options(&self) -> ClientOptions {
        ClientOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.kube_context.clone(),
            user_agent: concat!("kco/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// What counts in place of the kubeconfig. Empty variables of the environment say nothing.
    pub(crate) fn overrides(&self) -> Overrides {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let groups = self.kube_as_group.iter().filter(|group| !group.is_empty());
        Overrides {
            server: given(&self.kube_apiserver),
            token: given(&self.kube_token).map(Into::into),
            user: given(&self.kube_as_user),
            groups: groups.cloned().collect(),
            ca_file: self
                .kube_ca_file
                .clone()
                .filter(|file| !file.as_os_str().is_empty()),
            tls_server_name: given(&self.kube_tls_server_name),
            insecure_skip_tls_verify: self.kube_insecure_skip_tls_verify,
        }
    }
}

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}
