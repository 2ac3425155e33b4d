#!/usr/bin/env bash
# Instructions that a packet of each benchmark's workload costs: stable where times are not. Counted by callgrind in the
# part that `rivulet bench` measures.
#
#   bench/instructions.sh           counts, and writes bench/instructions.tsv
#   bench/instructions.sh --check   counts, and fails if a workload costs over 3 % more than the file says
set -euo pipefail
cd "$(dirname "$0")/.."

readonly file=bench/instructions.tsv
readonly packets=100000
readonly warm_up=65536 # The workload is played so many packets before it is measured, by the same function.
readonly workloads=(forward nat lb firewall firewall-new monitor policer policer-source whitelist dos mark tcp-mss mirror http ids ids-matching ids-random chain4 chain4-consolidated branches8 branches8-consolidated dispatcher dispatcher-flowlet)

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

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 2; }
cargo build --profile dist --quiet -p cli
rivulet=${CARGO_TARGET_DIR:-target}/dist/rivulet

counted=$'workload\tinstructions_per_packet'
worse=0
for workload in "${workloads[@]}"; do
    now=$(count "$workload")
    counted+=$'\n'"$workload"$'\t'"$now"
    before=$(awk -v workload="$workload" '$1 == workload { print $2 }' "$file" 2>/dev/null || true)
    echo "$workload: $now${before:+ (was $before)}"
    if [ -n "$before" ] && [ $((now * 100)) -gt $((before * 103)) ]; then
        worse=1
    fi
done

if [ "${1:-}" != --check ]; then
    echo "$counted" >"$file"
elif [ "$worse" -ne 0 ]; then
    echo "a packet costs over 3 % more than $file says" >&2
    exit 1
fi
