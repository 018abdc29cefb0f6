//! Charts that exceed the limits of a render: each is aborted with an error that names the limit, the template and
//! the line.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gotemplate::exec::{Limit, Limits};
use helm::capabilities::Capabilities;
use helm::chart::{self, Chart, File};
use helm::context::{Context, Deadline};
use helm::engine::{Engine, Error, Operation, ReleaseOptions, RenderOptions};
use jiff::Timestamp;
use serde_json::Map;

fn chart(files: &[(&str, &str)]) -> Engine {
    let manifest = ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    let has_manifest = files.iter().any(|(name, _)| *name == manifest.0);
    let files = files.iter().chain((!has_manifest).then_some(&manifest));
    let files = files.map(|(name, data)| File::new((*name).to_owned(), data.as_bytes()));
    Engine::new(Chart::from_files(files.collect(), &chart::Limits::default()).unwrap())
}

fn options() -> RenderOptions {
    let release = ReleaseOptions {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        revision: 1,
        operation: Operation::Install,
    };
    // Keys need different bytes each time, or no prime is ever found among them.
    let mut state: u64 = 7;
    let context = Context::new(Timestamp::UNIX_EPOCH, move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
    });
    RenderOptions::new(release, Capabilities::default(), context)
}

/// The limit that a chart's templates exceed, and the error message.
fn cut_off(engine: &Engine, options: &RenderOptions) -> (Limit, String) {
    match engine.render(&Map::new(), options) {
        Err(Error::Template(failure)) => match failure.limit {
            Some(limit) => (limit, failure.to_string()),
            None => panic!("it fails otherwise: {failure}"),
        },
        Err(error) => panic!("it fails otherwise: {error}"),
        Ok(rendered) => panic!("it renders {:.300}", rendered.manifest_text()),
    }
}

/// Limits that a test reaches quickly, even without optimisation.
fn low() -> RenderOptions {
    let mut options = options();
    options.limits.steps = 3_000_000;
    options
}

const STEPS: Limit = Limit::Steps(3_000_000);

fn check(template: &str, options: &RenderOptions, limit: Limit, what: &str) {
    let engine = chart(&[("templates/x.yaml", &format!("\n\n{template}\n"))]);
    let (found, message) = cut_off(&engine, options);
    assert_eq!(found, limit, "{template}: {message}");
    assert!(
        message.starts_with(&format!("template web/templates/x.yaml:3: the render {what}")),
        "{template}: {message}"
    );
}

#[test]
fn renders_that_take_long_are_aborted() {
    for template in [
        "{{ range 1000000000 }}{{ end }}",
        r#"{{ range 1000000000 }}{{ htpasswd "a" "b" }}{{ end }}"#,
        r#"{{ range 1000000000 }}{{ bcrypt "b" }}{{ end }}"#,
        r#"{{ range 1000000000 }}{{ derivePassword 1 "long" "a" "b" "c" }}{{ end }}"#,
        r#"{{ range 1000000000 }}{{ genPrivateKey "rsa" }}{{ end }}"#,
        r#"{{ range 1000000000 }}{{ $ca := genCA "a" 1 }}{{ end }}"#,
        r#"{{ range 1000000000 }}{{ $x := regexMatch "(a{1,500}){1,20}b" "aaaaaaaa" }}{{ end }}"#,
        r#"{{ range $i := until 1000000 }}{{ $x := regexMatch (printf "a{%d}{3}" (mod $i 300)) "a" }}{{ end }}"#,
        r#"{{ $x := repeat 1000000 "a" }}{{ range 100000 }}{{ $y := contains "b" $x }}{{ end }}"#,
        r"{{ $x := until 100000 }}{{ range 100000 }}{{ $y := $x | has 100001 }}{{ end }}",
        r#"{{ $x := repeat 100000 "{" }}{{ range 1000000 }}{{ $y := fromJson $x }}{{ end }}"#,
    ] {
        check(template, &low(), STEPS, "takes more than 3000000 steps");
    }
}

