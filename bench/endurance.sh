#!/usr/bin/env bash
# How a cluster fares where networks and machines are not at their best: two dispatchers and four units in network namespaces of this
# machine, and 32 TCP connections through a firewall, a load balancer, a NAT and an IDS that send 4 kB each a second, to and fro.
#
#   bench/endurance.sh [SECONDS [CONDITION...]]
#
# SECONDS: 600. CONDITION: busy_machine (eight programs that take all processor time they get, of the same session and priority),
# small_mtu (1,280 bytes between members), jitter (50 +- 10 ms between members), ipv6_alone; all if none is given. It fails if a
# connection breaks, a member is lost, or the accounts of all processes do not agree with each other and with the kernel; on the busy
# machine also if a member waited for less than a tenth of the time for a processor. It takes root and the programs of the live tests.
set -euo pipefail

HERE=$(cd "$(dirname "$0")/.." && pwd)
readonly HERE SECONDS_EACH=${1:-600}
conditions=("${@:2}")
((${#conditions[@]} > 0)) || conditions=(busy_machine small_mtu jitter ipv6_alone)

for condition in "${conditions[@]}"; do
    echo "==> $condition"
    RIVULET_ENDURANCE_SECONDS=$SECONDS_EACH cargo test --release --manifest-path "$HERE/Cargo.toml" -p cli --test live -- \
        --nocapture "enduring::endures_$condition"
done
