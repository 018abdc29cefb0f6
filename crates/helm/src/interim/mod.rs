//! YAML and version constraints by way of libraries, until the modules that read them as Helm does are here.

pub(crate) mod semver;
pub mod yaml;
