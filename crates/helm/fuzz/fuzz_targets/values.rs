//! Parses arbitrary bytes as a values file and as input of `fromYaml`, and writes the result again.
#![no_main]

use gotemplate::value::{CycleGuard, Value};
use helm::{values, yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let _guard = CycleGuard::new();
    drop(values::read_first(text));
    if let Ok(table) = values::read(text)
        && let Ok(written) = yaml::to_string(&table.into())
    {
        // Not every text survives the round trip (nor does it in Go); the output must parse or be rejected.
        drop(yaml::parse(written.as_bytes()));
    }
    drop(yaml::parse_all(text));
    drop(yaml::parse_strict(text));
    drop(yaml::template_list(text));
    if let Ok(map) = yaml::template_map(text) {
        drop(yaml::to_yaml(&Value::Map(map.clone())));
        drop(yaml::to_yaml_pretty(&Value::Map(map)));
    }
});
