//! Reasons and actions of the events that we publish (`events.k8s.io/v1`).

/// A composition's release was installed.
pub const COMPOSITION_CREATED: &str = "CompositionCreated";
/// A composition's release was upgraded.
pub const COMPOSITION_UPDATED: &str = "CompositionUpdated";
/// A revision of a composition's release that somebody else made became the controller's own, without a new one.
pub const RELEASE_TAKEN_OVER: &str = "ReleaseTakenOver";
/// Objects that a release's record names were left where they are.
pub const OBJECTS_LEFT: &str = "ObjectsLeft";
/// A composition's release was removed.
pub const COMPOSITION_DELETED: &str = "CompositionDeleted";
/// Objects of a composition's release were not as they were applied, and are again.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// A definition says a release name for the compositions that it governs, and those are several.
pub const RELEASE_NAME_IGNORED: &str = "ReleaseNameIgnored";
/// What the object stands for was created.
pub const CREATED: &str = "CreatedExternalResource";
/// What the object stands for was changed.
pub const UPDATED: &str = "UpdatedExternalResource";
/// What the object stands for was removed.
pub const DELETED: &str = "DeletedExternalResource";
/// What the object stands for could not be looked at.
pub const CANNOT_OBSERVE: &str = "CannotObserveExternalResource";
/// What the object stands for could not be created.
pub const CANNOT_CREATE: &str = "CannotCreateExternalResource";
/// What the object stands for could not be changed.
pub const CANNOT_UPDATE: &str = "CannotUpdateExternalResource";
/// What the object stands for could not be removed.
pub const CANNOT_DELETE: &str = "CannotDeleteExternalResource";
/// A definition's chart is there in a newer version that its spec admits.
pub const NEWER_CHART: &str = "NewerChart";
/// A definition's chart was published again under the version that is in use.
pub const CHART_REPUBLISHED: &str = "ChartRepublished";
/// Parts of a chart's schema are left to the full JSON Schema.
pub const SCHEMA_DEGRADED: &str = "SchemaDegraded";
/// A chart was published again with another schema under the same version.
pub const SCHEMA_CHANGED: &str = "SchemaChanged";
/// The object is paused.
pub const RECONCILIATION_PAUSED: &str = "ReconciliationPaused";
/// The object is paused, and what it stands for was told.
pub const RECONCILIATION_GRACEFULLY_PAUSED: &str = "ReconciliationGracefullyPaused";

/// A replica of a controller works on more compositions than before.
pub const SHARDS_GAINED: &str = "ShardsGained";
/// A replica of a controller works on fewer compositions than before.
pub const SHARDS_LEFT: &str = "ShardsLeft";

/// Action of an event: replicas share work.
pub const SHARE: &str = "ShareCompositions";
/// Action of an event: looking.
pub const OBSERVE: &str = "ObserveExternalResource";
/// Action of an event: creating.
pub const CREATE: &str = "CreateExternalResource";
/// Action of an event: changing.
pub const UPDATE: &str = "UpdateExternalResource";
/// Action of an event: removing.
pub const DELETE: &str = "DeleteExternalResource";
