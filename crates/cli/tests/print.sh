#!/bin/sh
# Prints the goldens again: the output of the real Helm for the command lines in cases.txt; 4.3.1 into `golden`, 3.22.0
# into `golden_helm3`. Usage: print.sh [HELM [HELM3]]
set -uf
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../helm/tests/charts" || exit 1
print_all() {
    helm=$1 version=$2 goldens=$here/$3
    "$helm" version --short | grep -q "^v$version" || { echo "helm $version is needed" >&2; exit 1; }
    rm -rf "$goldens" && mkdir "$goldens"
    grep -v '^#' "$here/cases.txt" | while read -r name arguments; do
        # The arguments hold no spaces and no quotes; they are split at spaces and nowhere else.
        # shellcheck disable=SC2086
        "$helm" template $arguments > "$goldens/$name.txt" 2> "$here/err.tmp" < /dev/null
        echo "exit $?" >> "$goldens/$name.txt"
        sed -n '/^Error:/,$p' "$here/err.tmp" >> "$goldens/$name.txt"
    done
    rm -f "$here/err.tmp"
}
print_all "${1:-helm}" 4.3.1 golden
print_all "${2:-helm3}" 3.22.0 golden_helm3
