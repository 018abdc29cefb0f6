//! The templates of a controller bundle. They are compiled in, and each can be replaced by a file in the asset folder.
//!
//! The compiled-in ones are the files in `charts/core-provider/assets`, so there is only one copy of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One template of the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asset {
    /// ServiceAccount of the controller.
    ServiceAccount,
    /// The bound: the most that the controller may be granted.
    BoundConfigMap,
    /// Policy: what the controller may grant itself.
    GrantsPolicy,
    /// Puts it in force.
    GrantsPolicyBinding,
    /// Policy: no controller may write the objects of a bundle.
    BundlesPolicy,
    /// Puts it in force.
    BundlesPolicyBinding,
    /// Policy: what else no controller may write.
    OwnPolicy,
    /// Puts it in force.
    OwnPolicyBinding,
    /// Policy: which cluster roles the chart's own bindings may reference, if it may bring bindings.
    ClusterRolesPolicy,
    /// Puts it in force.
    ClusterRolesPolicyBinding,
    /// Policy: which roles they may reference.
    RolesPolicy,
    /// Puts it in force.
    RolesPolicyBinding,
    /// Permissions on the controller's own type, in all namespaces.
    ClusterRole,
    /// Binds it to its account.
    ClusterRoleBinding,
    /// Permissions in the controller's namespace.
    Role,
    /// Binds it to its account.
    RoleBinding,
    /// Lets approvers approve on the controller's type.
    ApproverClusterRole,
    /// Permissions of chart-inspector on the controller's type.
    InspectorClusterRole,
    /// Binds it to its account.
    InspectorClusterRoleBinding,
    /// The namespaces in which the controller may grant itself permissions; `namespaces.rs` updates its rules.
    NamespacesClusterRole,
    /// Binds it to its account.
    NamespacesClusterRoleBinding,
    /// Permissions of core-provider itself on the controller's type.
    ProviderClusterRole,
    /// Binds it to its account.
    ProviderClusterRoleBinding,
    /// Permissions of core-provider itself on the type's key.
    ProviderRole,
    /// Binds it to its account.
    ProviderRoleBinding,
    /// The key of the type, by which its controllers authenticate release records.
    ReleaseKey,
    /// Permission to read the key.
    ReleaseKeyRole,
    /// Binds it to the controller's account.
    ReleaseKeyRoleBinding,
    /// Permission to read the Secrets that fetching the chart needs.
    SecretRole,
    /// Binds it to its account.
    SecretRoleBinding,
    /// Environment of the controller.
    ConfigMap,
    /// The chart's schema.
    JsonSchemaConfigMap,
    /// Metrics.
    Service,
    /// Registers the webhook that checks the full JSON Schema at admission, for types whose CRD cannot express all of
    /// it.
    ValidatingWebhook,
    /// The controller.
    Deployment,
}

/// The stage in which an object of a bundle is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The role that marks the controller.
    Mark,
    /// The permissions that core-provider itself needs to write the rest.
    Own,
    /// The key of the type.
    Key,
    /// The bound of the controller, and the policies that enforce it.
    Bounding,
    /// What the controller and chart-inspector are allowed for the type.
    Permissions,
    /// The controller itself, its account and its environment. It waits until it has its permissions.
    Workload,
}

impl Asset {
    /// All templates, in the order in which their objects are applied, except that the first controller of a version is
    /// applied before its permissions. They are removed in reverse order, so that the controller's mark is removed last.
    /// The bound and its policies are applied before the controller gets any permission.
    pub const ALL: [Self; 35] = [
        Self::ProviderClusterRole,
        Self::ProviderClusterRoleBinding,
        Self::ProviderRole,
        Self::ProviderRoleBinding,
        Self::ReleaseKey,
        Self::BoundConfigMap,
        Self::BundlesPolicy,
        Self::BundlesPolicyBinding,
        Self::OwnPolicy,
        Self::OwnPolicyBinding,
        Self::ClusterRolesPolicy,
        Self::ClusterRolesPolicyBinding,
        Self::RolesPolicy,
        Self::RolesPolicyBinding,
        // Last of the policies: it is the one that is checked to be in force, and vouches for those before it.
        Self::GrantsPolicy,
        Self::GrantsPolicyBinding,
        Self::ClusterRole,
        Self::ClusterRoleBinding,
        Self::ApproverClusterRole,
        Self::InspectorClusterRole,
        Self::InspectorClusterRoleBinding,
        Self::NamespacesClusterRole,
        Self::NamespacesClusterRoleBinding,
        Self::ReleaseKeyRole,
        Self::ReleaseKeyRoleBinding,
        Self::SecretRole,
        Self::SecretRoleBinding,
        // Last of the permissions: controllers wait for it, and by then the others are usually in force as well.
        Self::Role,
        Self::RoleBinding,
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::JsonSchemaConfigMap,
        Self::Service,
        Self::ValidatingWebhook,
        Self::Deployment,
    ];

    /// The stage in which its object is applied: the bound of the controller comes before its permissions.
    pub fn stage(self) -> Stage {
        match self {
            Self::ProviderClusterRole => Stage::Mark,
            Self::ProviderClusterRoleBinding | Self::ProviderRole | Self::ProviderRoleBinding => Stage::Own,
            Self::ReleaseKey => Stage::Key,
            Self::BoundConfigMap
            | Self::GrantsPolicy
            | Self::GrantsPolicyBinding
            | Self::BundlesPolicy
            | Self::BundlesPolicyBinding
            | Self::OwnPolicy
            | Self::OwnPolicyBinding
            | Self::ClusterRolesPolicy
            | Self::ClusterRolesPolicyBinding
            | Self::RolesPolicy
            | Self::RolesPolicyBinding => Stage::Bounding,
            Self::ClusterRole
            | Self::ClusterRoleBinding
            | Self::Role
            | Self::RoleBinding
            | Self::ApproverClusterRole
            | Self::InspectorClusterRole
            | Self::InspectorClusterRoleBinding
            | Self::NamespacesClusterRole
            | Self::NamespacesClusterRoleBinding
            | Self::ReleaseKeyRole
            | Self::ReleaseKeyRoleBinding
            | Self::SecretRole
            | Self::SecretRoleBinding => Stage::Permissions,
            Self::ServiceAccount
            | Self::ConfigMap
            | Self::JsonSchemaConfigMap
            | Self::Service
            | Self::ValidatingWebhook
            | Self::Deployment => Stage::Workload,
        }
    }

    /// The template's path in the asset folder.
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
            Self::BundlesPolicy => asset!("cdc-bound/bundles-policy.yaml"),
            Self::BundlesPolicyBinding => asset!("cdc-bound/bundles-policybinding.yaml"),
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
            Self::ApproverClusterRole => asset!("cdc-rbac/approver-clusterrole.yaml"),
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
    /// Go templates, with Helm's functions.
    Go,
    /// Handlebars, for files whose name ends in `.hbs`.
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
    /// A file exists but cannot be read.
    #[error("could not read template {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The same template exists in both languages.
    #[error("both {} and the same file with .hbs exist: keep one of them", path.display())]
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

    /// The compiled-in templates, overridden by files in `folder`: Go templates under the same path, Handlebars
    /// templates under the same path with `.hbs` appended.
    ///
    /// # Errors
    /// When a file exists but cannot be read, or exists in both languages: continuing without an operator's own
    /// template would silently deploy something else.
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
    fn a_file_in_the_folder_replaces_only_the_template_of_its_path() {
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
    fn a_handlebars_file_replaces_its_template_unless_both_exist() {
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
