#!/usr/bin/env bash
# The cost of a first try: `make demo` and `make demo-down` in a clean clone with nothing built, fetched or cached, step by
# step. Prints seconds and CPU-minutes of each step, without the programs of the cluster.
set -euo pipefail
# Times are printed, and read again, with a decimal point.
export LC_ALL=C
cd "$(dirname "$0")/.."

folder=$(mktemp --directory)
# Go's modules are read-only.
trap '[ -z "${started:-}" ] || "$folder"/target/*/debug/local-cluster down --name demo >&2 || true; chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
git clone --quiet --no-local . "$folder/clone"

# The address of the crates registry is configuration, not a cache.
mkdir "$folder/cargo"
config="${CARGO_HOME:-$HOME/.cargo}/config.toml"
if [ -f "$config" ]; then cp "$config" "$folder/cargo/"; fi
export CARGO_HOME="$folder/cargo" CARGO_TARGET_DIR="$folder/target"
export GOCACHE="$folder/go/build" GOMODCACHE="$folder/go/modules"
export XDG_CACHE_HOME="$folder/cache" XDG_STATE_HOME="$folder/state"
unset LOCAL_CLUSTER_CACHE LOCAL_CLUSTER_STATE

# Processor seconds of programs that were started here and have exited.
used() {
    times > "$folder/times"
    awk 'NR == 2 { gsub("s", ""); split($1, own, "m"); split($2, kernel, "m"); print (own[1] + kernel[1]) * 60 + own[2] + kernel[2] }' "$folder/times"
}

rows=
# Arguments: a target, and its description.
step() {
    local started=$SECONDS before after
    before=$(cat "$folder/used" 2>/dev/null || echo 0)
    echo "first contact: $2" >&2
    make --no-print-directory --directory "$folder/clone" "$1" >&2
    used > "$folder/used"
    after=$(cat "$folder/used")
    rows+=$(awk -v seconds=$((SECONDS - started)) -v before="$before" -v after="$after" -v what="$2" \
        'BEGIN { printf "%6d s %6.1f CPU-minutes  %s", seconds, (after - before) / 60, what }')$'\n'
}

step demo-parts "parts of a Kubernetes"
step demo-programs "our programs"
started=yes
step demo "the demo"
step demo-down "its end"
started=
printf '%s%6d s %6.1f CPU-minutes  all of it\n' "$rows" "$SECONDS" "$(awk '{ print $1 / 60 }' "$folder/used")"
