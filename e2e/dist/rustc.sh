#!/bin/sh
# Cargo calls this instead of rustc. It maps paths of this machine to paths that are the same on every machine. If the
# mapping were in RUSTFLAGS, it would change the names of cargo's folders, which appear in programs with generated code.
exec "$@" \
    --remap-path-prefix="$DIST_CARGO=/cargo" \
    --remap-path-prefix="$DIST_REGISTRY=/cargo/registry" \
    --remap-path-prefix="$DIST_TARGET=/target" \
    --remap-path-prefix="$DIST_SOURCE=/source"
