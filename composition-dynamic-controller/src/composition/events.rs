//! Events about a composition that a step publishes, beside those of the outcome of a pass in [`super::status`].

use api::{Composition, events};
use k8s_openapi::api::core::v1::ObjectReference;
use runtime::Recorder;
use runtime::events::{Event, Severity};

/// Publishes which objects remain after an uninstall: those that their resource policy keeps, or that do not belong to
/// the release.
pub(super) async fn publish_left(composition: &Composition, objects: &[String], recorder: &Recorder) {
    let event = Event {
        severity: Severity::Normal,
        reason: events::OBJECTS_LEFT,
        action: events::DELETE,
        note: &format!("these objects remain: {}", objects.join(", ")),
    };
    recorder.publish(&regarding(composition), &event).await;
}

/// What events about a composition refer to.
pub(super) fn regarding(composition: &Composition) -> ObjectReference {
    ObjectReference {
        api_version: Some(composition.resource.api_version.clone()),
        kind: Some(composition.resource.kind.clone()),
        name: Some(composition.name.clone()),
        namespace: Some(composition.namespace.clone()),
        uid: Some(composition.uid.clone()),
        ..ObjectReference::default()
    }
}
