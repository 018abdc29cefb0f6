//! The two lines of Helm that are in use, and where they part.

/// Which line of Helm a chart is rendered as; the newest release of each is meant, 3.22.0 and 4.3.1.
///
/// What charts and users can tell them by: `.Chart` is a struct in 3 and a map in 4; 4 drops defaults that are null;
/// 4 reads all documents of a values file, 3 the first; 3 trims documents at both ends and knows no webhook
/// configurations among its kinds; 3 lacks twelve functions, reports failing templates on one line, takes any
/// `apiVersion` of a chart and no file above 5 MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum HelmLine {
    /// Helm 3.
    Three,
    /// Helm 4.
    #[default]
    Four,
}
