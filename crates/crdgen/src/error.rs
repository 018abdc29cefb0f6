//! Why a version cannot be added to a CRD, or removed from it.

use crate::conversion;

/// A version cannot be added to a CRD or removed from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A version of an existing CRD has no schema to combine with those of the others.
    #[error("version {version} of CRD {crd} has no schema with a spec; delete that version or the CRD")]
    NoSchema {
        /// The CRD's name.
        crd: String,
        /// The version's name.
        version: String,
    },
    /// The annotation with the versions' own schemas is damaged.
    #[error("annotation {annotation} of CRD {crd} is damaged ({why}); restore or remove it")]
    Annotation {
        /// The CRD's name.
        crd: String,
        /// The annotation's name.
        annotation: String,
        /// What is wrong.
        why: String,
    },
    /// The annotation with the changes between versions is damaged.
    #[error(transparent)]
    Conversion(#[from] conversion::Error),
    /// The last version can only be removed with the CRD.
    #[error("version {version} is the only one that CRD {crd} serves; delete the CRD instead")]
    LastVersion {
        /// The CRD's name.
        crd: String,
        /// The version's name.
        version: String,
    },
}
