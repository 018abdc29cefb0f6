//! Validates any JSON as a spec against any JSON as a chart's schema: a chart's author controls the schema, a tenant
//! the spec. The first empty line separates them.
#![no_main]

use composition::schema;
use crdgen::BadDefaults;
use helm::chart::{Chart, ChartOptions, File};
use helm::engine::Engine;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let (document, spec) = text.split_once("\n\n").unwrap_or((text, "{}"));
    let Ok(Value::Object(spec)) = serde_json::from_str(spec) else { return };
    let files = vec![
        File::new("Chart.yaml", b"apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        File::new("values.yaml", b"a: 1\n"),
        File::new("values.schema.json", document.as_bytes()),
    ];
    let Ok(chart) = Chart::from_files(files, ChartOptions::default()) else { return };
    let engine = Engine::new(chart);
    if let Ok(checked) = engine.check(&spec) {
        drop(checked.violations);
    }
    match schema::structural(&engine, BadDefaults::Drop) {
        Ok(Some(structural)) => {
            let read = schema::read_by(&structural.spec, &Value::Object(spec));
            drop(schema::unknown_keys(&structural.spec, &engine.chart().values(), &read));
        }
        Ok(None) => {}
        Err(error) => drop(error.to_string()),
    }
});