#[test]
fn renders_that_use_much_memory_are_aborted() {
    let mut options = options();
    options.limits.memory = 32 << 20;
    for template in [
        r#"{{ $x := list }}{{ range 1400 }}{{ $x = append $x (repeat 6710886 "a") }}{{ end }}"#,
        r#"{{ $x := repeat 1000000 "a" }}{{ range 400 }}{{ $y := print $x $x }}{{ end }}"#,
        r#"{{ $x := repeat 60000000 "a" }}{{ $y := repeat 60000000 "b" }}{{ $z := repeat 60000000 "c" }}"#,
        r#"{{ $x := "a" }}{{ range 64 }}{{ $x = join "," (list $x $x) }}{{ end }}"#,
        r#"{{ $x := repeat 100000 "a" }}{{ $y := repeat 100000 "b" }}{{ replace "a" $y $x }}"#,
        r#"{{ $x := repeat 100000 "a" }}{{ regexReplaceAll "a" $x $x }}"#,
        r#"{{ $x := list "a" }}{{ range 40 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}"#,
        r#"{{ $x := list "a" }}{{ range 40 }}{{ $x = list $x $x }}{{ end }}{{ toYaml $x }}"#,
        r"{{ $x := until 100000 }}{{ range 100 }}{{ $y := deepCopy $x }}{{ end }}",
        r#"{{ $x := list "a" }}{{ range 40 }}{{ $x = concat $x $x }}{{ end }}"#,
        r#"{{ $x := repeat 1000000 "a," }}{{ range 100 }}{{ $y := splitList "," $x }}{{ end }}"#,
        r#"{{ $x := repeat 500000 "\n" }}{{ range 10 }}{{ $y := indent 60 $x }}{{ end }}"#,
        r"{{ range 200 }}{{ $x := until 900000 }}{{ end }}",
    ] {
        check(
            template,
            &options,
            Limit::Memory(32 << 20),
            "creates strings, lists and maps of more than",
        );
    }
}

#[test]
fn renders_that_print_much_are_aborted() {
    let output = Limit::Output(Limits::default().output);
    check(
        "{{ $x := repeat 100000 \"a\" }}{{ range 100000 }}{{ $x }}{{ end }}",
        &options(),
        output,
        "prints more than",
    );
    // Files count together.
    let half = format!("{{{{ repeat {} \"a\" }}}}", Limits::default().output * 2 / 3);
    let engine = chart(&[("templates/a.yaml", &half), ("templates/b.yaml", &half)]);
    let (limit, message) = cut_off(&engine, &options());
    assert_eq!(limit, output, "{message}");
    assert!(
        message.starts_with("template web/templates/a.yaml:1: "),
        "{message}"
    );
}

