//! core-provider, composition-dynamic-controller and chart-inspector in one file: processes share memory only if they run
//! the same file, and most of the memory of an idle program is its own code.
//!
//! The variable `PROGRAM`, which images set, says which of them to run; without it, the name by which the file is called.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Result, bail};

const VARIABLE: &str = "PROGRAM";

type Main = fn() -> Result<()>;

const PROGRAMS: [(&str, Main); 3] = [
    ("core-provider", core_provider::main),
    (
        "composition-dynamic-controller",
        composition_dynamic_controller::main,
    ),
    ("chart-inspector", chart_inspector::main),
];

fn main() -> Result<()> {
    let named = std::env::var_os(VARIABLE).or_else(|| std::env::args_os().next());
    program(&named.unwrap_or_default())?()
}

/// The program of this name, which may be a path.
fn program(name: &OsStr) -> Result<Main> {
    let name = Path::new(name).file_name().unwrap_or_default();
    let found = PROGRAMS.iter().find(|(program, _)| name == *program);
    let Some((_, main)) = found else {
        let all = PROGRAMS.map(|(program, _)| program).join(", ");
        bail!(
            "there is no program {}: set {VARIABLE} to one of {all}, or call this file by that name",
            name.display()
        );
    };
    Ok(*main)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_path() {
        for (name, main) in PROGRAMS {
            for called in [name.to_owned(), format!("/usr/bin/{name}")] {
                let found = program(OsStr::new(&called)).unwrap();
                assert!(std::ptr::fn_addr_eq(found, main), "{called}");
            }
        }
        let error = program(OsStr::new("/program")).unwrap_err().to_string();
        assert!(error.contains("no program program: set PROGRAM"), "{error}");
    }
}
