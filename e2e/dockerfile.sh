#!/usr/bin/env bash
# Builds the stage `image` of the Dockerfile, which compiles, with buildah for every program. Its base is made here, with a
# fake cargo that records its arguments instead of compiling. Checks what each image contains and runs. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
buildah=(buildah --storage-driver vfs --root "$folder/images" --runroot "$folder/run")
build() { "${buildah[@]}" build --quiet --isolation chroot --layers=false "$@" > /dev/null; }

# The programs that the stage needs in its base.
base=$folder/base
mkdir -p "$base"/{bin,tmp,etc/ssl/certs}
for tool in sh sed cp ln mkdir; do
    path=$(command -v "$tool")
    cp --dereference "$path" "$base/bin/$tool"
    for library in $(ldd "$path" | grep -o '/[^ ]*'); do install -D "$library" "$base$library"; done
done
echo authorities > "$base/etc/ssl/certs/ca-certificates.crt"
printf '#!/bin/sh\necho "host: %s"\n' "$(rustc -vV | sed -n 's/^host: //p')" > "$base/bin/rustc"
cat > "$base/bin/cargo" <<'CARGO'
#!/bin/sh
set -eu
asked="$RUSTUP_TOOLCHAIN $RUSTFLAGS $*"
while [ $# -gt 0 ]; do
    case "$1" in --target) target=$2;; --bin) programs="${programs:-} $2";; esac
    shift
done
mkdir -p "target/$target/release"
for program in $programs; do echo "$program: $asked" > "target/$target/release/$program"; done
CARGO
chmod +x "$base/bin/"*
printf 'FROM scratch\nCOPY . /\nENV PATH=/bin RUST_VERSION=1.95.0\n' > "$folder/Base"
build --file "$folder/Base" --tag localhost/rust "$base"

fail() { echo "$*" >&2; exit 1; }
count=0
for program in $(sed -n '/const IMAGES/,/];/p' e2e/dist/src/assembly.rs | grep -o '"[^"]*"' | tr -d '"'); do
    build --build-arg RUST_IMAGE=localhost/rust --build-arg PROGRAM="$program" --tag "localhost/$program" --file Dockerfile .
    container=$("${buildah[@]}" from "localhost/$program")
    root=$("${buildah[@]}" mount "$container")
    files=$(cd "$root" && find . -type f | sort | tr '\n' ' ')
    [ "$files" = "./etc/ssl/certs/ca-certificates.crt ./program " ] || fail "$program: its image holds $files"
    case $program in core-provider | composition-dynamic-controller | chart-inspector) file=programs ;; *) file=$program ;; esac
    grep -q "^$file: 1.95.0 -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs build --locked --workspace --release --features jemalloc" "$root/program" \
        || fail "$program: was built by $(cat "$root/program")"
    runs=$("${buildah[@]}" inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.Config.Env}}' "localhost/$program")
    case $runs in "[/program] 65532:65532 ["*"PROGRAM=$program]") ;; *) fail "$program: its image runs $runs" ;; esac
    count=$((count + 1))
done
echo "$count images built by the Dockerfile"
