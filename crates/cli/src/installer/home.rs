//! The namespace of the platform, where the command line names no other.

use crate::release::args::Connection;

/// The default namespace of the platform.
const HOME: &str = "krateo-system";

/// The connection to the platform's namespace.
pub(super) fn home(mut connection: Connection) -> Connection {
    if connection.namespace.as_deref().is_none_or(str::is_empty) {
        connection.namespace = Some(HOME.to_owned());
    }
    connection
}
