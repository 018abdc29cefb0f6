//! Runs arbitrary bytes through lexer, parser and the printing of nodes.
#![no_main]

use gotemplate::{function::Functions, set::Set};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let mut set = Set::new("main", Functions::default());
    match set.parse("test", text) {
        Ok(()) => set.trees().for_each(|tree| drop(tree.root.to_string())),
        Err(error) => drop(error.to_string()),
    }
});
