//! composition-dynamic-controller alone, for work on it and for tests without pods. In images and releases, one file has all programs
//! (`crates/programs`).

fn main() -> anyhow::Result<()> {
    composition_dynamic_controller::main()
}
