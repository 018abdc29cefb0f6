//! OpenTelemetry's settings as they are written in the environment; invalid ones cause a warning, not an error.

use std::ffi::OsStr;
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum as _;
use url::Url;

use crate::excerpt::excerpt;
use crate::{GoDuration, spans};

/// The collector that programs use if none is configured.
pub(super) static OWN_COLLECTOR: LazyLock<Url> =
    LazyLock::new(|| Url::parse("http://localhost:4318").expect("it is a URL"));

/// The longest queue of spans: at a few hundred bytes each it takes some tens of megabytes.
const LONGEST_QUEUE: usize = 65_536;

/// How much of an unknown name a warning quotes, in bytes.
const LONGEST_NAME: usize = 60;

/// A setting that is ignored, for a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) variable: &'static str,
    /// Without the value, which may hold a credential, unless it is the name of something.
    pub(crate) why: String,
}

/// Reads settings, and collects those that it cannot read: they count as not set, as OpenTelemetry's specification of
/// environment variables requires.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) ignored: Vec<Ignored>,
}

impl Reader {
    pub(super) fn ignore(&mut self, variable: &'static str, why: impl Into<String>) {
        let ignored = Ignored {
            variable,
            why: why.into(),
        };
        // The same variable may be read for metrics and for traces.
        if !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }

    /// None if it is not set, or set to the empty string.
    pub(super) fn text<'a>(&mut self, variable: &'static str, value: &'a OsStr) -> Option<&'a str> {
        let Some(text) = value.to_str() else {
            self.ignore(variable, "it is not UTF-8");
            return None;
        };
        Some(text.trim()).filter(|text| !text.is_empty())
    }

    pub(super) fn parsed<T>(
        &mut self,
        variable: &'static str,
        value: &OsStr,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(variable, value)?;
        parse(text).map_err(|why| self.ignore(variable, why)).ok()
    }

    /// Whether the list of exporters for traces includes the collector.
    pub(super) fn is_exported(&mut self, variable: &'static str, value: &OsStr) -> bool {
        let names = self.text(variable, value).unwrap_or_default().split(',');
        let mut is_exported = false;
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            if name.eq_ignore_ascii_case("otlp") {
                is_exported = true;
            } else if !name.eq_ignore_ascii_case("none") {
                self.ignore(variable, unknown(name, "otlp or none"));
            }
        }
        is_exported
    }
}

/// Why a name is refused, quoting no more of it than fits into a line.
fn unknown(name: &str, known: &str) -> String {
    format!("{} is not known; write {known}", excerpt(name, LONGEST_NAME))
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if interval.0.is_zero() {
        return Err("write a duration longer than 0".to_owned());
    }
    Ok(interval.0)
}

pub(super) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "write a number from 0 to 1".to_owned())
}

pub(super) fn endpoint(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("write a URL that begins with http:// or https://".to_owned()),
    }
}

pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map(Duration::from_millis);
    number.map_err(|_| "write a number of milliseconds".to_owned())
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let number = milliseconds(text)?;
    if number.is_zero() {
        return Err("write a number of milliseconds, at least 1".to_owned());
    }
    Ok(number)
}

pub(super) fn queue_size(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=LONGEST_QUEUE).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {LONGEST_QUEUE}"))
}

pub(super) fn sampler(text: &str) -> Result<spans::Named, String> {
    spans::Named::from_str(text, true).map_err(|_| unknown(text, "one that this program's --help lists"))
}

pub(super) fn protocol(text: &str) -> Result<(), String> {
    if text.eq_ignore_ascii_case("http/protobuf") {
        return Ok(());
    }
    Err(unknown(text, "http/protobuf, the only supported protocol"))
}
