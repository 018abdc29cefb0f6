//! The flags that Helm takes with every verb, in front of it or behind it: `kco -n shop list`, `kco repo list
//! --repository-config file`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::environment;
use crate::release::args::Colour;

/// They are hidden, because the verbs that they mean something to show them as their own: clap hands what stands in front
/// of the verb to the argument of this name there.
#[derive(Debug, Args)]
pub(crate) struct Everywhere {
    #[arg(short, long, global = true, hide = true)]
    namespace: Option<String>,
    #[arg(long, global = true, hide = true)]
    kubeconfig: Option<PathBuf>,
    #[arg(long, global = true, hide = true)]
    kube_context: Option<String>,
    #[arg(long, global = true, hide = true)]
    kube_apiserver: Option<String>,
    #[arg(long, global = true, hide = true)]
    kube_token: Option<String>,
    #[arg(long, global = true, hide = true)]
    kube_as_user: Option<String>,
    #[arg(long, global = true, hide = true, value_delimiter = ',')]
    kube_as_group: Vec<String>,
    #[arg(long, global = true, hide = true)]
    kube_ca_file: Option<PathBuf>,
    #[arg(long, global = true, hide = true)]
    kube_tls_server_name: Option<String>,
    #[arg(long, global = true, hide = true, value_parser = FalseyValueParser::new())]
    kube_insecure_skip_tls_verify: bool,
    #[arg(long, global = true, hide = true)]
    debug: bool,
    #[arg(long, alias = "colour", global = true, hide = true, value_enum)]
    color: Option<Colour>,
    /// The file with logins at registries.
    #[arg(long, global = true, hide = true)]
    registry_config: Option<PathBuf>,
    /// The file with the repositories that have a name.
    #[arg(long, global = true, hide = true)]
    repository_config: Option<PathBuf>,
    /// The folder with the indexes of repositories.
    #[arg(long, global = true, hide = true)]
    repository_cache: Option<PathBuf>,
    /// Accepted without effect: nothing is kept.
    #[arg(long, global = true, hide = true)]
    content_cache: Option<PathBuf>,
    /// Accepted without effect: few requests are made at a time.
    #[arg(long, global = true, hide = true)]
    burst_limit: Option<i64>,
    /// Likewise.
    #[arg(long, global = true, hide = true)]
    qps: Option<f32>,
}

impl Everywhere {
    /// Lets those count that stand for variables of the environment.
    pub(crate) fn apply(&self) {
        let text = |text: &Option<String>| text.clone();
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let flag = |flag: bool| flag.then(|| "true".to_owned());
        let groups = (!self.kube_as_group.is_empty()).then(|| self.kube_as_group.join(","));
        let given = [
            ("HELM_NAMESPACE", text(&self.namespace)),
            ("HELM_KUBECONTEXT", text(&self.kube_context)),
            ("HELM_KUBEAPISERVER", text(&self.kube_apiserver)),
            ("HELM_KUBETOKEN", text(&self.kube_token)),
            ("HELM_KUBEASUSER", text(&self.kube_as_user)),
            ("HELM_KUBEASGROUPS", groups),
            ("HELM_KUBECAFILE", path(&self.kube_ca_file)),
            ("HELM_KUBETLS_SERVER_NAME", text(&self.kube_tls_server_name)),
            (
                "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
                flag(self.kube_insecure_skip_tls_verify),
            ),
            ("HELM_DEBUG", flag(self.debug)),
            ("HELM_REGISTRY_CONFIG", path(&self.registry_config)),
            ("HELM_REPOSITORY_CONFIG", path(&self.repository_config)),
            ("HELM_REPOSITORY_CACHE", path(&self.repository_cache)),
            ("HELM_CONTENT_CACHE", path(&self.content_cache)),
            (
                "HELM_BURST_LIMIT",
                self.burst_limit.map(|limit| limit.to_string()),
            ),
            ("HELM_QPS", self.qps.map(|rate| rate.to_string())),
        ];
        environment::give(given.into_iter().filter_map(|(name, value)| Some((name, value?))));
    }
}
