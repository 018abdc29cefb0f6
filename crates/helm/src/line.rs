//! The two lines of Helm in use, and how they differ.

/// The line of Helm that a chart is rendered like, in its newest release: 3.22.0 or 4.3.1.
///
/// The differences visible to charts and users: `.Chart` is a struct in 3 and a map in 4; 4 drops defaults that are
/// null; 4 reads all documents of a values file, 3 only the first; 3 trims documents at both ends and has no webhook
/// configurations in its order of kinds; 3 lacks twelve functions, reports failing templates on one line, accepts any
/// `apiVersion` of a chart and no file above 5 MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum HelmLine {
    /// Helm 3.
    Three,
    /// Helm 4.
    #[default]
    Four,
}
