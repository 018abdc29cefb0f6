//! What a composition needs: what its chart renders to, the objects that touches with the verbs for each, the
//! permissions, and the state of the release. It is derived from the composition, its definition, the loaded chart and
//! the release's records.
//!
//! The controller, chart-inspector and `kco` call this, so that all three give the same answer. It reads and never
//! writes.

mod bound;
mod grants;
mod judging;
mod permissions;
mod standing;
mod subject;
mod touched;

pub use bound::{ServedKinds, noted_bound};
pub use grants::{Error as GrantsError, granted};
pub use judging::{Bounds, Judging, Renderer};
pub use permissions::permissions;
pub use standing::{Difference, Standing, compared, drift_policy, is_of, standing, told};
pub use subject::{Error, Subject};
pub use touched::{Stored, looked_up, removed, stored};
