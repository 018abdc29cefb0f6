//! The capabilities of the cluster: `.Capabilities` (Helm's `pkg/chart/common/capabilities.go`).

use std::sync::LazyLock;

use gotemplate::{
    function::{Functions, Receiver},
    string::Str,
    types::{self, Type},
    value::{List, Object, Value},
};

use crate::line::HelmLine;

/// What a chart can see of the cluster and of Helm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of Kubernetes.
    pub kube_version: KubeVersion,
    /// The served APIs: `group/version`, and with a cluster also `group/version/Kind`.
    pub api_versions: Vec<String>,
    /// The version of Helm whose behaviour is reproduced.
    pub helm_version: HelmVersion,
}

impl Default for Capabilities {
    /// The capabilities that Helm 4 assumes without a cluster.
    fn default() -> Self {
        Self::of(HelmLine::Four)
    }
}

impl Capabilities {
    /// The capabilities that Helm assumes without a cluster: the Kubernetes version it was built against, with its
    /// built-in API versions. They are the same for both lines of Helm.
    pub fn of(helm: HelmLine) -> Self {
        Self {
            kube_version: KubeVersion::default(),
            api_versions: DEFAULT_API_VERSIONS
                .iter()
                .map(|&version| version.to_owned())
                .collect(),
            helm_version: HelmVersion::of(helm),
        }
    }
}

/// The version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeVersion {
    /// The full version, with a leading `v` and any vendor suffix.
    pub version: String,
    /// The numbers only, for constraints; empty when the version came from a cluster, as its suffix counts.
    pub normalized: String,
    /// The first number; from a cluster, the reported one.
    pub major: String,
    /// The second number; from a cluster, the reported one, such as `27+`.
    pub minor: String,
}

impl Default for KubeVersion {
    fn default() -> Self {
        Self {
            version: "v1.37.0".to_owned(),
            normalized: "v1.37.0".to_owned(),
            major: "1".to_owned(),
            minor: "37".to_owned(),
        }
    }
}

/// The text is not a Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKubeVersion {
    /// It does not start with a number.
    #[error("could not parse {0:?} as version")]
    Unreadable(String),
    /// It has only one number.
    #[error("illegal version string {0:?}")]
    TooShort(String),
    /// Its first number has a leading zero.
    #[error("illegal zero-prefixed version component {component:?} in {version:?}")]
    LeadingZero {
        /// The number.
        component: String,
        /// The text.
        version: String,
    },
    /// A number is too large.
    #[error(
        "illegal non-numeric version component {component:?} in {version:?}: \
         strconv.ParseUint: parsing {component:?}: value out of range"
    )]
    OutOfRange {
        /// The number.
        component: String,
        /// The text.
        version: String,
    },
}

impl KubeVersion {
    /// Parses the value of `--kube-version`: at least two numbers, then anything.
    ///
    /// # Errors
    /// When there are not two numbers.
    pub fn parse(text: &str) -> Result<Self, InvalidKubeVersion> {
        let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let components = leading_numbers(trimmed.strip_prefix('v').unwrap_or(trimmed));
        let [first, second, ..] = &components[..] else {
            let why = if components.is_empty() {
                InvalidKubeVersion::Unreadable
            } else {
                InvalidKubeVersion::TooShort
            };
            return Err(why(text.to_owned()));
        };
        if first.starts_with('0') && *first != "0" {
            return Err(InvalidKubeVersion::LeadingZero {
                component: (*first).to_owned(),
                version: text.to_owned(),
            });
        }
        let number = |component: &str| {
            component
                .parse::<u64>()
                .map_err(|_| InvalidKubeVersion::OutOfRange {
                    component: component.to_owned(),
                    version: text.to_owned(),
                })
        };
        let numbers = components
            .iter()
            .map(|component| Ok(number(component)?.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            version: if text.starts_with('v') {
                text.to_owned()
            } else {
                format!("v{text}")
            },
            normalized: format!("v{}", numbers.join(".")),
            major: number(first)?.to_string(),
            minor: number(second)?.to_string(),
        })
    }

    /// The version that constraints are checked against.
    pub fn constrained(&self) -> &str {
        if self.normalized.is_empty() {
            &self.version
        } else {
            &self.normalized
        }
    }
}

