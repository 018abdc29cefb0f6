//! chart-inspector alone, for work on it and for tests without pods. Images and releases
//! contain it in one file with others: `crates/programs`.

fn main() -> anyhow::Result<()> {
    chart_inspector::main()
}
