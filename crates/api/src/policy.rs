//! What users allow the controllers to do for one object, read from its annotations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::annotations;

/// Which of create, update and delete a controller may do for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagementPolicy {
    /// Everything.
    #[default]
    Default,
    /// Everything except deletion.
    ObserveCreateUpdate,
    /// Only deletion.
    ObserveDelete,
    /// Nothing: the object is only observed.
    Observe,
}

impl ManagementPolicy {
    /// Reads the policy from an object's annotations; absent means [`ManagementPolicy::Default`].
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Self, UnknownPolicy> {
        parse(annotations, annotations::MANAGEMENT_POLICY)
    }

    /// True when the object's resources may be created or changed.
    pub fn may_write(self) -> bool {
        match self {
            Self::Default | Self::ObserveCreateUpdate => true,
            Self::ObserveDelete | Self::Observe => false,
        }
    }

    /// True when the object's resources may be removed.
    pub fn may_delete(self) -> bool {
        match self {
            Self::Default | Self::ObserveDelete => true,
            Self::ObserveCreateUpdate | Self::Observe => false,
        }
    }
}

impl FromStr for ManagementPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "default" => Ok(Self::Default),
            "observe-create-update" => Ok(Self::ObserveCreateUpdate),
            "observe-delete" => Ok(Self::ObserveDelete),
            "observe" => Ok(Self::Observe),
            _ => Err(()),
        }
    }
}

/// What happens to the object's resources when the object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPolicy {
    /// They are removed, too.
    #[default]
    Delete,
    /// They are kept; only the object is removed.
    Orphan,
}

impl DeletionPolicy {
    /// Reads the policy from an object's annotations; absent means [`DeletionPolicy::Delete`].
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Self, UnknownPolicy> {
        parse(annotations, annotations::DELETION_POLICY)
    }
}

impl FromStr for DeletionPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "delete" => Ok(Self::Delete),
            "orphan" => Ok(Self::Orphan),
            _ => Err(()),
        }
    }
}

/// A policy annotation has an unknown value.
///
/// It is never replaced by the default: a mistyped `observe` must not allow writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// Name of the annotation.
    pub annotation: &'static str,
    /// Its value.
    pub value: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self.annotation {
            annotations::DELETION_POLICY => "delete or orphan",
            _ => "default, observe-create-update, observe-delete or observe",
        };
        write!(
            f,
            "annotation {} holds {:?}: use {known}",
            self.annotation, self.value
        )
    }
}

impl std::error::Error for UnknownPolicy {}

fn parse<P: FromStr + Default>(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
) -> Result<P, UnknownPolicy> {
    match annotations.get(annotation) {
        None => Ok(P::default()),
        Some(value) => value.parse().map_err(|_| UnknownPolicy {
            annotation,
            value: value.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_policy_says_what_may_be_done() {
        let check = |text: &str, may_write, may_delete| {
            let policy = ManagementPolicy::of(&annotated(annotations::MANAGEMENT_POLICY, text)).unwrap();
            assert_eq!(
                (policy.may_write(), policy.may_delete()),
                (may_write, may_delete),
                "{text}"
            );
        };
        check("default", true, true);
        check("observe-create-update", true, false);
        check("observe-delete", false, true);
        check("observe", false, false);
    }

    #[test]
    fn an_absent_policy_is_the_default_and_a_mistyped_one_an_error() {
        assert_eq!(
            ManagementPolicy::of(&BTreeMap::new()),
            Ok(ManagementPolicy::Default)
        );
        assert_eq!(DeletionPolicy::of(&BTreeMap::new()), Ok(DeletionPolicy::Delete));
        let error = DeletionPolicy::of(&annotated(annotations::DELETION_POLICY, "keep")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "annotation krateo.io/deletion-policy holds \"keep\": use delete or orphan"
        );
    }
}