/// The numbers at the start of a text, separated by dots.
fn leading_numbers(mut text: &str) -> Vec<&str> {
    let mut numbers = Vec::new();
    loop {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        if end == 0 {
            return numbers;
        }
        numbers.push(&text[..end]);
        match text[end..].strip_prefix('.') {
            Some(rest) => text = rest,
            None => return numbers,
        }
    }
}

/// The version of Helm as charts see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmVersion {
    /// The version with a leading `v`.
    pub version: String,
    /// The commit that it was built from.
    pub git_commit: String,
    /// `clean` or `dirty`.
    pub git_tree_state: String,
    /// The version of Go that it was built with.
    pub go_version: String,
    /// The version of Kubernetes that it was built against.
    pub kube_client_version: String,
}

impl Default for HelmVersion {
    /// The Helm 4 release that this engine is tested against.
    fn default() -> Self {
        Self::of(HelmLine::Four)
    }
}

impl HelmVersion {
    /// The Helm release of a line that this engine is tested against. Helm 3 does not tell which Kubernetes version
    /// it was built against.
    pub fn of(helm: HelmLine) -> Self {
        let (version, kube_client_version) = match helm {
            HelmLine::Three => ("v3.22.0", ""),
            HelmLine::Four => ("v4.3.1", "v1.37"),
        };
        Self {
            version: version.to_owned(),
            git_commit: String::new(),
            git_tree_state: String::new(),
            go_version: "go1.26.8".to_owned(),
            kube_client_version: kube_client_version.to_owned(),
        }
    }
}

/// The types of `.Capabilities` and of its fields.
struct Types {
    capabilities: Type,
    kube_version: Type,
    version_set: Type,
    build_info: Type,
}

impl Types {
    const fn new(capabilities: &'static str, kube_version: &'static str, version_set: &'static str) -> Self {
        Self {
            capabilities: Type::pointer(capabilities),
            kube_version: Type::structure(kube_version).with_methods(&KUBE_VERSION_METHODS),
            version_set: Type::slice(version_set, &types::STRING)
                .defined_as(&types::STRINGS)
                .with_methods(&VERSION_SET_METHODS),
            build_info: Type::structure("version.BuildInfo"),
        }
    }

    fn of(helm: HelmLine) -> &'static Self {
        match helm {
            HelmLine::Three => &HELM_3,
            HelmLine::Four => &HELM_4,
        }
    }
}

static HELM_3: Types = Types::new(
    "*chartutil.Capabilities",
    "chartutil.KubeVersion",
    "chartutil.VersionSet",
);
static HELM_4: Types = Types::new("*common.Capabilities", "common.KubeVersion", "common.VersionSet");

static KUBE_VERSION_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("String", |this: Receiver| -> String {
        kube_version(&this, KubeVersion::constrained)
    });
    methods.add("GitVersion", |this: Receiver| -> String {
        kube_version(&this, |version| &version.version)
    });
    methods
});

static VERSION_SET_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Has", |this: Receiver, version: Str| -> bool {
        this.list().iter().any(|known| known.as_str() == Some(&version))
    });
    methods
});

fn kube_version(receiver: &Receiver, text: fn(&KubeVersion) -> &str) -> String {
    let view = receiver.0.as_object::<View<KubeVersion>>();
    view.map(|view| text(&view.of).to_owned()).unwrap_or_default()
}

impl Capabilities {
    /// `.Capabilities` for templates.
    pub(crate) fn to_value(&self, helm: HelmLine) -> Value {
        Value::object(View {
            of: self.clone(),
            helm,
        })
    }
}

/// A value as the templates of a line of Helm see it.
struct View<T> {
    of: T,
    helm: HelmLine,
}

impl Object for View<Capabilities> {
    fn ty(&self) -> &'static Type {
        &Types::of(self.helm).capabilities
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let named = |name| Some((name, self.field(name)?));
        ["KubeVersion", "APIVersions", "HelmVersion"]
            .into_iter()
            .filter_map(named)
            .collect()
    }

    /// Without the list of versions for those who ask for another field.
    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "KubeVersion" => Some(Value::object(self.kube_version())),
            "APIVersions" => {
                let versions = self.of.api_versions.iter().map(Value::from).collect();
                let list = List::with_type(&Types::of(self.helm).version_set, versions);
                Some(Value::List(list))
            }
            "HelmVersion" => Some(Value::object(View {
                of: self.of.helm_version.clone(),
                helm: self.helm,
            })),
            _ => None,
        }
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        Some(self.fields())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl View<Capabilities> {
    /// Helm 3 drops the vendor suffix from a version given by `--kube-version`.
    fn kube_version(&self) -> View<KubeVersion> {
        let mut version = self.of.kube_version.clone();
        if self.helm == HelmLine::Three && !version.normalized.is_empty() {
            version.version.clone_from(&version.normalized);
        }
        View {
            of: version,
            helm: self.helm,
        }
    }
}

