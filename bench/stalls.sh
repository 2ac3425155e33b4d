#!/usr/bin/env bash
# For how long traffic stands still.
#
#   bench/stalls.sh [FLOWS]
#   bench/stalls.sh moves [SECONDS]
#
# The first is the longest batch: traffic in which nearly every packet begins a flow, through functions whose tables are reached at
# random. Promised: none above 1 ms on a machine that has nothing else to do. RIVULET names the program, else it is the release build.
# Columns: policy, packets, the time that a batch took of which half and 99.9 % of the packets were part, and the longest, in
# microseconds: of the best of three rounds, with real-time priority where that is allowed, as other programs and hypervisors take the
# processor for milliseconds.
#
# The second is a cluster of two dispatchers and four units in network namespaces of this machine, with clients of a NAT, a firewall,
# an IDS and a load balancer: streams of UDP and TCP, connects, dig and ssh. In turn nothing happens, all flows are moved to and fro,
# and a unit is drained and restarted, until each unit was. It prints each client's delays: one way, for streams; else to the answer.
# SECONDS (60) is the time of each of the first two. It takes root and the programs of the live tests.
set -euo pipefail

HERE=$(cd "$(dirname "$0")/.." && pwd)
readonly HERE

if [[ ${1:-} == moves ]]; then
    RIVULET_STALLS_SECONDS=${2:-60} exec cargo test --release --manifest-path "$HERE/Cargo.toml" -p cli --test live -- \
        --ignored --nocapture stalls_while
fi

readonly FLOWS=${1:-300000} RIVULET=${RIVULET:-$HERE/target/dist/rivulet}
readonly ROUNDS=3
WORK=$(mktemp -d)
trap 'rm -r "$WORK"' EXIT

prefer=()
chrt -f 50 true 2>/dev/null && prefer=(chrt -f 50)

# measure NAME FUNCTIONS LINE
measure() {
    printf 'Port<0> inside; Port<1> outside; %s pipelet { inside <-> %s <-> outside; } settings { flows: 1000000 }' \
        "$2" "$3" >"$WORK/$1.rvl"
    for ((round = 0; round < ROUNDS; round++)); do
        ${prefer[@]+"${prefer[@]}"} "$RIVULET" run "$WORK/$1.rvl" --read "$WORK/flows.pcap" --seed 1 -o json |
            jq -r --arg name "$1" '[$name, .packets_in] + [(.timing.latency_ns | .p50, ."p99.9", .max) / 1000 | round] | @tsv' ||
            { echo "$1 failed" >&2; return 1; }
    done | sort -t $'\t' -n -k 5 | head -n 1
}

[[ -x $RIVULET ]] || cargo build --profile dist --manifest-path "$HERE/Cargo.toml"
"$RIVULET" traffic --packets "$FLOWS" --flows "$FLOWS" --flow-length 1 --protocols udp=1 --write "$WORK/flows.pcap" >/dev/null
printf '%s\t%s\t%s\t%s\t%s\n' policy packets p50_us p99_9_us longest_us
measure monitor 'Monitor m;' m
measure nat 'NAT n { external: [203.0.113.0/24] };' n
measure nat-blocks 'NAT n { external: [203.0.113.0/24], blocks: { size: 64, max: 4 } };' n
measure all 'NAT n { external: [203.0.113.0/24] }; Monitor m; Policer p { rate: 1Gbps, per: source };' 'n <-> m <-> p'
