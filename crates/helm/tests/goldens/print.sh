#!/bin/sh
# Prints the goldens of this folder again, with the Helm that go.mod pins.
set -eu
cd "$(dirname "$0")"
go run -mod=mod ./strvals > strvals/golden.jsonl.tmp && mv strvals/golden.jsonl.tmp strvals/golden.jsonl
go run -mod=mod ./resolve > resolve/golden.jsonl.tmp && mv resolve/golden.jsonl.tmp resolve/golden.jsonl
