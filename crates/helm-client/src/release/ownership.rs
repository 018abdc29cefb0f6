//! Who owns an object: the label and the annotations by which Helm recognises the objects of a release
//! (`pkg/action/validate.go`), and the label that names the object that the release belongs to.

use std::collections::HashMap;

use cluster::ObjectId;
use serde_json::Value;

use super::Live;
use crate::authenticity::Parent;
use crate::json::{self, Meta};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const HELM: &str = "Helm";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// The parts of a release that its objects name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The label for the object that the release belongs to, and its UID; `None` when it belongs to no object.
    pub(crate) parent: Option<(&'static str, String)>,
}

/// Whose an object is that a hook may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is the release's.
    Own,
    /// It names no owner.
    Nobodys,
}

/// Objects that were found to belong to a release, and what they have to have when they are written.
pub(crate) type Checked = HashMap<ObjectId, Precondition>;

/// What an object has to have when it is written, so that it is the one that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// This UID: it was just read.
    Uid(String),
    /// This resource version: a watch said so, which may be late. An object that is gone is created again.
    Version(String),
}

impl Precondition {
    /// Puts it into an object that is written, in place of another one.
    pub(super) fn put_into(&self, object: &mut Value) {
        json::remove_preconditions(object);
        let (field, value) = match self {
            Self::Uid(uid) => ("uid", uid),
            Self::Version(version) => ("resourceVersion", version),
        };
        object["metadata"][field] = value.as_str().into();
    }
}

/// Objects that were just read and checked, each to be written only while it has its UID.
pub(super) fn checked(found: &[Live]) -> Checked {
    let uid = |live: &Live| {
        let uid = live.object["metadata"]["uid"].as_str();
        Precondition::Uid(uid.unwrap_or_default().to_owned())
    };
    found.iter().map(|live| (live.id.clone(), uid(live))).collect()
}

