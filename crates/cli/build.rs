//! Links `kco` at a fixed address if it is linked statically, as Helm's own binary is. At any other address, each start
//! adjusts a megabyte of pointers: half a millisecond of the three that a small chart takes. With `RUST_BACKTRACE` set, an
//! error takes ten milliseconds longer than at any address.

const ARGS: [&str; 2] = ["-no-pie", "-static"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if is("OS", "linux") && is("ENV", "gnu") && is("FEATURE", "crt-static") {
        for arg in ARGS {
            println!("cargo::rustc-link-arg-bin=kco={arg}");
        }
    }
}

/// True if this property of the target has the value, or contains it.
fn is(property: &str, value: &str) -> bool {
    let found = std::env::var(format!("CARGO_CFG_TARGET_{property}"));
    found.is_ok_and(|found| found.split(',').any(|found| found == value))
}
