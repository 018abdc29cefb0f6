//! Charts come from wherever users keep them, by every way to log in; what goes wrong is said exactly, and no
//! credential reaches anybody but the host it is for.

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
