#!/bin/sh
# Records the run of this folder anew. On an idle machine: its latencies are those that replays
# repeat. Needs the nodes (make setup); takes 20 s.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
reflex-ros demo --policy tiny --duration 6 --seed 3 --runs "$runs" -p recorder.images:=true
run=$(echo "$runs"/*)
size=$(du -sk "$run/bag" | cut -f1)
[ "$size" -le 5000 ] || { echo "the bag has $size kB, expected at most 5000" >&2; exit 1; }
rm -rf "$here/bag" "$here/params"
mkdir "$here/params"
cp -R "$run/bag" "$here/bag"
sed 's/^\( *folder:\) .*/\1 ""/' "$run/params/run.yaml" > "$here/params/run.yaml"
