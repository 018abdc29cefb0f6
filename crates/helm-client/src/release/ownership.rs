//! Whose an object is: the label and the annotations by which Helm knows the objects of a release
//! (`pkg/action/validate.go`).

use serde_json::Value;

use crate::json::{self, Meta};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const HELM: &str = "Helm";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// A release, as far as its objects know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl Owner {
    /// Marks an object as one of this release, whatever its manifest says about that.
    pub(crate) fn claim(&self, object: &mut Value) {
        json::set_meta(object, Meta::Labels, MANAGED_BY, HELM);
        json::set_meta(object, Meta::Annotations, RELEASE_NAME, &self.name);
        json::set_meta(object, Meta::Annotations, RELEASE_NAMESPACE, &self.namespace);
    }

    /// True when the object carries the three marks of this release.
    pub(crate) fn owns(&self, live: &Value) -> bool {
        self.check(live).is_ok()
    }

    /// Finds out whether an object is one of this release.
    ///
    /// # Errors
    /// What is missing or wrong, in Helm's words.
    pub(crate) fn check(&self, live: &Value) -> Result<(), String> {
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
    use serde_json::json;

    use super::*;

    fn web() -> Owner {
        Owner {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
        }
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
}
