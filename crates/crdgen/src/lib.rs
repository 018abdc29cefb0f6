//! Converts a chart's `values.schema.json` to a Kubernetes structural schema, then to a CRD and its versions.
//!
//! ```text
//! values.schema.json, values.yaml ── structural ──► schema of spec, what is degraded
//! chart name, version             ── Names, ServedVersion
//!                                    └── crd / with_version / without_version ──► CustomResourceDefinition
//! ```
//!
//! Everything here is pure, and the same input gives the same bytes. It also contains what an API server does to
//! values by a schema, for programs that read objects: [`fill_defaults`] and [`drop_strangers`], to be used with the
//! [`own_schema`] of a version.

pub mod conversion;
pub mod crd;
mod error;
mod inflect;
pub mod names;
mod served;
mod siblings;
mod source;
pub mod structural;
mod types;
mod values;
pub mod version;

pub use crd::{GROUP, crd, own_schema, with_version, without_version};
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
pub use names::Names;
pub use served::{STORAGE_VERSION, served_versions};
pub use siblings::OWN_SCHEMAS;
pub use source::with_dependencies;
pub use structural::{BadDefaults, Degraded, Structural, structural, structural_with};
pub use values::{drop_strangers, fill_defaults, refusal};
pub use version::ServedVersion;
