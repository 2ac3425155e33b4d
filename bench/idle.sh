#!/usr/bin/env bash
# Processor time that Rivulet takes without traffic, by driver: percent of one core. Promised: at most 2 a thread.
#
#   bench/idle.sh [SECONDS]
#
# Needs root and iproute2. RIVULET names the program, else it is the release build.
set -euo pipefail

readonly SECONDS_EACH=${1:-10}
HERE=$(cd "$(dirname "$0")/.." && pwd)
readonly HERE RIVULET=${RIVULET:-$HERE/target/dist/rivulet}
readonly M=rvlidle$$
WORK=$(mktemp -d)
PID=

main() {
    [[ -x $RIVULET ]] || cargo build --profile dist --manifest-path "$HERE/Cargo.toml"
    trap clean EXIT
    ip netns add $M
    for port in inside outside; do
        ip -n $M link add $port type veth peer name "$port-peer"
        ip -n $M link set $port up
        ip -n $M link set "$port-peer" up
    done
    echo 'Port<0> inside; Port<1> outside; Monitor m; pipelet { inside <-> m <-> outside; }' >"$WORK/wire.rvl"
    printf '%s\t%s\n' driver percent_of_a_core
    measure packet inside outside --driver packet
    measure xdp inside outside --driver xdp
    measure workers-2 inside outside --driver packet --workers 2
    measure tap tap:rvlidle0 outside --driver packet
    measure memif "memif:$WORK/memif.sock" outside --driver packet
}

# measure NAME INSIDE OUTSIDE OPTION...
measure() {
    local name=$1 before after
    ip netns exec $M "$RIVULET" up "$WORK/wire.rvl" --port "inside=$2" --port "outside=$3" --quiet "${@:4}" \
        >/dev/null 2>&1 &
    PID=$!
    sleep 2
    before=$(ticks)
    sleep "$SECONDS_EACH"
    after=$(ticks)
    kill -TERM $PID
    wait $PID || true
    PID=
    awk -v name="$name" -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" -v seconds="$SECONDS_EACH" \
        'BEGIN { printf "%s\t%.2f\n", name, 100 * ticks / hz / seconds }'
}

# User and system time of the program so far; `ip netns exec` has become it.
ticks() {
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$PID/stat"
}

clean() {
    [[ -z $PID ]] || kill -KILL "$PID" 2>/dev/null || true
    ip netns del $M
    rm -rf "$WORK"
}

main
