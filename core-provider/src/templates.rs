//! The templates of a controller bundle: compiled in, each replaceable by a file of the asset folder.
//!
//! The compiled-in ones are the files that `charts/core-provider/assets` ships, so there is one text of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One file of the bundle, in the order in which its object is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asset {
    /// ServiceAccount of the controller.
    ServiceAccount,
    /// The most that the controller may be given.
    BoundConfigMap,
    /// What the controller may grant itself.
    GrantsPolicy,
    /// … in force.
    GrantsPolicyBinding,
    /// What no controller writes.
    OwnPolicy,
    /// … in force.
    OwnPolicyBinding,
    /// Which cluster roles bindings of the chart's own give, where it may bring any.
    ClusterRolesPolicy,
    /// … in force.
    ClusterRolesPolicyBinding,
    /// Which roles they give.
    RolesPolicy,
    /// … in force.
    RolesPolicyBinding,
    /// Permissions on its own type, everywhere.
    ClusterRole,
    /// … given to it.
    ClusterRoleBinding,
    /// Permissions in the controller's namespace.
    Role,
    /// … given to it.
    RoleBinding,
    /// Permissions of chart-inspector on the controller's type.
    InspectorClusterRole,
    /// … given to it.
    InspectorClusterRoleBinding,
    /// The namespaces in which the controller may grant itself permissions; `namespaces.rs` keeps its rules.
    NamespacesClusterRole,
    /// … given to it.
    NamespacesClusterRoleBinding,
    /// Permissions of core-provider itself on the controller's type.
    ProviderClusterRole,
    /// … given to it.
    ProviderClusterRoleBinding,
    /// Permission of core-provider itself on the type's key.
    ProviderRole,
    /// … given to it.
    ProviderRoleBinding,
    /// The key of the type, by which its controllers know their own records.
    ReleaseKey,
    /// Permission to read it.
    ReleaseKeyRole,
    /// … given to the controller.
    ReleaseKeyRoleBinding,
    /// Permission to read the registry's password.
    SecretRole,
    /// … given to it.
    SecretRoleBinding,
    /// Environment of the controller.
    ConfigMap,
    /// The chart's schema.
    JsonSchemaConfigMap,
    /// Metrics.
    Service,
    /// Checks the full JSON Schema at admission, for types that cannot express all of it.
    ValidatingWebhook,
    /// The controller.
    Deployment,
}

impl Asset {
    /// All files, in the order in which their objects are applied; they are removed in the reverse order, so that the
    /// role that marks the controller goes last of all. What bounds the controller is there before it may do anything.
    pub const ALL: [Self; 32] = [
        Self::ProviderClusterRole,
        Self::ProviderClusterRoleBinding,
        Self::ProviderRole,
        Self::ProviderRoleBinding,
        Self::ReleaseKey,
        Self::BoundConfigMap,
        Self::OwnPolicy,
        Self::OwnPolicyBinding,
        Self::ClusterRolesPolicy,
        Self::ClusterRolesPolicyBinding,
        Self::RolesPolicy,
        Self::RolesPolicyBinding,
        // Last: it is the one that is seen to be in force, and stands for those before it.
        Self::GrantsPolicy,
        Self::GrantsPolicyBinding,
        Self::ServiceAccount,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::Role,
        Self::RoleBinding,
        Self::InspectorClusterRole,
        Self::InspectorClusterRoleBinding,
        Self::NamespacesClusterRole,
        Self::NamespacesClusterRoleBinding,
        Self::ReleaseKeyRole,
        Self::ReleaseKeyRoleBinding,
        Self::SecretRole,
        Self::SecretRoleBinding,
        Self::ConfigMap,
        Self::JsonSchemaConfigMap,
        Self::Service,
        Self::ValidatingWebhook,
        Self::Deployment,
    ];