impl Owner {
    /// The release of that name, for the object that it belongs to.
    pub(crate) fn new(namespace: &str, name: &str, parent: Option<&Parent>) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            parent: parent.map(|parent| (parent.label, parent.uid.clone())),
        }
    }

    /// Marks an object as part of this release, whatever its manifest says.
    pub(crate) fn claim(&self, object: &mut Value) {
        json::set_meta(object, Meta::Labels, MANAGED_BY, HELM);
        json::set_meta(object, Meta::Annotations, RELEASE_NAME, &self.name);
        json::set_meta(object, Meta::Annotations, RELEASE_NAMESPACE, &self.namespace);
    }

    /// True when the object belongs to this release.
    pub(crate) fn owns(&self, live: &Value) -> bool {
        self.check(live).is_ok()
    }

    /// Checks that an object belongs to this release: it names the object that the release belongs to, or it names
    /// none and has Helm's label and annotations.
    ///
    /// # Errors
    /// What is missing or wrong, in Helm's words.
    pub(crate) fn check(&self, live: &Value) -> Result<(), String> {
        if self.names_parent(live)? {
            Ok(())
        } else {
            self.check_marks(live)
        }
    }

    /// Checks that a hook may take over or remove an object. Hooks have none of Helm's labels and annotations; so
    /// where a release belongs to an object, an object without an owner counts as the release's only in its own
    /// namespace, and a Secret never does: what it holds would become readable for whoever may use the release. Where it
    /// belongs to none, nothing is checked, as in Helm.
    ///
    /// # Errors
    /// The owner, or that the owner is unknown.
    pub(crate) fn check_hook(&self, id: &ObjectId, live: &Value) -> Result<Claim, String> {
        let Some((label, uid)) = &self.parent else {
            return Ok(Claim::Own);
        };
        if self.names_parent(live)? {
            return Ok(Claim::Own);
        }
        let resource = id.resource();
        if resource.group.is_empty() && resource.plural == "secrets" {
            return Err(format!(
                "it has no label {label}, and a hook takes over no Secret: remove the Secret, or set that label to {uid:?}"
            ));
        }
        if self.check_marks(live).is_ok() {
            return Ok(Claim::Own);
        }
        if id.namespace() == Some(&self.namespace) {
            return Ok(Claim::Nobodys);
        }
        Err(format!(
            "it has no label {label}, and outside of namespace {} a hook takes over only objects that \
             name their owner: remove the object, or set that label to {uid:?}",
            self.namespace
        ))
    }

    /// True when an object names the owner of the release, false when it names none.
    ///
    /// # Errors
    /// When it names another owner.
    pub(super) fn names_parent(&self, live: &Value) -> Result<bool, String> {
        let Some((label, uid)) = &self.parent else {
            return Ok(false);
        };
        match json::meta(live, Meta::Labels, label) {
            None => Ok(false),
            Some(named) if named == uid => Ok(true),
            Some(named) => Err(format!(
                "invalid ownership metadata; label validation error: key {label:?} must equal {uid:?}: current value is \
                 {named:?}"
            )),
        }
    }

    pub(super) fn check_marks(&self, live: &Value) -> Result<(), String> {
        let checks = [
            ("label", Meta::Labels, MANAGED_BY, HELM),
            ("annotation", Meta::Annotations, RELEASE_NAME, self.name.as_str()),
            (
                "annotation",
                Meta::Annotations,
                RELEASE_NAMESPACE,
                self.namespace.as_str(),
            ),
        ];
        let faults: Vec<_> = checks
            .into_iter()
            .filter_map(|(what, meta, key, expected)| {
                let fault = match json::meta(live, meta, key) {
                    None => format!("missing key {key:?}: must be set to {expected:?}"),
                    Some(actual) if actual != expected => {
                        format!("key {key:?} must equal {expected:?}: current value is {actual:?}")
                    }
                    Some(_) => return None,
                };
                Some(format!("{what} validation error: {fault}"))
            })
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!("invalid ownership metadata; {}", faults.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::json;

    use super::*;

    fn web() -> Owner {
        Owner::new("shop", "web", None)
    }

    fn web_of_42() -> Owner {
        let parent = ("krateo.io/composition-id", "42".to_owned());
        Owner {
            parent: Some(parent),
            ..web()
        }
    }

    fn map(namespace: &str) -> ObjectId {
        ObjectId::of::<ConfigMap>(Some(namespace), "a").unwrap()
    }

    #[test]
    fn a_claimed_object_is_owned() {
        let mut object =
            json!({"metadata": {"name": "a", "annotations": {"meta.helm.sh/release-name": "other"}}});
        assert!(!web().owns(&object));
        web().claim(&mut object);
        assert!(web().owns(&object));
        assert!(
            !Owner {
                namespace: "other".to_owned(),
                ..web()
            }
            .owns(&object)
        );

        let mut odd = json!({"metadata": {"labels": null}});
        web().claim(&mut odd);
        assert!(web().owns(&odd));
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_helm() {
        let foreign = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "argocd"}}});
        assert_eq!(
            web().check(&foreign).unwrap_err(),
            "invalid ownership metadata; \
             label validation error: key \"app.kubernetes.io/managed-by\" must equal \"Helm\": current value is \"argocd\"; \
             annotation validation error: missing key \"meta.helm.sh/release-name\": must be set to \"web\"; \
             annotation validation error: missing key \"meta.helm.sh/release-namespace\": must be set to \"shop\""
        );
    }

    #[test]
    fn an_object_that_names_another_parent_is_never_owned() {
        let mut object = json!({"metadata": {"labels": {"krateo.io/composition-id": "43"}}});
        web_of_42().claim(&mut object);
        assert!(web().owns(&object), "Helm knows no parents");
        assert!(!web_of_42().owns(&object));
        assert_eq!(
            web_of_42().check_hook(&map("shop"), &object).unwrap_err(),
            "invalid ownership metadata; label validation error: key \"krateo.io/composition-id\" must equal \"42\": \
             current value is \"43\""
        );
    }

    #[test]
    fn an_object_that_names_no_parent_is_owned_by_helms_marks() {
        let mut object = json!({"metadata": {}});
        assert!(!web_of_42().owns(&object));
        web_of_42().claim(&mut object);
        assert!(web_of_42().owns(&object));
        let labelled = json!({"metadata": {"labels": {"krateo.io/composition-id": "42"}}});
        assert!(web_of_42().owns(&labelled), "without any mark of Helm");
    }

    #[test]
    fn a_hook_takes_objects_without_a_parent_at_home_alone() {
        let nobodys = json!({"metadata": {}});
        assert_eq!(web_of_42().check_hook(&map("shop"), &nobodys), Ok(Claim::Nobodys));
        let refused = web_of_42().check_hook(&map("other"), &nobodys).unwrap_err();
        assert!(
            refused.starts_with("it has no label krateo.io/composition-id"),
            "{refused}"
        );
        assert_eq!(
            web().check_hook(&map("other"), &nobodys),
            Ok(Claim::Own),
            "as Helm does"
        );
        let ours = json!({"metadata": {"labels": {"krateo.io/composition-id": "42"}}});
        assert_eq!(web_of_42().check_hook(&map("other"), &ours), Ok(Claim::Own));
    }

    #[test]
    fn a_hook_takes_a_secret_only_from_itself() {
        let secret = ObjectId::of::<Secret>(Some("shop"), "a").unwrap();
        let refused = web_of_42()
            .check_hook(&secret, &json!({"metadata": {}}))
            .unwrap_err();
        assert!(refused.contains("a hook takes over no Secret"), "{refused}");
        // Whoever makes compositions chooses the name of a release, so Helm's marks say nothing.
        let mut marked = json!({"metadata": {}});
        web_of_42().claim(&mut marked);
        assert!(web_of_42().check_hook(&secret, &marked).is_err());
        let ours = json!({"metadata": {"labels": {"krateo.io/composition-id": "42"}}});
        assert_eq!(web_of_42().check_hook(&secret, &ours), Ok(Claim::Own));
        assert_eq!(
            web().check_hook(&secret, &json!({})),
            Ok(Claim::Own),
            "as Helm does"
        );
    }
}
