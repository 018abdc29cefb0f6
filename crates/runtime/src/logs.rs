//! Logs as JSON, one object a line: `timestamp` (RFC 3339, nanoseconds, UTC), `level`, `service`, `message`, and the
//! fields of the event and of the spans around it. While traces are recorded, also `trace_id` and `span_id`.

use std::error::Error;
use std::fmt;

use api::message::shortened;
use data_encoding::HEXLOWER;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{
    self as formatted, FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter,
};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Registry};

use crate::spans::{self, Traces};

/// Libraries that log each request and byte below `info`; `RUST_LOG` can turn them up.
const QUIET: &str = "hyper=info,hyper_util=info,h2=info,rustls=info,tower=info,reqwest=info,kube_client=info";

/// If one object of a list cannot be parsed, kube's client logs the whole answer, with the specs of all objects. It also
/// logs every answer above 499 as an error; we log errors ourselves, where they stop travelling. Off whatever `RUST_LOG`
/// says, since nobody who turns the client up wants that.
const SILENT: &str = "kube_client::client=off";

/// The log filter: `RUST_LOG` if set, otherwise `debug` and above or `info` and above.
pub fn filter(debug: bool) -> EnvFilter {
    std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|directives| !directives.is_empty())
        .and_then(|directives| with_silence(&directives))
        .unwrap_or_else(|| EnvFilter::new(directives(debug)))
}

fn with_silence(directives: &str) -> Option<EnvFilter> {
    let filter = EnvFilter::try_new(directives).ok()?;
    Some(filter.add_directive(SILENT.parse().ok()?))
}

fn directives(debug: bool) -> String {
    if debug {
        format!("debug,{QUIET},{SILENT}")
    } else {
        format!("info,{SILENT}")
    }
}

/// A subscriber that writes JSON lines to `writer` for a service, and records `traces` if any.
pub(crate) fn subscriber<W>(
    service: &str,
    filter: EnvFilter,
    writer: W,
    traces: Option<Traces>,
) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = formatted::layer()
        .fmt_fields(JsonFields::new())
        .event_format(Lines {
            service: service.to_owned(),
        })
        .with_writer(writer);
    let filter = with_spans(filter, traces.is_some());
    Registry::default().with(filter).with(lines).with(traces)
}

/// The fields of passes and requests are in every line whatever `RUST_LOG` says; parts are for traces only.
fn with_spans(filter: EnvFilter, are_traced: bool) -> EnvFilter {
    let parts = if are_traced { "info" } else { "off" };
    let directives = [
        format!("{}=info", spans::CONTEXT),
        format!("{}={parts}", spans::PART),
    ];
    let directives = directives.iter().filter_map(|directive| directive.parse().ok());
    directives.fold(filter, EnvFilter::add_directive)
}

struct Lines {
    service: String,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        // Fields of inner spans and of the event itself win.
        for span in ctx
            .event_scope()
            .into_iter()
            .flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            if let Some(place) = spans::place(&span) {
                line.insert("trace_id".to_owned(), hex(&place.trace).into());
                line.insert("span_id".to_owned(), hex(&place.span).into());
            }
            if span.metadata().target() == spans::PART {
                continue;
            }
            let extensions = span.extensions();
            let fields = extensions
                .get::<FormattedFields<N>>()
                .map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(fields))) = fields.map(serde_json::from_str) {
                line.extend(fields);
            }
        }
        event.record(&mut Fields(&mut line));
        let metadata = event.metadata();
        line.insert("timestamp".to_owned(), Timestamp::now().to_string().into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("service".to_owned(), self.service.clone().into());
        line.insert("target".to_owned(), metadata.target().into());
        writeln!(out, "{}", Value::Object(line))
    }
}

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Turns fields into JSON values.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, shortened(format_args!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, shortened(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field, crate::chain(value));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: &str, log: impl FnOnce()) -> Vec<Value> {
        logged_by(EnvFilter::new(filter), log)
    }

    fn logged_by(filter: EnvFilter, log: impl FnOnce()) -> Vec<Value> {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = subscriber("core-provider", filter, move || writer.clone(), None);
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_time_service_message_and_all_fields() {
        let lines = logged("info", || {
            let span = tracing::info_span!("pass", object = "shop/web", attempt = 1);
            let _entered = span.enter();
            let error = std::io::Error::other("disk");
            tracing::warn!(
                count = 3,
                attempt = 2,
                error = &error as &dyn Error,
                "could not {}",
                "write"
            );
            tracing::debug!("unheard");
        });
        let [line] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        for (key, value) in [
            ("service", "core-provider".into()),
            ("level", "WARN".into()),
            ("message", "could not write".into()),
            ("object", "shop/web".into()),
            ("attempt", 2.into()),
            ("count", 3.into()),
            ("error", Value::from("disk")),
        ] {
            assert_eq!(line[key], value, "{key}");
        }
        let stamp = line["timestamp"].as_str().unwrap();
        assert!(
            stamp.ends_with('Z') && stamp.parse::<Timestamp>().is_ok(),
            "{stamp}"
        );
    }

    #[test]
    fn a_field_is_as_long_as_a_message_at_most() {
        let long = "n".repeat(1 << 20);
        let lines = logged("info", || {
            let error = std::io::Error::other(long.clone());
            tracing::warn!(said = long, shown = %long, error = &error as &dyn Error, "{long}");
        });
        for field in ["said", "shown", "error", "message"] {
            let length = lines[0][field].as_str().map(str::len);
            assert_eq!(length, Some(api::message::LONGEST), "{field}");
        }
    }

    #[test]
    fn debug_turns_us_up_but_not_every_byte() {
        let heard = logged(&directives(true), || {
            tracing::debug!(target: "core_provider", "heard");
            tracing::debug!(target: "hyper::proto", "unheard");
            tracing::error!(target: "kube_client::client::builder", "unheard");
        });
        assert_eq!(heard.len(), 1);
    }

    #[test]
    fn kubes_client_never_logs_an_answer_whatever_the_filter() {
        for asked in ["info", "kube_client=debug", "trace,kube_client::client=trace"] {
            let heard = logged_by(with_silence(asked).unwrap(), || {
                tracing::warn!(target: "kube_client::client", "{}", "{\"items\": []}");
                tracing::warn!(target: "kube_runtime::watcher", "heard");
            });
            assert!(
                heard.iter().all(|line| line["message"] == "heard"),
                "{asked}: {heard:?}"
            );
        }
        assert!(
            logged(
                &directives(false),
                || tracing::warn!(target: "kube_client::client", "unheard")
            )
            .is_empty()
        );
    }
}
