//! What is observed of a composition becomes a plan: which release action comes next, which permissions
//! it needs, which values and labels the chart is rendered with.
//!
//! Pure: no client, no clock, no await. The controller carries the plan out, `kco plan` prints it.

pub mod allowed_definitions;
pub mod approval;
pub mod bound;
pub mod chart;
pub mod governing;
pub mod lookups;
pub mod offer;
pub mod permissions;
pub mod plan;
pub mod release_name;
pub mod rendering;
pub mod scan;
pub mod schema;

pub use allowed_definitions::AllowedDefinition;
pub use bound::{Bound, Outside};
pub use chart::{chart_of, chart_spec, has_served, serves};
pub use governing::{Ungoverned, governing, is_governed};
pub use offer::{Given, Offer};
pub use permissions::{Account, Permissions};
pub use plan::{Blocked, Observed, Plan, plan};
pub use release_name::ReleaseName;
pub use schema::Schemas;
