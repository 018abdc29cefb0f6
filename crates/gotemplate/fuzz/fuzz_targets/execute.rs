//! Executes arbitrary bytes as a template, with the data and functions of the tests.
#![no_main]

#[path = "../../tests/oracle/mod.rs"]
mod oracle;

use gotemplate::{
    exec::{Limits, MissingKey, Options},
    json::{self, Numbers},
    set::Set,
    value::CycleGuard,
};
use libfuzzer_sys::fuzz_target;

const DATA: &str = r#"{"a":{"x":"X","y":{"z":1}},"b":true,"e":"","f":1.5,"l":[1,2,"three",null],"n":1,"null":null,"s":"text é"}"#;

fuzz_target!(|text: &[u8]| {
    let _guard = CycleGuard::new();
    let mut set = Set::new("main", oracle::functions());
    if set.parse("test", text).is_err() {
        return;
    }
    let data = json::from_json(serde_json::from_str(DATA).unwrap(), Numbers::Float64);
    let limits = Limits { depth: 100, output: 1 << 20, steps: 20_000, memory: 64 << 20, ..Limits::default() };
    let options = Options { missing_key: MissingKey::Zero, limits, ..Options::default() };
    if let Err(error) = set.execute("test", data, &options) {
        drop(error.to_string());
    }
});
