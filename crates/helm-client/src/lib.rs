//! Releases: applies rendered charts to a cluster, and records them there as Helm does.
//!
//! [`rendering`] renders a chart for a release, answering its lookups from the cluster. [`release`] installs,
//! upgrades, rolls back, resumes and removes releases, and finds drift. [`records`] reads and writes their records;
//! [`authenticity`] signs records and recognises foreign ones. The rules (which action comes next, what a record
//! contains) are in the crate `helm`, which does no I/O.

pub mod authenticity;
mod events;
mod json;
mod pool;
pub mod records;
pub mod release;
pub mod rendering;
