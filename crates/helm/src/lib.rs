//! Helm charts without Helm: chart and values in, manifests, hooks and release records out.
//!
//! Everything here is pure: charts come in as bytes, time, randomness and cluster facts as arguments. What is ported
//! follows Helm 4.3.1 and names the file it follows; [`line::HelmLine`] asks for Helm 3 where the two differ.

pub mod capabilities;
pub mod chart;
pub mod context;
pub mod digest;
pub mod engine;
mod files;
pub mod functions;
pub mod hook;
pub mod json;
pub mod kind_order;
pub mod line;
pub mod manifest;
mod open_enum;
pub mod origin;
pub mod path_match;
pub mod release;
pub mod resource_policy;
pub mod schema;
pub mod semver;
mod strconv;
pub mod text_template;
mod timestamp;
pub mod toml;
pub mod values;
pub mod yaml;
