//! When an object is looked at again.

use std::time::Duration;

use runtime::queue::Priority;

/// When the next pass over an object follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// After a while, unless something changes before that.
    After(Duration, Priority),
    /// When something changes.
    OnChange,
}
