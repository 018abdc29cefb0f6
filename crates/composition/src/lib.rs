//! Turns what was observed of a composition into a plan: the next action on the release, the permissions it needs,
//! and the values and labels that the chart is rendered with.
//!
//! Pure: no client, no clock, no await. The controller carries the plan out, and `kco plan` prints it.
//!
//! - [`plan`] decides the steps of one pass; pauses and policies restrict them there and nowhere else.
//! - [`permissions`] turns objects and verbs into Roles and bindings; [`chart_bound`] says how far they may go.
//! - [`rendering`] builds the values and labels of a render.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use api::inspection::Resource;
//! use composition::{Account, Permissions};
//!
//! // A release that touches one Service needs one Role, which names it, and a binding to the controller.
//! let service = Resource::new("", "v1", "services", "team", "web", &[]);
//! let controller = Account {
//!     namespace: "krateo-system".to_owned(),
//!     name: "webs-v1-0-0".to_owned(),
//! };
//! let permissions = Permissions::of_resources(&[service]);
//! let grants = permissions.grants("composition:webs:team:web", &controller, &BTreeMap::new());
//! assert_eq!(grants.len(), 1);
//! ```

pub mod approval;
pub mod chart;
pub mod governing;
pub mod offer;
pub mod permissions;
pub mod plan;
pub mod release_name;
pub mod rendering;
pub mod schema;

pub use chart::{chart_of, chart_spec, has_served, serves};
pub use governing::{Ungoverned, governing, is_governed};
pub use offer::{Offer, OfferedName};
pub use permissions::{Account, Permissions};
pub use plan::{Blocked, Observed, Plan, plan};
pub use release_name::ReleaseName;
pub use schema::Schemas;
