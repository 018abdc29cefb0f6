//! Reasons and actions of the events that we publish (`events.k8s.io/v1`).

/// A composition's release was installed.
pub const COMPOSITION_CREATED: &str = "CompositionCreated";
/// A composition's release was upgraded.
pub const COMPOSITION_UPDATED: &str = "CompositionUpdated";
/// The controller took over a revision of a composition's release that somebody else made, without a new revision.
pub const RELEASE_TAKEN_OVER: &str = "ReleaseTakenOver";
/// Objects named in a release's record were not deleted.
pub const OBJECTS_LEFT: &str = "ObjectsLeft";
/// A composition's release was removed.
pub const COMPOSITION_DELETED: &str = "CompositionDeleted";
/// Objects of a composition's release had been changed and were corrected.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// A definition sets a release name but has more than one composition.
pub const RELEASE_NAME_IGNORED: &str = "ReleaseNameIgnored";
/// The external resource of the object was created.
pub const CREATED: &str = "CreatedExternalResource";
/// The external resource of the object was updated.
pub const UPDATED: &str = "UpdatedExternalResource";
/// The external resource of the object was deleted.
pub const DELETED: &str = "DeletedExternalResource";
/// The external resource of the object could not be observed.
pub const CANNOT_OBSERVE: &str = "CannotObserveExternalResource";
/// The external resource of the object could not be created.
pub const CANNOT_CREATE: &str = "CannotCreateExternalResource";
/// The external resource of the object could not be updated.
pub const CANNOT_UPDATE: &str = "CannotUpdateExternalResource";
/// The external resource of the object could not be deleted.
pub const CANNOT_DELETE: &str = "CannotDeleteExternalResource";
/// The source has a newer version of a definition's chart that its spec allows.
pub const NEWER_CHART: &str = "NewerChart";
/// A definition's chart was published again under the version that is in use.
pub const CHART_REPUBLISHED: &str = "ChartRepublished";
/// Parts of a chart's schema cannot be expressed in the type; only the full JSON Schema checks them.
pub const SCHEMA_DEGRADED: &str = "SchemaDegraded";
/// A chart was published again under the same version, with another schema.
pub const SCHEMA_CHANGED: &str = "SchemaChanged";
/// The object is paused.
pub const RECONCILIATION_PAUSED: &str = "ReconciliationPaused";
/// The object is paused, and its chart was rendered with `global.gracefullyPaused`.
pub const RECONCILIATION_GRACEFULLY_PAUSED: &str = "ReconciliationGracefullyPaused";

/// A replica of a controller works on more compositions than before.
pub const SHARDS_GAINED: &str = "ShardsGained";
/// A replica of a controller works on fewer compositions than before.
pub const SHARDS_LEFT: &str = "ShardsLeft";

/// Action of an event: replicas share work.
pub const SHARE: &str = "ShareCompositions";
/// Action of an event: observing.
pub const OBSERVE: &str = "ObserveExternalResource";
/// Action of an event: creating.
pub const CREATE: &str = "CreateExternalResource";
/// Action of an event: updating.
pub const UPDATE: &str = "UpdateExternalResource";
/// Action of an event: deleting.
pub const DELETE: &str = "DeleteExternalResource";
