//! Lists that are kept between passes as JSON text: parsed, they take several times the memory.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A list of `T` as text.
#[derive(Debug)]
pub(crate) struct Packed<T> {
    text: Box<str>,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// None if the list cannot be written as JSON, and therefore cannot be kept.
    pub(crate) fn of(list: &[T]) -> Option<Self> {
        let text = serde_json::to_string(list).ok()?;
        Some(Self {
            text: text.into(),
            of: PhantomData,
        })
    }

    /// The list, parsed on each call; none if the text cannot be read, so that what it says is found out again.
    pub(crate) fn unpack(&self) -> Option<Vec<T>> {
        serde_json::from_str(&self.text).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::inspection::{Resource, Verb};
    use composition::permissions::{Grant, KEEP, MANAGE};
    use composition::{Account, Permissions};

    use super::*;

    fn resources() -> Vec<Resource> {
        let mut of_template = Resource::new("apps", "v1", "deployments", "team", "web", &MANAGE);
        of_template.path = Some("web/templates/deployment.yaml".to_owned());
        of_template.order = Some(7);
        vec![
            of_template,
            Resource::new("", "v1", "secrets", "other", "key", &KEEP),
            Resource::new("", "v1", "configmaps", "team", "", &[Verb::List]),
            Resource::new("", "v1", "namespaces", "", "own", &[]),
        ]
    }

    fn grants(labels: &BTreeMap<String, String>) -> Vec<Grant> {
        let account = Account {
            namespace: "system".to_owned(),
            name: "cdc".to_owned(),
        };
        Permissions::of_resources(&resources()).grants("composition:webs:team:web", &account, labels)
    }

    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(list: &[T]) {
        let packed = Packed::of(list).unwrap();
        assert_eq!(packed.unpack().as_deref(), Some(list));
    }

    /// If it were not so, what is granted would differ from what is needed, and be written again and again.
    #[test]
    fn what_is_unpacked_is_equal_to_what_was_packed() {
        check(&resources());
        check::<Resource>(&[]);
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let all = grants(&labels);
        assert_eq!(all.len(), 3, "two namespaces and the cluster");
        check(&all);
        check(&grants(&BTreeMap::new()));
        // As the server answers.
        let read: Vec<Grant> = all.into_iter().map(|grant| grant.as_written(&labels)).collect();
        check(&read);
    }

    #[test]
    fn what_cannot_be_unpacked_is_not_remembered() {
        let broken: Packed<Resource> = Packed {
            text: "[{".into(),
            of: PhantomData,
        };
        assert_eq!(broken.unpack(), None);
    }
}
