//! Charts come from all kinds of sources, with all kinds of logins; errors are precise, and credentials only reach the
//! host that they are for.

mod archives;
mod credentials;
mod dependencies;
mod grants;
mod https;
mod kco;
mod registries;
mod repositories;
mod servers;
mod signatures;
mod sources;
mod versions;