#[test]
fn output_that_takes_much_memory_as_objects_is_refused() {
    let engine = chart(&[("templates/x.yaml", r#"a: [{{ repeat 3000000 "[]," }}]"#)]);
    let (limit, message) = cut_off(&engine, &options());
    assert_eq!(limit, Limit::Memory(Limits::default().memory));
    assert!(
        message.ends_with("in total, including the objects that it prints"),
        "{message}"
    );
}

#[test]
fn nested_templates_share_the_budget() {
    let helpers = "{{ define \"a\" }}\n{{ range 1000000000 }}{{ end }}{{ end }}\
        {{ define \"fork\" }}{{ if . }}{{ include \"fork\" (rest .) }}{{ include \"fork\" (rest .) }}{{ end }}{{ end }}";
    let file = "web/templates/x.yaml:2";
    for (template, place, deeper) in [
        (r#"{{ include "a" . }}"#, file, ", at web/templates/_h.tpl:2"),
        // Go names the innermost place only.
        (r#"{{ template "a" . }}"#, "web/templates/_h.tpl:2", "too often"),
        (
            r#"{{ include "fork" (until 60) }}"#,
            file,
            ", at web/templates/_h.tpl:2",
        ),
        (
            r#"{{ tpl "\n{{ range 1000000000 }}{{ end }}" . }}"#,
            file,
            ", at gotpl:2",
        ),
    ] {
        let engine = chart(&[
            ("templates/_h.tpl", helpers),
            ("templates/x.yaml", &format!("\n{template}")),
        ]);
        let mut options = low();
        options.limits.stack = 1 << 30;
        options.limits.steps = 300_000;
        let outcome = on_a_large_stack(move || engine.render(&Map::new(), &options).unwrap_err());
        let Error::Template(failure) = &outcome else {
            panic!("{outcome}")
        };
        let message = failure.to_string();
        assert_eq!(failure.limit, Some(Limit::Steps(300_000)), "{message}");
        assert!(
            message.starts_with(&format!(
                "template {place}: the render takes more than 300000 steps"
            )),
            "{template}: {message}"
        );
        assert!(message.ends_with(deeper), "{template}: {message}");
    }
}

fn on_a_large_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(1 << 28).spawn(work);
    thread.unwrap().join().unwrap()
}

#[test]
fn subcharts_share_the_budget() {
    let many = "{{ range 40000 }}{{ $x := 1 }}{{ end }}";
    let mut files = vec![("templates/x.yaml".to_owned(), many.to_owned())];
    for name in ["a", "b", "c"] {
        files.push((
            format!("charts/{name}/Chart.yaml"),
            format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"),
        ));
        files.push((format!("charts/{name}/templates/x.yaml"), many.to_owned()));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let engine = chart(&files);
    let mut options = options();
    assert!(engine.render(&Map::new(), &options).is_ok());
    options.limits.steps = 300_000;
    let (limit, message) = cut_off(&engine, &options);
    assert_eq!(limit, Limit::Steps(300_000));
    assert!(message.starts_with("template web/"), "{message}");
}

#[test]
fn a_render_ends_when_its_time_is_over() {
    // The deadline is checked before each function, and none comes near the limit of steps.
    for template in [
        "{{ range 1000000000 }}{{ end }}",
        r#"{{ range 60 }}{{ $x := genPrivateKey "ed25519" }}{{ end }}"#,
    ] {
        let asked = AtomicUsize::new(0);
        let is_over = move || asked.fetch_add(1, Ordering::Relaxed) >= 20;
        let engine = chart(&[("templates/x.yaml", &format!("\n\n{template}"))]);
        let mut options = options();
        options.context = options
            .context
            .with_deadline(Deadline::new(Duration::from_secs(20), is_over));
        let (limit, message) = cut_off(&engine, &options);
        assert_eq!(limit, Limit::Time(Duration::from_secs(20)));
        assert_eq!(
            message,
            "template web/templates/x.yaml:3: the render takes longer than 20s"
        );
    }
}

#[test]
fn a_limit_cannot_be_caught() {
    // The function call swallows the error; the render ends all the same.
    let template = "{{ $x := repeat 900 \"[\" }}{{ range 1000000 }}{{ $y := fromYaml (toYaml (dict \"x\" $x)) }}{{ end }}";
    check(template, &low(), STEPS, "takes more than 3000000 steps");
}

/// A chart that contains itself, declared under two names at each level.
fn doubling(levels: usize) -> Engine {
    let mut files = Vec::new();
    let mut path = String::new();
    for level in 0..levels {
        let name = if level == 0 { "web" } else { "d" };
        let manifest = format!(
            "apiVersion: v2\nname: {name}\nversion: 1.0.0\n\
             dependencies: [{{name: d, alias: a, version: 1.0.0}}, {{name: d, alias: b, version: 1.0.0}}]\n"
        );
        files.push(File::new(format!("{path}Chart.yaml"), manifest));
        path += "charts/d/";
    }
    Engine::new(Chart::from_files(files, &chart::Limits::default()).unwrap())
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[test]
fn charts_that_double_with_each_level_are_refused() {
    assert!(doubling(6).render(&Map::new(), &options()).is_ok());
    let error = doubling(30).render(&Map::new(), &options()).unwrap_err();
    assert_eq!(
        chain(&error),
        "chart dependencies processing failed: the chart has more than 5000 subcharts, where each counts once for every \
         name it is declared under and for every chart that contains it"
    );
}

#[test]
fn the_values_of_charts_count_for_each_name() {
    let names = (0..100).map(|at| format!("{{name: d, alias: a{at}, version: 1.0.0}}"));
    let manifest = format!(
        "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{}]\n",
        names.collect::<Vec<_>>().join(", ")
    );
    let values = |length: usize| format!("text: {}\n", "a".repeat(length));
    let globals = |length: usize| format!("global: {{text: {}}}\n", "a".repeat(length));
    for (of_subchart, of_chart, fits) in [
        (values(100_000), String::new(), true),
        (values(1_000_000), String::new(), false),
        (String::new(), globals(1_000_000), false),
        (String::new(), values(1_000_000), true),
    ] {
        let engine = chart(&[
            ("Chart.yaml", &manifest),
            ("values.yaml", &of_chart),
            ("charts/d/Chart.yaml", "apiVersion: v2\nname: d\nversion: 1.0.0\n"),
            ("charts/d/values.yaml", &of_subchart),
        ]);
        match engine.render(&Map::new(), &options()) {
            Ok(_) => assert!(fits),
            Err(error) => assert!(
                !fits && chain(&error).contains("take more than 64 MiB"),
                "{error}"
            ),
        }
    }
}
