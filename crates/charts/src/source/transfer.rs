//! The progress of a download or an upload, and who is told of it.

/// Called after every few bytes.
pub type Watcher = fn(Transfer<'_>);

/// The progress of a download or an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The remote host.
    pub host: &'a str,
    /// What is fetched or pushed.
    pub path: &'a str,
    /// Number of bytes transferred.
    pub done: u64,
    /// Total number of bytes, if known.
    pub total: Option<u64>,
}
