//! Releases from a terminal: Helm's verbs, implemented with the controllers' library, and two of our own.

pub(crate) mod args;
mod columns;
mod diff;
mod drift;
pub(crate) mod flags;
mod get;
mod history;
mod holder;
mod install;
mod list;
pub(crate) mod make;
pub(crate) mod output;
mod rollback;
pub(crate) mod screen;
mod selector;
pub(crate) mod session;
mod status;
pub(crate) mod table;
mod test;
mod uninstall;
mod upgrade;

pub(crate) use {
    diff::run as diff, drift::run as drift, get::run as get, history::run as history,
    install::run as install, list::run as list, rollback::run as rollback, status::run as status,
    test::run as test, uninstall::run as uninstall, upgrade::run as upgrade,
};
