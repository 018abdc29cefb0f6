//! Annotations that users put on our objects and those that we keep there.

use std::collections::BTreeMap;

/// `"true"` stops every action on the object at once; only its conditions still change.
pub const PAUSED: &str = "krateo.io/paused";

/// `"true"` renders the chart once with `global.gracefullyPaused`, then stops every action.
pub const GRACEFULLY_PAUSED: &str = "krateo.io/gracefully-paused";

/// RFC 3339 time at which a graceful pause took effect.
pub const GRACEFULLY_PAUSED_TIME: &str = "krateo.io/gracefully-paused-time";

/// `"true"` asks for verbose client logs for this object.
pub const CONNECTOR_VERBOSE: &str = "krateo.io/connector-verbose";

/// What the controllers may do to the outside world for this object: `default` (everything), `observe-create-update` (all but
/// deletion), `observe-delete` (deletion alone), `observe` (nothing). See [`crate::policy::ManagementPolicy`].
pub const MANAGEMENT_POLICY: &str = "krateo.io/management-policy";

/// What happens to the outside world when this object is deleted: `delete` (it goes too) or `orphan` (it stays). See
/// [`crate::policy::DeletionPolicy`].
pub const DELETION_POLICY: &str = "krateo.io/deletion-policy";

/// What is done about drift in the objects of a composition's release: rules such as `warn` or
/// `ignore=Deployment/web:.spec.replicas`, the last that fits counts. Without any, drift is corrected.
pub const DRIFT: &str = "krateo.io/drift";

/// Release name on a composition (its label of the same name wins) or on the definition that governs it.
pub const RELEASE_NAME: &str = "krateo.io/release-name";

/// `"true"` on a definition: a newer version of the chart that `spec.chart.version` admits is used at once.
pub const AUTO_UPDATE: &str = "krateo.io/auto-update";
/// On a definition: `"true"` moves compositions to the chart's version although the new schema refuses some.
pub const ACCEPT_BREAKING: &str = "krateo.io/accept-breaking-schema";

/// On a definition: `"true"` leaves out defaults that violate the chart's own schema, which are an error otherwise.
pub const DROP_BAD_DEFAULTS: &str = "krateo.io/drop-bad-defaults";

/// On a definition: `"true"` keeps versions of its type that no definition and no composition needs any more.
pub const KEEP_VERSIONS: &str = "krateo.io/keep-versions";

/// On a generated type: name of the chart it was made from.
pub const CHART_NAME: &str = "krateo.io/chart-name";

/// Digest of the permissions that a release needs: they may be granted, where growth waits for an approval.
pub const APPROVED_PERMISSIONS: &str = "krateo.io/approved-permissions";

/// On a composition: the revision of its release, made by somebody else, that may be upgraded from although that draws
/// values anew, such as passwords.
pub const TAKE_OVER_REVISION: &str = "krateo.io/take-over-revision";

/// `"true"` on a composition, admitted from who may update the Secrets of its namespace: a release of its release name that
/// somebody else installed by Helm or Flux becomes its own.
pub const ADOPT: &str = "krateo.io/adopt";

/// On a composition: a revision of its release, near which the search for its records starts. `kco migrate run` writes it, for
/// Krateo's status says none. `"0"` says that there is no such release, whatever the status lists.
pub const RELEASE_REVISION: &str = "krateo.io/release-revision";

/// On a definition, the admin's word: kinds (`group/resource`, separated by commas) that its releases may hold
/// besides those that a scan of the chart finds.
pub const ALLOWED_KINDS: &str = "krateo.io/allowed-kinds";

/// On a definition, the admin's word: namespaces, separated by commas, that its releases may reach besides that of
/// the composition and those that the chart names. Those of Kubernetes and of the platform are only open by name.
pub const ALLOWED_NAMESPACES: &str = "krateo.io/allowed-namespaces";

/// On a definition, the admin's word: what its chart may look up besides what it may anyway, separated by commas: a kind
/// (`group/resource`), a kind in a namespace (`configmaps@monitoring`), a namespace (`@monitoring`), one Secret
/// (`secrets@vault/shared`). It allows no write.
pub const ALLOWED_LOOKUPS: &str = "krateo.io/allowed-lookups";

/// On a definition, the admin's word: `"true"` lets its releases bring roles and bindings of their own.
pub const ALLOW_CHART_RBAC: &str = "krateo.io/allow-chart-rbac";

/// On a definition whose chart brings definitions, the admin's word: those of which charts its controller may set which of
/// these annotations on. A JSON list, explained in `docs/security.md`.
pub const ALLOWED_DEFINITIONS: &str = "krateo.io/allowed-definitions";

/// On a definition: `"true"` lets its releases bring the definitions alone that [`ALLOWED_DEFINITIONS`] lists.
pub const ONLY_ALLOWED_DEFINITIONS: &str = "krateo.io/only-allowed-definitions";

/// On a definition: how many replicas its controller has, in place of the platform's number.
pub const CONTROLLER_REPLICAS: &str = "krateo.io/controller-replicas";

/// On a definition: a new text here draws a new key for the records of its type's releases; the key before stays accepted.
/// What the text says does not matter; a date tells when.
pub const ROTATE_RELEASE_KEY: &str = "krateo.io/rotate-release-key";

/// On the Secret of such a key, followed by the UID of a definition: the text that the key was drawn anew for.
pub const ROTATED_FOR: &str = "rotated-for.krateo.io/";

/// On the Lease of a shard: how many shards there are in all.
pub const SHARDS: &str = "krateo.io/shards";

/// On the Lease of a shard: the replica that asks its holder for more shards.
pub const SHARDS_ASKED_BY: &str = "krateo.io/shards-asked-by";

/// On the policy that bounds a controller: that bound, as the controller's `ConfigMap` has it.
pub const BOUND: &str = "krateo.io/bound";

/// On the definition of `CompositionDefinition` itself: which edition of it the cluster has, a number that grows.
pub const EDITION: &str = "krateo.io/edition";

/// True when the annotation is present and says exactly `true`.
pub fn is_true(annotations: &BTreeMap<String, String>, name: &str) -> bool {
    annotations.get(name).is_some_and(|value| value == "true")
}
