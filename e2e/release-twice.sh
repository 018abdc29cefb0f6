#!/usr/bin/env bash
# The release of the last commit, made in two clean clones that lie in different folders, with nothing built in either.
# Prints each file that differs, and how many are equal. With QUICK programs are built without optimisation, which is
# most of the work: paths, times and orders get into them as before, but what only the optimiser makes differ is not seen.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-0.0.1}
commit=$(git rev-parse HEAD)

folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
# Each clone builds in its own folder.
unset CARGO_TARGET_DIR
how=
if [ -n "${QUICK:-}" ]; then
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    how=" (programs without optimisation)"
fi
key=${SIGN_KEY:-}
if [ -z "$key" ]; then
    key=$folder/key.pem
    openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$key"
fi

# Arguments: a clone, and the folder for its release.
release() {
    local started=$SECONDS
    mkdir -p "$(dirname "$1")"
    git clone --quiet --no-local . "$1"
    git -C "$1" checkout --quiet --detach "$commit"
    make --no-print-directory --directory "$1" release VERSION="$version" OUT="$2" SIGN_KEY="$(realpath "$key")" SUBCHARTS= >&2
    rm -rf "$1"
    echo "release twice: $2 after $((SECONDS - started)) s" >&2
}

release "$folder/clone" "$folder/one"
release "$folder/further/down/another-clone" "$folder/another"

files=0 equal=0
while IFS= read -r name; do
    files=$((files + 1))
    if cmp --silent "$folder/one/$name" "$folder/another/$name"; then
        equal=$((equal + 1))
    else
        echo "differs: $name"
    fi
done < <(ls -A "$folder/one" "$folder/another" | grep -v -e '^/' -e '^$' | sort -u)
echo "$files files, $equal equal$how"
[ "$files" -gt 0 ] && [ "$files" -eq "$equal" ]
