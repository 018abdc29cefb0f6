#!/bin/sh
# Prints the goldens again: what the real helms make of every chart here, with its defaults and with each file of its
# folder `cases`; 4.3.1 into `golden`, 3.22.0 into `golden_helm3`. Usage: print.sh [HELM [HELM3]]
set -u
cd "$(dirname "$0")" || exit 1
print() {
    if ! "$helm" template golden "$1" --namespace spaced --include-crds ${3:+--values "$3"} > out.tmp 2> err.tmp; then
        sed -n '/^Error:/,$p' err.tmp | sed '/^Use --debug flag/d' > out.tmp
    fi
    mkdir -p "../$goldens/$1" && mv out.tmp "../$goldens/$1/$2.txt"
}
print_all() {
    helm=$1 version=$2 goldens=$3
    "$helm" version --short | grep -q "^v$version" || { echo "helm $version is needed" >&2; exit 1; }
    rm -rf "../$goldens"
    for chart in */; do
        chart=${chart%/}
        print "$chart" default
        for values in "$chart"/cases/*.yaml; do
            [ -e "$values" ] && print "$chart" "$(basename "$values" .yaml)" "$values"
        done
    done
    rm -f out.tmp err.tmp
}
print_all "${1:-helm}" 4.3.1 golden
print_all "${2:-helm3}" 3.22.0 golden_helm3
