//! What tables say of a release: its chart, the version of the application, and times.

use helm::release::Release;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `name-version`, as lists show a chart.
pub(super) fn chart_name(release: &Release) -> String {
    let metadata = release.chart.metadata.as_ref();
    metadata.map_or_else(
        || "MISSING".to_owned(),
        |metadata| format!("{}-{}", metadata.name, metadata.version),
    )
}

/// The version of the application as lists show it.
pub(super) fn app_version(release: &Release) -> String {
    let metadata = release.chart.metadata.as_ref();
    metadata.map_or_else(|| "MISSING".to_owned(), |metadata| metadata.app_version.clone())
}

/// A time in Go's format `time.ANSIC`, in the system's time zone.
pub(super) fn ansi_c(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system())
        .strftime("%a %b %e %H:%M:%S %Y")
        .to_string()
}
