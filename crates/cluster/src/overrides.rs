//! What a command line says in place of a kubeconfig, as client-go's flags do.

use std::path::PathBuf;

use kube::config::{AuthInfo, Config, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use secrecy::SecretString;

/// What context, cluster and user are called that no kubeconfig has.
const NAME: &str = "kco";

/// Everything that is set counts in place of what the kubeconfig says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The address of the API server.
    pub server: Option<String>,
    /// A token to introduce oneself with.
    pub token: Option<SecretString>,
    /// As whom to act.
    pub user: Option<String>,
    /// As a member of which groups.
    pub groups: Vec<String>,
    /// A file with the certificates of the server's authorities.
    pub ca_file: Option<PathBuf>,
    /// The name that the server's certificate must have.
    pub tls_server_name: Option<String>,
    /// Accept any certificate of the server.
    pub insecure_skip_tls_verify: bool,
}

impl Overrides {
    /// True when nothing is set.
    fn is_empty(&self) -> bool {
        let Self {
            server,
            token,
            user,
            groups,
            ca_file,
            tls_server_name,
            insecure_skip_tls_verify,
        } = self;
        let is_set = server.is_some() || token.is_some() || user.is_some() || !groups.is_empty();
        !is_set && ca_file.is_none() && tls_server_name.is_none() && !insecure_skip_tls_verify
    }

    /// Writes what is set into a kubeconfig, at the context that counts. Where it has none, an address is enough.
    pub(crate) fn on_kubeconfig(&self, mut kubeconfig: Kubeconfig, context: Option<&str>) -> Kubeconfig {
        if self.is_empty() {
            return kubeconfig;
        }
        let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
        let name = context.map(str::to_owned).or(current);
        if name.is_none() && self.server.is_some() {
            kubeconfig.current_context = Some(NAME.to_owned());
            kubeconfig.contexts.push(NamedContext {
                name: NAME.to_owned(),
                context: Some(Context {
                    cluster: NAME.to_owned(),
                    ..Context::default()
                }),
                ..NamedContext::default()
            });
        }
        let name = name.unwrap_or_else(|| NAME.to_owned());
        let context = kubeconfig.contexts.iter_mut().find(|one| one.name == name);
        // Which one is missing is said where it is looked for.
        let Some(context) = context.and_then(|one| one.context.as_mut()) else {
            return kubeconfig;
        };
        let user = context.user.get_or_insert_with(|| NAME.to_owned()).clone();
        let cluster = context.cluster.clone();
        self.write_cluster(&mut kubeconfig.clusters, &cluster);
        if kubeconfig.auth_infos.iter().all(|one| one.name != user) {
            kubeconfig.auth_infos.push(NamedAuthInfo {
                name: user.clone(),
                ..NamedAuthInfo::default()
            });
        }
        for one in kubeconfig.auth_infos.iter_mut().filter(|one| one.name == user) {
            self.write_user(one.auth_info.get_or_insert_default());
        }
        kubeconfig
    }

    /// The same for the configuration of a pod, whose server stays.
    pub(crate) fn on_config(&self, config: &mut Config) {
        self.write_user(&mut config.auth_info);
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
    }

    fn write_cluster(&self, clusters: &mut Vec<NamedCluster>, name: &str) {
        if clusters.iter().all(|one| one.name != name) {
            clusters.push(NamedCluster {
                name: name.to_owned(),
                ..NamedCluster::default()
            });
        }
        for cluster in clusters.iter_mut().filter(|one| one.name == name) {
            let cluster = cluster.cluster.get_or_insert_default();
            if let Some(server) = &self.server {
                cluster.server = Some(server.clone());
            }
            if let Some(file) = &self.ca_file {
                cluster.certificate_authority = Some(file.to_string_lossy().into_owned());
                cluster.certificate_authority_data = None;
            }
            if let Some(name) = &self.tls_server_name {
                cluster.tls_server_name = Some(name.clone());
            }
            if self.insecure_skip_tls_verify {
                cluster.insecure_skip_tls_verify = Some(true);
                cluster.certificate_authority = None;
                cluster.certificate_authority_data = None;
            }
        }
    }

    fn write_user(&self, user: &mut AuthInfo) {
        if let Some(token) = &self.token {
            user.token = Some(token.clone());
            user.token_file = None;
            user.exec = None;
            user.auth_provider = None;
        }
        if let Some(name) = &self.user {
            user.impersonate = Some(name.clone());
            user.impersonate_groups = None;
        }
        if !self.groups.is_empty() {
            user.impersonate_groups = Some(self.groups.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{configured, impersonation};

    const KUBECONFIG: &str = "
current-context: near
clusters: [{name: near, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: near, context: {cluster: near, user: u}}]
users: [{name: u, user: {exec: {command: never}}}]
";

    fn applied(kubeconfig: &str, overrides: &Overrides) -> Config {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
        configured(overrides.on_kubeconfig(kubeconfig, None), None).unwrap()
    }

    #[test]
    fn what_is_set_counts_in_place_of_the_kubeconfig() {
        let overrides = Overrides {
            server: Some("https://127.0.0.1:2".to_owned()),
            token: Some("t".to_owned().into()),
            user: Some("jane".to_owned()),
            groups: vec!["a".to_owned(), "b".to_owned()],
            tls_server_name: Some("near.example".to_owned()),
            insecure_skip_tls_verify: true,
            ca_file: None,
        };
        for kubeconfig in [KUBECONFIG, "kind: Config"] {
            let config = applied(kubeconfig, &overrides);
            assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:2/");
            assert!(config.accept_invalid_certs);
            assert_eq!(config.tls_server_name.as_deref(), Some("near.example"));
            assert!(config.auth_info.exec.is_none() && config.auth_info.token.is_some());
            let headers = impersonation(&config.auth_info).unwrap();
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            assert_eq!(
                headers,
                [
                    "impersonate-user: jane",
                    "impersonate-group: a",
                    "impersonate-group: b"
                ]
            );
        }
    }

    #[test]
    fn what_is_not_set_stays() {
        let config = applied(KUBECONFIG, &Overrides::default());
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:1/");
        assert!(config.auth_info.exec.is_some());
        let token = Overrides {
            token: Some("t".to_owned().into()),
            ..Overrides::default()
        };
        assert_eq!(
            applied(KUBECONFIG, &token).cluster_url.to_string(),
            "http://127.0.0.1:1/"
        );
        let empty = token.on_kubeconfig(Kubeconfig::default(), None);
        assert!(configured(empty, None).is_err());
    }
}
