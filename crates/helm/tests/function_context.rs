//! The template functions that use the context of the render: clock, randomness, names, cluster objects, nesting.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use gotemplate::exec::{self, Limits, MissingKey, Options};
use gotemplate::set::Set;
use gotemplate::value::Value;
use helm::context::{Answer, Context, LookupKey, Resolver};
use helm::functions;
use jiff::tz::TimeZone;
use serde_json::json;

/// A Monday morning, and random bytes that count up.
fn context() -> Context {
    let mut next = 0_u8;
    Context::new(
        "2024-05-06T07:08:09.5Z".parse().unwrap(),
        move |bytes: &mut [u8]| {
            for byte in bytes {
                next = next.wrapping_mul(57).wrapping_add(91);
                *byte = next;
            }
        },
    )
}

fn try_render(text: &str, context: &Context) -> Result<String, exec::Error> {
    let mut set = Set::new("gotpl", functions::all().clone());
    set.parse("test", text).unwrap();
    let options = Options {
        missing_key: MissingKey::Zero,
        host: context,
        budget: None,
        limits: Limits {
            stack: 48 << 20,
            ..Limits::default()
        },
        ..Options::default()
    };
    let output = set.execute("test", Value::map(), &options)?;
    Ok(String::from_utf8(output).unwrap())
}

fn render(text: &str, context: &Context) -> String {
    try_render(text, context).unwrap()
}

fn failure(text: &str, context: &Context) -> String {
    try_render(text, context).unwrap_err().to_string()
}

/// Runs a test on a thread whose stack allows deeply nested executions.
fn on_a_large_stack(test: fn()) {
    let thread = std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(test)
        .unwrap();
    thread.join().unwrap();
}

#[test]
fn every_function_of_helm_has_its_name_here() {
    let names = include_str!("vectors/functions/names.list");
    let missing: Vec<&str> = names
        .lines()
        .filter(|name| functions::all().get(name).is_none())
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    let known: HashSet<String> = names.lines().map(str::to_owned).collect();
    let surplus: Vec<String> = functions::all()
        .names()
        .map(ToString::to_string)
        .filter(|name| !known.contains(name))
        .collect();
    assert_eq!(surplus, Vec::<String>::new());
}

#[test]
fn now_is_what_the_context_says_in_its_zone() {
    for (text, expected) in [
        ("{{ now }}", "2024-05-06 07:08:09.5 +0000 UTC"),
        ("{{ now | date \"2006-01-02 15:04\" }}", "2024-05-06 07:08"),
        ("{{ date \"15:04\" 0 }}", "00:00"),
        ("{{ date \"15:04\" .nothing }}", "07:08"),
        ("{{ now | unixEpoch }}", "1714979289"),
        ("{{ now.Unix }}", "1714979289"),
        ("{{ ago (now | dateModify \"-90s\") }}", "1m30s"),
        ("{{ ago 1714979200 }}", "1m30s"),
        ("{{ now | dateModify \"-50h\" | durationRound }}", "2d"),
        ("{{ htmlDate now }}", "2024-05-06"),
        ("{{ htmlDateInZone now \"Pacific/Auckland\" }}", "2024-05-06"),
        ("{{ now.Weekday }}", "Monday"),
    ] {
        assert_eq!(render(text, &context()), expected, "{text}");
    }
}

#[test]
fn local_time_is_that_of_the_context() {
    let context = context().with_time_zone(TimeZone::fixed(jiff::tz::offset(2)));
    assert_eq!(
        render("{{ now.Hour }} {{ date \"15:04\" 0 }}", &context),
        "9 02:00"
    );
    assert_eq!(render("{{ dateInZone \"15:04\" 0 \"UTC\" }}", &context), "00:00");
    assert_eq!(
        render("{{ toDate \"2006-01-02\" \"1970-01-02\" | unixEpoch }}", &context),
        "79200"
    );
}

#[test]
fn random_texts_come_from_the_context_alone() {
    for text in [
        "{{ randAlphaNum 12 }}",
        "{{ randAlpha 12 }}",
        "{{ randNumeric 12 }}",
        "{{ randAscii 12 }}",
        "{{ randBytes 12 }}",
        "{{ randInt 0 1000000000 }}",
        "{{ shuffle \"abcdefghijklm\" }}",
        "{{ uuidv4 }}",
    ] {
        assert_eq!(
            render(text, &context()),
            render(text, &context()),
            "the same source, the same text: {text}"
        );
        let context = context();
        assert_ne!(
            render(text, &context),
            render(text, &context),
            "the source goes on: {text}"
        );
    }
}

struct Hosts;

impl Resolver for Hosts {
    fn addresses(&self, host: &str) -> Vec<String> {
        match host {
            "db" => vec!["198.18.0.7".to_owned()],
            _ => Vec::new(),
        }
    }
}

