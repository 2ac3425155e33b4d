#!/usr/bin/env bash
# Instructions that a packet of each benchmark's workload costs: stable where times are not. Counted by callgrind in the
# part that `rivulet bench` measures.
#
#   bench/instructions.sh           counts, and writes bench/instructions.tsv
#   bench/instructions.sh --check   counts, and fails if a workload costs over 3 % more than at the last release, or at the commit
#                                   below until there is one: a table that no later change has written
set -euo pipefail
cd "$(dirname "$0")/.."

readonly file=bench/instructions.tsv
readonly before_releases=ce65b7b
readonly packets=100000
readonly warm_up=65536 # The workload is played so many packets before it is measured, by the same function.
readonly workloads=(forward nat lb firewall firewall-new monitor policer policer-source whitelist dos mark tcp-mss mirror http ids ids-matching ids-random chain4 chain4-consolidated branches8 branches8-consolidated dispatcher dispatcher-flowlet)

# The table that --check compares with, by today's names.
base_table() {
    local base
    base=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || base=$before_releases
    git show "$base:$file" 2>/dev/null | sed 's/^router/dispatcher/' ||
        { echo "no table of $base: is the clone shallow?" >&2; return 2; }
    echo "compared with $base" >&2
}

count() {
    local workload=$1 out collected
    out=$(mktemp)
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*Target*play*' \
        "$rivulet" bench "$workload" --rounds 1 --packets "$packets" --flows 1k --json >/dev/null 2>"$out" ||
        { cat "$out" >&2; rm "$out"; return 1; }
    collected=$(sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' "$out")
    rm "$out"
    if [ -z "$collected" ] || [ "$collected" -eq 0 ]; then
        echo "$workload: callgrind collected nothing: is Target::play inlined?" >&2
        return 1
    fi
    echo $((collected / (warm_up + packets)))
}

base=$(base_table)
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 2; }
cargo build --profile dist --quiet -p cli
rivulet=${CARGO_TARGET_DIR:-target}/dist/rivulet

counted=$'workload\tinstructions_per_packet'
worse=0
for workload in "${workloads[@]}"; do
    now=$(count "$workload")
    counted+=$'\n'"$workload"$'\t'"$now"
    before=$(awk -v workload="$workload" '$1 == workload { print $2 }' <<<"$base")
    if [ -z "$before" ]; then
        echo "$workload: $now"
    elif [ $((now * 100)) -le $((before * 103)) ]; then
        echo "$workload: $now (was $before)"
    else
        echo "$workload: $now (was $before): over 3 % more"
        worse=1
    fi
done

if [ "${1:-}" != --check ]; then
    echo "$counted" >"$file"
elif [ "$worse" -ne 0 ]; then
    echo "a packet costs over 3 % more than it did" >&2
    exit 1
fi
