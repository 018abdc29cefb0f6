//! Helm charts without Helm: chart and values in, manifests, hooks and release records out.
//!
//! Everything here is pure: charts are passed in as bytes; time, randomness and facts about the cluster are
//! arguments. Ported code follows Helm 4.3.1 and names the file it follows; [`line::HelmLine`] selects Helm 3 where
//! the two differ.
//!
//! ```text
//! files or archive ── chart ──► Chart ──┐
//! values of a user ── values ───────────┼── engine ──► Rendered: manifests in install order, hooks, notes
//! capabilities, clock, lookups ─────────┘                 └── release ──► the record that Helm keeps in a Secret
//! ```
//!
//! ```
//! use helm::capabilities::Capabilities;
//! use helm::chart::{Chart, File, Limits};
//! use helm::context::Context;
//! use helm::engine::{Engine, Operation, ReleaseOptions, RenderOptions};
//!
//! let template = "kind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.greeting }}}";
//! let files = vec![
//!     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0"),
//!     File::new("values.yaml", "greeting: Hello"),
//!     File::new("templates/map.yaml", template),
//! ];
//! let engine = Engine::new(Chart::from_files(files, &Limits::default())?);
//!
//! let release = ReleaseOptions {
//!     name: "shop".to_owned(),
//!     namespace: "team".to_owned(),
//!     revision: 1,
//!     operation: Operation::Install,
//! };
//! // Templates get the time and random bytes from here, so that tests can fix both.
//! let context = Context::new(jiff::Timestamp::UNIX_EPOCH, |bytes: &mut [u8]| bytes.fill(7));
//! let options = RenderOptions::new(release, Capabilities::default(), context);
//! let values = helm::values::read(b"greeting: Good morning")?;
//!
//! let rendered = engine.render(&values, &options)?;
//! assert_eq!(
//!     rendered.manifest_text(),
//!     "---\n# Source: web/templates/map.yaml\n\
//!      kind: ConfigMap\nmetadata: {name: shop}\ndata: {text: Good morning}\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capabilities;
pub mod chart;
pub mod context;
pub mod digest;
mod empty;
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
pub mod text_template;
mod times;
mod timestamp;
pub mod toml;
mod utf8;
pub mod values;
pub mod yaml;