#[test]
fn names_are_resolved_only_where_the_context_allows_it() {
    assert_eq!(render("{{ getHostByName \"db\" }}", &context()), "");
    let context = context().with_resolver(Hosts);
    assert_eq!(render("{{ getHostByName \"db\" }}", &context), "198.18.0.7");
    assert!(failure("{{ getHostByName \"nope\" }}", &context).ends_with("invalid argument to Intn"));
}

fn key(kind: &str, name: &str) -> LookupKey {
    LookupKey {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "prod".to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn lookup_answers_what_is_known_and_collects_what_is_not() {
    let known = [
        (
            key("Secret", "db"),
            Answer::Found(json!({"data": {"n": 3, "f": 1.5}}).into()),
        ),
        (key("Secret", "gone"), Answer::NotFound),
        (
            key("Widget", ""),
            Answer::Failed("no matches for kind \"Widget\"".to_owned()),
        ),
    ];
    let context = context().with_lookups(known);
    for (text, expected) in [
        (
            "{{ (lookup \"v1\" \"Secret\" \"prod\" \"db\").data.n | typeOf }}",
            "int64",
        ),
        (
            "{{ (lookup \"v1\" \"Secret\" \"prod\" \"db\").data.f | typeOf }}",
            "float64",
        ),
        ("{{ lookup \"v1\" \"Secret\" \"prod\" \"gone\" }}", "map[]"),
        (
            "{{ if lookup \"v1\" \"ConfigMap\" \"prod\" \"new\" }}yes{{ else }}no{{ end }}",
            "no",
        ),
    ] {
        assert_eq!(render(text, &context), expected, "{text}");
    }
    assert!(
        failure("{{ lookup \"v1\" \"Widget\" \"prod\" \"\" }}", &context)
            .ends_with("no matches for kind \"Widget\"")
    );
    assert_eq!(
        context.lookups.missing().into_iter().collect::<Vec<_>>(),
        [key("ConfigMap", "new")]
    );
}

#[test]
fn lint_neither_fails_nor_looks_up() {
    let context = context().linting();
    assert_eq!(
        render(
            "{{ required \"x\" nil }}{{ required \"x\" \"\" }}{{ fail \"x\" }}",
            &context
        ),
        ""
    );
    assert_eq!(
        render("{{ lookup \"v1\" \"Secret\" \"prod\" \"db\" }}", &context),
        "map[]"
    );
    assert!(context.lookups.missing().is_empty());
}

#[test]
fn a_template_is_included_within_itself_a_thousand_times_at_most() {
    on_a_large_stack(|| {
        let nested = |levels: usize| {
            format!(
                "{{{{ define \"t\" }}}}{{{{ if gt . 1 }}}}{{{{ include \"t\" (sub . 1) }}}}{{{{ end }}}}{{{{ end }}}}\
                 {{{{ include \"t\" {levels} }}}}done"
            )
        };
        assert_eq!(render(&nested(1001), &context()), "done");
        let failure = failure(&nested(1002), &context());
        let ending = "rendering template has a nested reference name: t: unable to execute template";
        assert!(failure.ends_with(ending), "{failure}");
        // Only active includes count, not finished ones.
        let context = context();
        assert_eq!(
            render(
                "{{ define \"t\" }}.{{ end }}{{ range until 1500 }}{{ include \"t\" . }}{{ end }}",
                &context
            )
            .len(),
            1500
        );
    });
}

#[test]
fn a_text_that_calls_tpl_on_itself_ends_in_an_error() {
    on_a_large_stack(|| {
        let failure = failure(
            "{{ $t := \"{{ tpl .t . }}\" }}{{ tpl $t (dict \"t\" $t) }}",
            &context(),
        );
        assert!(
            failure.ends_with("tpl is nested more than 100 levels deep"),
            "{failure}"
        );
    });
}

#[test]
fn refusals_of_a_chart_can_be_told_from_other_errors() {
    let context = context();
    let mut error: &dyn std::error::Error = &try_render("{{ fail \"no way\" }}", &context).unwrap_err();
    let refusal = loop {
        match error.downcast_ref::<functions::Refusal>() {
            Some(refusal) => break refusal,
            None => error = error.source().unwrap(),
        }
    };
    assert_eq!(refusal.message, "no way");
}

#[test]
fn no_call_creates_more_than_its_limit() {
    for text in [
        "{{ repeat 100000000 \"ab\" }}",
        "{{ until 100000000 }}",
        "{{ seq 100000000 }}",
        "{{ indent 100000000 \"a\" }}",
        "{{ randAlphaNum 100000000 }}",
        "{{ replace \"\" (repeat 1000000 \"x\") (repeat 1000 \"y\") }}",
    ] {
        assert!(try_render(text, &context()).is_err(), "{text}");
    }
}
