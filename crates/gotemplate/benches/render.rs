//! Parses and renders the templates of `benches/chart`; `tests/go/bench` does the same with Go's engine.
#![expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]
#![allow(clippy::print_stdout, reason = "this is what a benchmark is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use gostd::quote;
use gotemplate::{
    exec::{MissingKey, Options},
    format,
    function::{Call, Error, Functions, Rest},
    json::{self, Numbers},
    set::Set,
    string::Str,
    value::{Map, Value},
};

const HELPERS: &str = include_str!("chart/_helpers.tpl");
const DEPLOYMENT: &str = include_str!("chart/deployment.yaml");
const VALUES: &str = include_str!("chart/values.json");

fn main() {
    let functions = functions();
    let set = parse(&functions);
    let data = json::from_json(serde_json::from_str(VALUES).unwrap(), Numbers::Float64);
    let options = Options {
        missing_key: MissingKey::Zero,
        ..Options::default()
    };
    let out = set.execute("deployment.yaml", data.clone(), &options).unwrap();
    if let Some(path) = std::env::var_os("OUT") {
        std::fs::write(path, &out).unwrap();
    }
    println!("output  {} bytes", out.len());
    time("parse", || drop(black_box(parse(&functions))));
    time("render", || {
        drop(black_box(
            set.execute("deployment.yaml", data.clone(), &options).unwrap(),
        ));
    });
}

/// The fastest of many rounds.
fn time(name: &str, mut run: impl FnMut()) {
    let mut best = Duration::MAX;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..100 {
            run();
        }
        best = best.min(start.elapsed() / 100);
    }
    println!("{name:7} {best:?}");
}

fn parse(functions: &Functions) -> Set {
    let mut set = Set::new("gotpl", functions.clone());
    set.parse("_helpers.tpl", HELPERS).unwrap();
    set.parse("deployment.yaml", DEPLOYMENT).unwrap();
    set
}

fn functions() -> Functions {
    let mut f = Functions::default();
    f.add("include", |call: &mut Call, name: Str, data: Value| {
        call.execute(&name, data)
    });
    f.add(
        "tpl",
        |call: &mut Call, text: Str, data: Value| -> Result<String, Error> {
            Ok(call.execute_text(&text, data)?.lossy().replace("<no value>", ""))
        },
    );
    f.add("dict", |pairs: Rest<Value>| {
        let map = Map::new();
        for [key, value] in pairs.as_chunks::<2>().0 {
            map.insert(key.as_str().cloned().unwrap_or_default(), value.clone());
        }
        map
    });
    f.add("default", |fallback: Value, given: Rest<Value>| {
        given.into_iter().next().filter(Value::truth).unwrap_or(fallback)
    });
    f.add("trunc", |n: i64, text: Str| {
        Str::from(&text[..text.len().min(n as usize)])
    });
    f.add("trimSuffix", |suffix: Str, text: Str| {
        text.strip_suffix(&*suffix)
            .map_or_else(|| text.clone(), Str::from)
    });
    f.add("contains", |part: Str, text: Str| {
        text.to_str()
            .zip(part.to_str())
            .is_some_and(|(text, part)| text.contains(part))
    });
    f.add("quote", |items: Rest<Value>| -> Result<Str, Error> {
        let mut out = Vec::new();
        for item in items.iter().filter(|item| !item.is_untyped_nil()) {
            if !out.is_empty() {
                out.push(b' ');
            }
            quote::append_quoted(&mut out, &format::to_string(item)?, false);
        }
        Ok(out.into())
    });
    f.add("nindent", |n: i64, text: Str| {
        let mut out = Vec::with_capacity(text.len() * 2);
        for line in text.split(|byte| *byte == b'\n') {
            out.push(b'\n');
            out.resize(out.len() + n as usize, b' ');
            out.extend_from_slice(line);
        }
        Str::from(out)
    });
    f
}
