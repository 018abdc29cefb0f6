use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use prometheus::IntCounter;
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::*;
use crate::logs;
use crate::otlp::messages;
use crate::otlp::messages::{IS_REMOTE, SpanKind, StatusCode as Code};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn read(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// What was logged and recorded.
struct Heard {
    lines: Vec<Value>,
    spans: Vec<messages::Span>,
    dropped: u64,
}

/// Captures what is logged and recorded in this thread.
fn heard(named: Named, longest_queue: usize, happens: impl FnOnce()) -> Heard {
    let (sender, mut queue) = mpsc::channel(longest_queue);
    let dropped = IntCounter::new("dropped", "dropped").unwrap();
    let traces = Traces {
        sampler: Sampler::new(named, 1.0),
        queue: sender,
        dropped: dropped.clone(),
    };
    let lines = listen("info", Some(traces), happens);
    let mut spans = Vec::new();
    while let Ok(span) = queue.try_recv() {
        spans.push(span);
    }
    Heard {
        lines,
        spans,
        dropped: dropped.get(),
    }
}

fn listen(filter: &str, traces: Option<Traces>, happens: impl FnOnce()) -> Vec<Value> {
    let lines = Lines::default();
    let writer = lines.clone();
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let subscriber = logs::subscriber("tests", filter, move || writer.clone(), traces);
    tracing::subscriber::with_default(subscriber, happens);
    lines.read()
}

/// Runs it on one thread, where [`heard`] captures it.
fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work);
}

fn shop() -> Span {
    pass(&Object {
        kind: "Shop",
        namespace: "team",
        name: "web",
        type_: Some("shops.v1-0-0.composition.krateo.io"),
        definition: None,
        cluster: None,
    })
}

fn attribute(span: &messages::Span, name: &str) -> Option<Attribute> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone()?.value
}