impl Object for View<KubeVersion> {
    fn ty(&self) -> &'static Type {
        &Types::of(self.helm).kube_version
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("Version", Value::from(&self.of.version)),
            ("Major", Value::from(&self.of.major)),
            ("Minor", Value::from(&self.of.minor)),
        ];
        if self.helm == HelmLine::Four {
            // Printed by Go although it is not exported.
            fields.insert(1, ("normalizedVersion", Value::from(&self.of.normalized)));
        }
        fields
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Version" => Some(Value::from(&self.of.version)),
            "Major" => Some(Value::from(&self.of.major)),
            "Minor" => Some(Value::from(&self.of.minor)),
            _ => None,
        }
    }

    // In Go only the pointer has the method, so a bare `{{ .Capabilities.KubeVersion }}` uses it and a function does
    // not.
    fn printed(&self) -> Option<String> {
        Some(self.of.constrained().to_owned())
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let exported = |(name, _): &(&str, Value)| *name != "normalizedVersion";
        Some(self.fields().into_iter().filter(exported).collect())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Object for View<HelmVersion> {
    fn ty(&self) -> &'static Type {
        &Types::of(self.helm).build_info
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("Version", Value::from(&self.of.version)),
            ("GitCommit", Value::from(&self.of.git_commit)),
            ("GitTreeState", Value::from(&self.of.git_tree_state)),
            ("GoVersion", Value::from(&self.of.go_version)),
        ];
        if self.helm == HelmLine::Four {
            let version = Value::from(&self.of.kube_client_version);
            fields.push(("KubeClientVersion", version));
        }
        fields
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        const NAMES: [&str; 5] = [
            "version",
            "git_commit",
            "git_tree_state",
            "go_version",
            "kube_client_version",
        ];
        let named = NAMES.into_iter().zip(self.fields());
        // Helm 4's additional last field is printed even if it is empty.
        let shown = named.filter(|(name, (_, value))| value.truth() || *name == "kube_client_version");
        Some(shown.map(|(name, (_, value))| (name, value)).collect())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// The API versions in the scheme of Helm 4.3.1's `client-go`, in the order in which Helm lists them.
const DEFAULT_API_VERSIONS: [&str; 57] = [
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "lifecycle.k8s.io/v1alpha1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of Helm's `capabilities_test.go`, and the refusals of Kubernetes' version parser.
    #[test]
    fn kube_versions_are_read_with_and_without_vendor_suffixes() {
        for (text, version, normalized, minor) in [
            ("v1.16.0", "v1.16.0", "v1.16.0", "16"),
            ("v1.33.4-gke.1245000", "v1.33.4-gke.1245000", "v1.33.4", "33"),
            ("1.30.2-gke.1587003", "v1.30.2-gke.1587003", "v1.30.2", "30"),
            ("v1.28+", "v1.28+", "v1.28", "28"),
            ("1.29", "v1.29", "v1.29", "29"),
            ("1.2.3.4", "v1.2.3.4", "v1.2.3.4", "2"),
            ("1.02.3", "v1.02.3", "v1.2.3", "2"),
        ] {
            let found = KubeVersion::parse(text).unwrap();
            assert_eq!(
                (found.version.as_str(), found.constrained(), found.minor.as_str()),
                (version, normalized, minor)
            );
            assert_eq!(found.major, "1");
        }
        let refused = |text: &str| KubeVersion::parse(text).unwrap_err().to_string();
        assert_eq!(refused("latest"), "could not parse \"latest\" as version");
        assert_eq!(refused("1"), "illegal version string \"1\"");
        assert_eq!(
            refused("01.2"),
            "illegal zero-prefixed version component \"01\" in \"01.2\""
        );
        assert!(refused("1.99999999999999999999").contains("out of range"));
    }
}
