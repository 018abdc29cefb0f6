//! Annotations that users set on our objects, and those that we store there.

use std::collections::BTreeMap;

/// `"true"` stops every action on the object at once; only its conditions still change.
pub const PAUSED: &str = "krateo.io/paused";

/// `"true"` renders the chart once with `global.gracefullyPaused`, then stops every action.
pub const GRACEFULLY_PAUSED: &str = "krateo.io/gracefully-paused";

/// RFC 3339 time at which a graceful pause took effect.
pub const GRACEFULLY_PAUSED_TIME: &str = "krateo.io/gracefully-paused-time";

/// `"true"` asks for verbose client logs for this object.
pub const CONNECTOR_VERBOSE: &str = "krateo.io/connector-verbose";

/// What the controllers may do to the resources of this object: `default` (everything), `observe-create-update`
/// (everything except deletion), `observe-delete` (only deletion), `observe` (nothing). See
/// [`crate::policy::ManagementPolicy`].
pub const MANAGEMENT_POLICY: &str = "krateo.io/management-policy";

/// What happens to the resources of this object when it is deleted: `delete` (they are deleted, too) or `orphan`
/// (they are kept). See [`crate::policy::DeletionPolicy`].
pub const DELETION_POLICY: &str = "krateo.io/deletion-policy";

/// What to do about drift in the objects of a composition's release: rules such as `warn` or
/// `ignore=Deployment/web:.spec.replicas`; the last one that matches applies. By default, drift is corrected.
pub const DRIFT: &str = "krateo.io/drift";

/// Release name, on a composition (its label of the same name takes precedence) or on the definition that governs it.
pub const RELEASE_NAME: &str = "krateo.io/release-name";

/// `"true"` on a definition: a newer version of the chart that matches `spec.chart.version` is used at once.
pub const AUTO_UPDATE: &str = "krateo.io/auto-update";
/// On a definition: `"true"` moves compositions to the chart's version even if the new schema refuses some of them.
pub const ACCEPT_BREAKING: &str = "krateo.io/accept-breaking-schema";

/// On a definition: `"true"` drops defaults that violate the chart's own schema, which are an error otherwise.
pub const DROP_BAD_DEFAULTS: &str = "krateo.io/drop-bad-defaults";

/// On a definition: `"true"` keeps versions of its type that no definition and no composition needs any more.
pub const KEEP_VERSIONS: &str = "krateo.io/keep-versions";

/// On the configuration of the webhook that labels new compositions: the versions, separated by commas, or `*` for all,
/// that it leaves to the policy in the API server. On a composition in a dry run: asks for the policy.
pub const LABELLED_BY_POLICY: &str = "krateo.io/labelled-by-policy";

/// On a generated type: name of the chart that it was generated from.
pub const CHART_NAME: &str = "krateo.io/chart-name";

/// On a definition: `"true"` demands that somebody approves permissions by which a release of its type grows. On a
/// composition the same for its own release, which whoever may write the composition can take back.
pub const APPROVE_PERMISSIONS: &str = "krateo.io/approve-permissions";

/// On a composition: the digest of the permissions that its release needs. An approval: whoever sets it needs the verb
/// `approve`.
pub const APPROVED_PERMISSIONS: &str = "krateo.io/approved-permissions";

/// On a definition or a composition: the version of the chart to which upgrades that wait are approved. An approval, as
/// above; no upgrade waits yet.
pub const UPGRADE_TO_VERSION: &str = "krateo.io/upgrade-to-version";

/// On a composition: the revision of its release, made by somebody else, that may be upgraded although that generates
/// new random values, such as passwords. An approval, as above.
pub const TAKE_OVER_REVISION: &str = "krateo.io/take-over-revision";

/// `"true"` on a composition lets it take over a release of its release name that somebody else installed with Helm
/// or Flux. An approval, as above, that also needs the right to update the Secrets of its namespace.
pub const ADOPT: &str = "krateo.io/adopt";

/// The annotations by which somebody approves what would otherwise wait or be refused. Whoever sets or changes one needs
/// the verb `approve` on the resource that carries it; admission policies of the chart and of each controller name them.
pub const APPROVALS: [&str; 4] = [
    ADOPT,
    APPROVED_PERMISSIONS,
    TAKE_OVER_REVISION,
    UPGRADE_TO_VERSION,
];

/// On a composition: a revision of its release, near which the search for its records starts. `kco migrate run` sets
/// it, because Krateo's status has none. `"0"` confirms that there is no such release, whatever the status lists.
pub const RELEASE_REVISION: &str = "krateo.io/release-revision";

/// On a definition, set by an admin: kinds (`group/resource`, separated by commas) that its releases may contain, also
/// where values ask for them: those that a scan of the chart does not find, and those whose objects rule over others.
pub const ALLOWED_KINDS: &str = "krateo.io/allowed-kinds";

/// On a definition, set by an admin: namespaces, separated by commas, that its releases may use in addition to that
/// of the composition and those that the chart names. Those of Kubernetes and of the platform have to be listed here
/// in any case.
pub const ALLOWED_NAMESPACES: &str = "krateo.io/allowed-namespaces";

/// On a definition, set by an admin: what its chart may look up in addition to what is allowed anyway, separated by
/// commas: a kind (`group/resource`), a kind in a namespace (`configmaps@monitoring`), a namespace (`@monitoring`),
/// one Secret (`secrets@vault/shared`). It allows no writes.
pub const ALLOWED_LOOKUPS: &str = "krateo.io/allowed-lookups";

/// On a definition, set by an admin: `"true"` lets its releases contain roles and bindings of their own.
pub const ALLOW_CHART_RBAC: &str = "krateo.io/allow-chart-rbac";

/// On a definition whose chart contains definitions, set by an admin: for which charts the controller may write
/// definitions, and which of these annotations it may set on them. A JSON list, explained in `docs/security.md`.
pub const ALLOWED_DEFINITIONS: &str = "krateo.io/allowed-definitions";

/// On a definition: `"true"` restricts the definitions in its releases to those in [`ALLOWED_DEFINITIONS`].
pub const ONLY_ALLOWED_DEFINITIONS: &str = "krateo.io/only-allowed-definitions";

/// On a definition: how many replicas its controller has, instead of the platform's number.
pub const CONTROLLER_REPLICAS: &str = "krateo.io/controller-replicas";

/// On a definition: a new text here generates a new key for the release records of its type; the previous key is
/// still accepted. The text itself does not matter; use a date, for example.
pub const ROTATE_RELEASE_KEY: &str = "krateo.io/rotate-release-key";

/// On the Secret of such a key, followed by the UID of a definition: the text that the last key was generated for.
pub const ROTATED_FOR: &str = "rotated-for.krateo.io/";

/// On the Lease of a shard: the total number of shards.
pub const SHARDS: &str = "krateo.io/shards";

/// On the Lease of a shard: the replica that asks its holder for more shards.
pub const SHARDS_ASKED_BY: &str = "krateo.io/shards-asked-by";

/// On the policy that bounds a controller: the bound, as in the controller's `ConfigMap`.
pub const BOUND: &str = "krateo.io/bound";

/// On the CRD of `CompositionDefinition`: which edition of it the cluster has, an increasing number.
pub const EDITION: &str = "krateo.io/edition";

/// True when the annotation is exactly `true`.
pub fn is_true(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|value| value == "true")
}