fn text(span: &messages::Span, name: &str) -> String {
    match attribute(span, name) {
        Some(Attribute::StringValue(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

fn caller() -> HeaderMap {
    let caller = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    HeaderMap::from_iter([(TRACEPARENT, caller)])
}

/// A library that knows nothing about passes.
async fn library() {
    tokio::task::yield_now().await;
    tracing::warn!("from a library");
}

#[test]
fn every_line_of_a_pass_has_its_fields_whatever_the_filter() {
    for filter in ["info", "warn", "runtime::spans::tests=warn"] {
        let lines = listen(filter, None, || {
            block_on(async {
                let span = shop();
                let pass = async {
                    library().await;
                    tell(&Span::current(), "release", "web-1");
                    // A new task has no span unless it is given one.
                    let task = tokio::spawn(library().in_current_span());
                    tokio::spawn(library()).await.unwrap();
                    task.await.unwrap();
                    within(part("external.observe"), async {
                        library().await;
                        Err::<(), _>("no")
                    })
                    .await
                    .unwrap_err();
                };
                pass.instrument(span).await;
            });
        });
        let about: Vec<_> = lines
            .iter()
            .map(|line| {
                let of = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
                let object = ["object.kind", "object.namespace", "object.name"].map(of);
                (object.join(" "), of("release"))
            })
            .collect();
        let line = |object: &str, release: &str| (object.to_owned(), release.to_owned());
        let mut expected = vec![
            line("Shop team web", "-"),
            line("Shop team web", "web-1"),
            line("- - -", "-"),
            line("Shop team web", "web-1"),
        ];
        // The order of the two tasks does not matter.
        expected[1..3].sort();
        let mut about = about;
        about[1..3].sort();
        assert_eq!(about, expected, "{filter}");
        assert_eq!(lines[0]["type"], "shops.v1-0-0.composition.krateo.io");
        for field in ["otel.name", "trace_id", "cluster", "definition"] {
            assert!(
                lines.iter().all(|line| line[field].is_null()),
                "{field}: {lines:?}"
            );
        }
    }
}

#[test]
fn parts_do_not_exist_where_nothing_is_recorded() {
    listen("trace", None, || {
        assert!(!shop().is_disabled() && part("external.observe").is_disabled());
        assert!(outgoing("GET /resources", "inspector").is_disabled());
        let _entered = shop().entered();
        assert_eq!(traceparent(), None);
    });
}

#[test]
fn parts_are_children_of_their_pass_and_lines_have_the_ids() {
    let Heard {
        lines,
        spans,
        dropped,
    } = heard(Named::ParentOrOn, 10, || {
        block_on(
            async {
                tell(&Span::current(), "release", "web-1");
                let asking = async {
                    tracing::info!("asking");
                    let sent = traceparent().unwrap();
                    note("http.response.status_code", 503);
                    Err::<(), _>(sent)
                };
                let sent = within(outgoing("GET /resources", "inspector"), asking)
                    .await
                    .unwrap_err();
                assert!(sent.starts_with("00-") && sent.ends_with("-01"), "{sent}");
                failed(&"x".repeat(5000));
            }
            .instrument(shop()),
        );
    });
    let [asked, pass] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    assert_eq!(dropped, 0);
    assert_eq!(
        (pass.name.as_str(), asked.name.as_str()),
        ("reconcile", "GET /resources")
    );
    assert_eq!(
        (pass.kind(), asked.kind()),
        (SpanKind::Internal, SpanKind::Client)
    );
    assert_eq!((pass.trace_id.len(), pass.span_id.len()), (16, 8));
    assert_eq!(asked.trace_id, pass.trace_id);
    assert_eq!(asked.parent_span_id, pass.span_id);
    assert!(pass.parent_span_id.is_empty() && pass.span_id != asked.span_id);
    assert_eq!(pass.flags & (IS_REMOTE | 1), 1);
    assert!(pass.start_time_unix_nano <= asked.start_time_unix_nano);
    assert!(asked.start_time_unix_nano <= asked.end_time_unix_nano);
    assert_eq!(
        ["object.kind", "object.namespace", "object.name", "release"].map(|name| text(pass, name)),
        ["Shop", "team", "web", "web-1"]
    );
    assert_eq!(text(asked, "server.address"), "inspector");
    assert_eq!(
        attribute(asked, "http.response.status_code"),
        Some(Attribute::IntValue(503))
    );
    assert_eq!(attribute(asked, "otel.kind"), None);
    let status = pass.status.clone().unwrap();
    assert_eq!(
        (status.code(), status.message.len()),
        (Code::Error, 1024 + "…".len())
    );
    assert_eq!(asked.status.clone().unwrap().code(), Code::Error);
    let id = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
    assert_eq!(lines[0]["trace_id"], id(&asked.trace_id));
    assert_eq!(lines[0]["span_id"], id(&asked.span_id));
    assert_eq!(lines[0]["otel.name"], Value::Null);
}

#[test]
fn a_request_is_a_child_of_the_callers_span_if_the_header_is_valid() {
    let ask = |headers: HeaderMap, status: StatusCode| {
        heard(Named::ParentOrOn, 10, || {
            let _entered = request("GET", "/resources", Some(&headers)).entered();
            tell_claim(&Span::current(), "object.name", &"é".repeat(200));
            answered(status);
            if status == StatusCode::FORBIDDEN {
                leave_out();
            }
        })
        .spans
    };
    let spans = ask(caller(), StatusCode::INTERNAL_SERVER_ERROR);
    let [span] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    let of_caller = TraceContext::of_caller(&caller()).unwrap();
    assert_eq!(span.name, "GET /resources");
    assert_eq!(
        (span.kind(), span.flags & IS_REMOTE),
        (SpanKind::Server, IS_REMOTE)
    );
    assert_eq!(span.trace_id, of_caller.trace);
    assert_eq!(span.parent_span_id, of_caller.span);
    assert_ne!(span.span_id, of_caller.span);
    assert_eq!(span.status.clone().unwrap().code(), Code::Error);
    assert_eq!(text(span, "object.name"), "é".repeat(126));
    assert_eq!(text(span, "http.route"), "/resources");

    let malformed = HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_static("00-4bf92f-00f067-01"))]);
    for headers in [HeaderMap::new(), malformed] {
        let spans = ask(headers, StatusCode::OK);
        assert!(spans[0].parent_span_id.is_empty() && spans[0].status.is_none());
        assert_eq!(spans[0].flags & IS_REMOTE, 0);
        assert_ne!(spans[0].trace_id, of_caller.trace);
    }
    assert_eq!(ask(caller(), StatusCode::FORBIDDEN), []);
}

#[test]
fn an_unsampled_trace_is_passed_on_and_not_recorded() {
    let Heard { lines, spans, .. } = heard(Named::ParentOrOff, 10, || {
        let _entered = shop().entered();
        assert!(traceparent().unwrap().ends_with("-00"));
        let _part = part("external.observe").entered();
        tracing::info!("here");
    });
    assert_eq!(spans, []);
    assert_eq!(lines[0]["object.name"], "web");
    assert!(lines[0]["trace_id"].is_null(), "nobody finds it there");
    let asked = heard(Named::ParentOrOff, 10, || {
        let _entered = request("GET", "/resources", Some(&caller())).entered();
        let _part = part("render").entered();
    });
    let names: Vec<_> = asked.spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["render", "GET /resources"]);
}

#[test]
fn a_pass_that_finds_nothing_to_do_is_left_out() {
    let spans = heard(Named::AlwaysOn, 10, || {
        let _entered = shop().entered();
        leave_out();
    });
    assert_eq!(spans.spans, []);
}

#[test]
fn a_pass_over_an_object_that_is_gone_is_left_out_with_its_parts() {
    let look = |object: Option<u8>| {
        let heard = heard(Named::AlwaysOn, 10, || {
            block_on(
                async {
                    let read = unless_gone(async { Ok::<_, ()>(object) });
                    if within(part("get"), read).await.unwrap().is_none() {
                        leave_out();
                    }
                }
                .instrument(shop()),
            );
        });
        let names: Vec<_> = heard.spans.into_iter().map(|span| span.name).collect();
        names
    };
    assert_eq!(look(Some(1)), ["get", "reconcile"]);
    assert_eq!(look(None), Vec::<String>::new());
}

#[test]
fn a_full_queue_drops_and_counts_spans_and_blocks_nothing() {
    let heard = heard(Named::AlwaysOn, 3, || {
        for _ in 0..10 {
            drop(shop());
        }
    });
    assert_eq!((heard.spans.len(), heard.dropped), (3, 7));
}

#[test]
fn spans_of_others_are_not_recorded() {
    let heard = heard(Named::AlwaysOn, 10, || {
        let _entered = tracing::info_span!("of somebody else").entered();
        drop(shop());
    });
    assert_eq!(heard.spans.len(), 1);
    assert!(heard.spans[0].parent_span_id.is_empty());
}
