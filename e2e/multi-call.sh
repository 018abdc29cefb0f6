#!/usr/bin/env bash
# Builds core-provider, chart-inspector and composition-dynamic-controller of the last commit as one program, which the
# variable PROGRAM turns into each of them: `make image-memory` compares it with the three. The argument is the output file.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath --canonicalize-missing "$1")
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")

folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
git archive HEAD | tar -x -C "$folder"
cd "$folder"
mkdir -p e2e/multi-call/src
sed -i 's|^members = \[|members = ["e2e/multi-call", |' Cargo.toml
{
    printf '[package]\nname = "multi-call"\nversion.workspace = true\nedition.workspace = true\n\n[dependencies]\nanyhow = { workspace = true }\n'
} > e2e/multi-call/Cargo.toml
{
    echo 'fn main() -> anyhow::Result<()> {'
    echo '    match std::env::var("PROGRAM")?.as_str() {'
} > e2e/multi-call/src/main.rs
for program in core-provider composition-dynamic-controller chart-inspector; do
    # Turns the program into a library whose only function is its main.
    sed -i 's/^async fn main()/pub async fn main()/' "$program/src/main.rs"
    printf '\n[lib]\npath = "src/main.rs"\n' >> "$program/Cargo.toml"
    sed -i '0,/^name = .*/s//&\nautobins = false/' "$program/Cargo.toml"
    echo "$program = { path = \"../../$program\" }" >> e2e/multi-call/Cargo.toml
    echo "        \"$program\" => ${program//-/_}::main()," >> e2e/multi-call/src/main.rs
done
{
    echo '        other => anyhow::bail!("there is no program {other}"),'
    echo '    }'
    echo '}'
} >> e2e/multi-call/src/main.rs
CARGO_TARGET_DIR=$target cargo build --offline --workspace --release --features jemalloc --bin multi-call
install -D "$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release/multi-call" "$out"
