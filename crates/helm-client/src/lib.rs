//! Releases: rendered charts are applied to a cluster, and recorded there as Helm records them.
//!
//! [`rendering`] renders a chart for a release, answering its lookups from the cluster. [`release`] installs, upgrades, rolls back,
//! resumes and removes releases, and finds drift. [`records`] reads and writes their records; [`authenticity`] signs the records
//! and recognises those of others. The rules (which action comes next, what a record contains) are in the crate `helm`, which
//! talks to nobody.

pub mod authenticity;
mod json;
pub mod records;
pub mod release;
pub mod rendering;