    /// Its path in the asset folder.
    pub fn path(self) -> &'static str {
        self.file().0
    }

    fn compiled_in(self) -> &'static str {
        self.file().1
    }

    fn file(self) -> (&'static str, &'static str) {
        macro_rules! asset {
            ($path:literal) => {
                (
                    $path,
                    include_str!(concat!("../../charts/core-provider/assets/", $path)),
                )
            };
        }
        match self {
            Self::ServiceAccount => asset!("cdc-rbac/serviceaccount.yaml"),
            Self::BoundConfigMap => asset!("cdc-bound/configmap.yaml"),
            Self::GrantsPolicy => asset!("cdc-bound/grants-policy.yaml"),
            Self::GrantsPolicyBinding => asset!("cdc-bound/grants-policybinding.yaml"),
            Self::OwnPolicy => asset!("cdc-bound/own-policy.yaml"),
            Self::OwnPolicyBinding => asset!("cdc-bound/own-policybinding.yaml"),
            Self::ClusterRolesPolicy => asset!("cdc-bound/clusterroles-policy.yaml"),
            Self::ClusterRolesPolicyBinding => asset!("cdc-bound/clusterroles-policybinding.yaml"),
            Self::RolesPolicy => asset!("cdc-bound/roles-policy.yaml"),
            Self::RolesPolicyBinding => asset!("cdc-bound/roles-policybinding.yaml"),
            Self::ClusterRole => asset!("cdc-rbac/clusterrole.yaml"),
            Self::ClusterRoleBinding => asset!("cdc-rbac/clusterrolebinding.yaml"),
            Self::Role => asset!("cdc-rbac/compositiondefinition-role.yaml"),
            Self::RoleBinding => asset!("cdc-rbac/compositiondefinition-rolebinding.yaml"),
            Self::InspectorClusterRole => asset!("cdc-rbac/inspector-clusterrole.yaml"),
            Self::InspectorClusterRoleBinding => asset!("cdc-rbac/inspector-clusterrolebinding.yaml"),
            Self::NamespacesClusterRole => asset!("cdc-rbac/namespaces-clusterrole.yaml"),
            Self::NamespacesClusterRoleBinding => asset!("cdc-rbac/namespaces-clusterrolebinding.yaml"),
            Self::ProviderClusterRole => asset!("cdc-rbac/provider-clusterrole.yaml"),
            Self::ProviderClusterRoleBinding => asset!("cdc-rbac/provider-clusterrolebinding.yaml"),
            Self::ProviderRole => asset!("cdc-rbac/provider-role.yaml"),
            Self::ProviderRoleBinding => asset!("cdc-rbac/provider-rolebinding.yaml"),
            Self::ReleaseKey => asset!("cdc-rbac/release-key.yaml"),
            Self::ReleaseKeyRole => asset!("cdc-rbac/release-key-role.yaml"),
            Self::ReleaseKeyRoleBinding => asset!("cdc-rbac/release-key-rolebinding.yaml"),
            Self::SecretRole => asset!("cdc-rbac/secret-role.yaml"),
            Self::SecretRoleBinding => asset!("cdc-rbac/secret-rolebinding.yaml"),
            Self::ConfigMap => asset!("cdc-configmap/configmap.yaml"),
            Self::JsonSchemaConfigMap => asset!("json-schema-configmap/configmap.yaml"),
            Self::Service => asset!("cdc-service/service.yaml"),
            Self::ValidatingWebhook => asset!("validating-webhook-configuration/validating-webhook.yaml"),
            Self::Deployment => asset!("cdc-deployment/deployment.yaml"),
        }
    }
}

/// The language of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Go's, with Helm's functions.
    Go,
    /// Handlebars, for files that end in `.hbs`.
    Handlebars,
}

/// The text of every template.
#[derive(Debug, Clone)]
pub struct Templates {
    texts: BTreeMap<Asset, (Language, String)>,
}

/// The asset folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is there and cannot be read.
    #[error("could not read template {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The same template in both languages.
    #[error("both {} and the same with .hbs are there: keep one of them", path.display())]
    Twice {
        /// The file without `.hbs`.
        path: PathBuf,
    },
}

impl Templates {
    /// The compiled-in templates.
    pub fn compiled_in() -> Self {
        Self {
            texts: Asset::ALL
                .iter()
                .map(|&asset| (asset, (Language::Go, asset.compiled_in().to_owned())))
                .collect(),
        }
    }

    /// The compiled-in templates, with those of `folder` in place of their namesakes: Go templates under the same
    /// path, Handlebars templates under the same path with `.hbs` after it.
    ///
    /// # Errors
    /// When a file is there and cannot be read, or in both languages: running on without an operator's own template
    /// would silently deploy something else.
    pub fn from_folder(folder: &Path) -> Result<Self, Error> {
        let mut templates = Self::compiled_in();
        for asset in Asset::ALL {
            let path = folder.join(asset.path());
            let handlebars = folder.join(format!("{}.hbs", asset.path()));
            let text = match (read(&path)?, read(&handlebars)?) {
                (Some(_), Some(_)) => return Err(Error::Twice { path }),
                (Some(text), None) => (Language::Go, text),
                (None, Some(text)) => (Language::Handlebars, text),
                (None, None) => continue,
            };
            templates.texts.insert(asset, text);
        }
        Ok(templates)
    }

    /// The language and text of one template.
    pub fn text(&self, asset: Asset) -> (Language, &str) {
        let (language, text) = &self.texts[&asset];
        (*language, text)
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_folder_replaces_its_namesake_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cdc-service")).unwrap();
        std::fs::write(folder.path().join("cdc-service/service.yaml"), "mine").unwrap();
        let templates = Templates::from_folder(folder.path()).unwrap();
        assert_eq!(templates.text(Asset::Service), (Language::Go, "mine"));
        assert_eq!(
            templates.text(Asset::Deployment).1,
            Asset::Deployment.compiled_in()
        );
    }

    #[test]
    fn a_handlebars_file_replaces_its_namesake_unless_both_are_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cdc-service")).unwrap();
        std::fs::write(folder.path().join("cdc-service/service.yaml.hbs"), "mine").unwrap();
        let templates = Templates::from_folder(folder.path()).unwrap();
        assert_eq!(templates.text(Asset::Service), (Language::Handlebars, "mine"));
        std::fs::write(folder.path().join("cdc-service/service.yaml"), "mine too").unwrap();
        assert!(matches!(
            Templates::from_folder(folder.path()),
            Err(Error::Twice { .. })
        ));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("cdc-service/service.yaml")).unwrap();
        let error = Templates::from_folder(folder.path()).unwrap_err();
        assert!(error.to_string().contains("cdc-service/service.yaml"), "{error}");
    }
}
