#!/usr/bin/env bash
# What a packet costs: every workload at 1 to 1,000,000 flows, used alike and by Zipf's law. Prints a table of
# tab-separated values; bench/figures.tsv is one that was kept.
#
# Others may use the machine, too: of several runs of each row, the one whose floor was the lowest is printed. So it is
# chosen by how quiet the machine was, not by what is measured.
#
# Usage: bench/figures.sh [RUNS]   (runs of each row, 5 unless said, with medians of 5 rounds; some twenty minutes)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RUNS=${1:-5}
readonly ROUNDS=5
readonly WORKLOADS=(forward nat lb firewall monitor policer policer-source whitelist dos mark tcp-mss mirror chain4 chain4-consolidated firewall-new http ids ids-matching ids-random dispatcher dispatcher-flowlet)
readonly RIVULET=${CARGO_TARGET_DIR:-target}/dist/rivulet

cargo build --profile dist --quiet

# quietest OPTION...: the measurement of several that was disturbed the least.
quietest() {
    local json floor lowest="" kept="" run
    for ((run = 0; run < RUNS; run++)); do
        json=$("$RIVULET" bench "$@" --rounds "$ROUNDS" --json)
        floor=$(sed -nE 's/^ *"floor_ns_per_packet": ([0-9.]+),?$/\1/p' <<<"$json")
        if [[ -z $lowest ]] || LC_ALL=C awk "BEGIN { exit !($floor < $lowest) }"; then
            lowest=$floor kept=$json
        fi
    done
    echo "$kept"
}

# row JSON: the fields of one measurement, in the table's order.
row() {
    local field value line=""
    for field in workload flows popularity ns_per_packet ns_per_packet_min ns_per_packet_max floor_ns_per_packet; do
        value=$(sed -nE "s/^ *\"$field\": \"?([^\",]*)\"?,?$/\1/p" <<<"$1")
        [[ $field == *ns_per_packet* ]] && value=$(LC_ALL=C printf '%.1f' "$value")
        line+="${line:+	}$value"
    done
    echo "$line"
}

printf 'workload\tflows\tpopularity\tns\tmin\tmax\tfloor_ns\n'
for workload in "${WORKLOADS[@]}"; do
    for popularity in "" --zipf; do
        for flows in 1 1k 100k 1M; do
            # Packets that each open a flow belong to no flow that could be used more or less often.
            [[ $workload == @(firewall-new|dispatcher-flowlet) && ($flows != 1k || -n $popularity) ]] && continue
            # Of what is said, each flow keeps kilobytes.
            [[ $workload == @(http|ids|ids-matching|ids-random) && ($flows == 1M || -n $popularity) ]] && continue
            row "$(quietest "$workload" --flows "$flows" $popularity)"
        done
    done
done
