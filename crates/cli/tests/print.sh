#!/bin/sh
# Prints the goldens again: what the real helm (4.3.1) makes of the command lines in cases.txt. Usage: print.sh [HELM]
set -uf
helm=${1:-helm}
here=$(cd "$(dirname "$0")" && pwd)
"$helm" version --short | grep -q '^v4\.3\.1' || { echo "helm 4.3.1 is needed" >&2; exit 1; }
rm -rf "$here/golden" && mkdir "$here/golden"
cd "$here/../../helm/tests/charts" || exit 1
grep -v '^#' "$here/cases.txt" | while read -r name arguments; do
    # The arguments hold no spaces and no quotes; they are split at spaces and nowhere else.
    # shellcheck disable=SC2086
    "$helm" template $arguments > "$here/golden/$name.txt" 2> "$here/err.tmp" < /dev/null
    echo "exit $?" >> "$here/golden/$name.txt"
    sed -n '/^Error:/,$p' "$here/err.tmp" >> "$here/golden/$name.txt"
done
rm -f "$here/err.tmp"
