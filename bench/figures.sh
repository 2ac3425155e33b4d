#!/usr/bin/env bash
# What a packet costs: every workload at 1 to 1,000,000 flows, used alike and by Zipf's law. Prints a table of
# tab-separated values; bench/figures.tsv is one that was kept.
#
# Usage: bench/figures.sh [ROUNDS]   (medians of ROUNDS rounds, 11 unless said; some minutes on a quiet machine)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ROUNDS=${1:-11}
readonly WORKLOADS=(forward nat lb firewall monitor policer policer-source whitelist chain4 firewall-new http ids ids-matching ids-random)
readonly RIVULET=${CARGO_TARGET_DIR:-target}/release/rivulet

cargo build --release --quiet

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
            [[ $workload == firewall-new && ($flows != 1k || -n $popularity) ]] && continue
            # Of what is said, each flow keeps kilobytes.
            [[ $workload == @(http|ids|ids-matching|ids-random) && ($flows == 1M || -n $popularity) ]] && continue
            row "$("$RIVULET" bench "$workload" --flows "$flows" --rounds "$ROUNDS" --json $popularity)"
        done
    done
done
