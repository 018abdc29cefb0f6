#!/bin/sh
# Cargo calls this in place of rustc. Paths of this machine become those that are the same on every machine. As RUSTFLAGS
# they would be part of what cargo names its folders by, and those names stand in programs that include generated code.
exec "$@" \
    --remap-path-prefix="$DIST_CARGO=/cargo" \
    --remap-path-prefix="$DIST_REGISTRY=/cargo/registry" \
    --remap-path-prefix="$DIST_TARGET=/target" \
    --remap-path-prefix="$DIST_SOURCE=/source"
