//! Formats with arbitrary bytes as the format string.
#![no_main]

use gotemplate::{format, value::Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    // Widths of a million are slow to print and known to work.
    if text.windows(4).any(|window| window.iter().all(u8::is_ascii_digit)) {
        return;
    }
    let values = [Value::Int(-3), Value::Float64(1e6), "text \u{e9}\n".into(), Value::Nil, Value::list([1i64.into(), "a".into()])];
    drop(format::sprintf(text, &values));
});
