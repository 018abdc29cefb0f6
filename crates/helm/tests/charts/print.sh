#!/bin/sh
# Prints the goldens again: what the real helm (4.3.1) makes of every chart here, with its defaults and with each
# file of its folder `cases`. Usage: print.sh [HELM]
set -u
helm=${1:-helm}
cd "$(dirname "$0")" || exit 1
"$helm" version --short | grep -q '^v4\.3\.1' || { echo "helm 4.3.1 is needed" >&2; exit 1; }
print() {
    if ! "$helm" template golden "$1" --namespace spaced --include-crds ${3:+--values "$3"} > out.tmp 2> err.tmp; then
        sed -n '/^Error:/,$p' err.tmp | sed '/^Use --debug flag/d' > out.tmp
    fi
    mkdir -p "../golden/$1" && mv out.tmp "../golden/$1/$2.txt"
}
rm -rf ../golden
for chart in */; do
    chart=${chart%/}
    print "$chart" default
    for values in "$chart"/cases/*.yaml; do
        [ -e "$values" ] && print "$chart" "$(basename "$values" .yaml)" "$values"
    done
done
rm -f out.tmp err.tmp
