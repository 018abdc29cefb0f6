//! Charts come from wherever users keep them, by every way to log in; what goes wrong is said exactly, and no
//! credential reaches anybody but the host it is for.

mod archives;
mod credentials;
mod grants;
mod kco;
mod registries;
mod repositories;
mod servers;
mod sources;
mod versions;
