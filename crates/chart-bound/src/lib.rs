//! The upper bound of what the controller of a chart may be granted: what a scan of the chart finds, and what an admin
//! allows beyond it.
//!
//! Pure: no client, no clock, no await. core-provider writes the same bound twice: into the admission policies that
//! enforce it, and into a `ConfigMap`, from which the controller can say what is missing before it tries.
//!
//! - [`scan`] finds what a chart's templates can ever render.
//! - [`grant`] selects the grants of a definition and its chart.
//! - [`Allowed`] is what an admin allows beyond the scan; [`Resolved`] combines both into a [`Bound`].
//! - [`lookups`] decides what templates may read, [`Outside`] names what a release needs beyond the bound.

mod allowed;
pub mod allowed_definitions;
mod annotated;
mod bound;
pub mod grant;
mod group_resource;
mod kinds;
pub mod lookups;
mod outside;
mod resolved;
pub mod scan;
mod stored;
#[cfg(test)]
mod tests;

pub use allowed::{Allowed, BadAnnotation, is_protected};
pub use allowed_definitions::AllowedDefinition;
pub use bound::{Bound, GRANT, PERMISSIONS, grants_policy};
pub use group_resource::{GroupResource, NotAKind};
pub use kinds::{BuiltIn, Kinds, RESERVED_GROUPS, ResourceMapping, guess, is_ruling, ruling_kinds};
pub use outside::Outside;
pub use resolved::Resolved;
