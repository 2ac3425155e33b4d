#!/usr/bin/env bash
# A peer beside us, in one run: VPP's forwarding, NAT, ACL, load balancer and flow counter against `rivulet bench`, on one
# core of one machine, measured in turn. Prints a table of tab-separated values.
#
# Usage: VPP=DIR bench/peers.sh [ROUNDS]   (medians of ROUNDS rounds, 5 unless said; some minutes on a quiet machine)
#        In each round the best of 11 samples counts, of either: what else the machine does makes the others slower.
#
#   VPP=DIR   the folder of the programs vpp and vppctl; tried with 26.10
#   CORE=N    the core that both run on (the last)
#   PAGES=2m  huge pages for VPP's heap, of which 768 must be free; else those of 4 KiB that it takes by itself
#   ROWS=RE   only the rows whose "workload flows peer" this regular expression matches, such as '^nat 1k '
#
# VPP runs as it comes, without workers, and its packet generator replays a capture: UDP packets of 64 bytes with the
# frame check sequence, of the flows that `rivulet bench` plays and in such an order. rivulet_ns and vpp_ns have the source
# in them (a copy into a buffer); vpp_nodes_ns is what all of VPP's nodes but the packet generator's take. ratio is
# vpp_ns / rivulet_ns. The last four columns are the same of the best rounds: where they differ much from the medians, the
# machine was not quiet.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ROUNDS=${1:-5}
readonly CORE=${CORE:-$(($(nproc) - 1))}
readonly RIVULET=${CARGO_TARGET_DIR:-target}/dist/rivulet
readonly SAMPLES=11 SAMPLE_S=0.1 # Ours are of 1,048,576 packets, which take as long.
readonly ALONE=(nice -n -10 taskset -c "$CORE")

# Of each row: workload, flows, VPP's counterpart (a function below), a node of VPP that must have seen every packet.
readonly COMPARED='
forward 1k ip4 ip4-lookup
nat 1 nat44_ed nat44-ed-in2out
nat 1k nat44_ed nat44-ed-in2out
nat 100k nat44_ed nat44-ed-in2out
nat 1M nat44_ed nat44-ed-in2out
nat 1k nat44_ei nat44-ei-in2out
nat 100k nat44_ei nat44-ei-in2out
firewall 1k acl_reflect acl-plugin-in-ip4-fa
firewall 100k acl_reflect acl-plugin-in-ip4-fa
firewall 1k acl_stateless acl-plugin-in-ip4-fa
lb 1k lb_gre lb4-gre4-port
lb 100k lb_gre lb4-gre4-port
lb 1k lb_nat lb4-nat4-port
lb 100k lb_nat lb4-nat4-port
monitor 1k flowprobe flowprobe-input-ip4
monitor 100k flowprobe flowprobe-input-ip4
chain4 1k chain_without_lb nat44-ed-in2out
chain4 100k chain_without_lb nat44-ed-in2out
'

main() {
    [[ -x ${VPP:-}/vpp && -x ${VPP:-}/vppctl ]] ||
        { echo "VPP=DIR must name the folder of vpp and vppctl: docs/commands/bench.md says how to get them" >&2; exit 2; }
    cargo build --profile dist --quiet -p cli
    work=$(mktemp -d)
    trap finish EXIT

    local rows round workload flows peer node rivulet
    rows=$(grep . <<<"$COMPARED" | grep -E "${ROWS:-.}") || { echo "no row matches ROWS" >&2; exit 2; }
    while read -r flows; do
        frames "$(number "$flows")" >"$work/$flows.pcap"
    done < <(cut -d' ' -f2 <<<"$rows" | sort -u)
    for ((round = 0; round < ROUNDS; round++)); do
        while read -r workload flows peer node; do
            rivulet=$(rivulet_ns "$workload" "$flows")
            measure_vpp "$flows" "$peer" "$node" >"$work/vpp"
            echo "$workload $flows $peer $rivulet $(<"$work/vpp")" >>"$work/measured"
        done <<<"$rows"
    done

    echo "# $("$VPP/vpp" --version | sed -E 's/ built by .*//'), heap in pages of ${PAGES:-4k}; medians of $ROUNDS rounds"
    printf 'workload\tflows\tpeer\trivulet_ns\tvpp_ns\tvpp_nodes_ns\tratio\trivulet_best\tvpp_best\tvpp_nodes_best\tbest_ratio\n'
    while read -r workload flows peer node; do
        row "$workload" "$flows" "$peer"
    done <<<"$rows"
}

finish() {
    stop_vpp
    rm -rf "$work"
}

# row WORKLOAD FLOWS PEER: the medians of what was measured, and the best of it, each with the ratio.
row() {
    local of="$1 $2 $3 "
    LC_ALL=C awk -v ours="$(ranked "$of" 4)" -v theirs="$(ranked "$of" 5)" -v nodes="$(ranked "$of" 6)" \
        -v name="$1	$2	vpp ${3//_/-}" 'BEGIN {
            split(ours, r)
            split(theirs, v)
            split(nodes, n)
            printf "%s\t%.1f\t%.1f\t%.1f\t%.2f\t", name, r[2], v[2], n[2], v[2] / r[2]
            printf "%.1f\t%.1f\t%.1f\t%.2f\n", r[1], v[1], n[1], v[1] / r[1]
        }'
}

# ranked PREFIX COLUMN: the least and the median of the lines measured that begin so.
ranked() {
    grep -F -- "$1" "$work/measured" | cut -d' ' -f"$2" | LC_ALL=C sort -g |
        awk '{ v[NR] = $1 } END { print v[1], v[int((NR + 1) / 2)] }'
}

# number TEXT: 100k and 1M in digits.
number() {
    local text=${1/k/000}
    echo "${text/M/000000}"
}

# rivulet_ns WORKLOAD FLOWS: ns per packet.
rivulet_ns() {
    "${ALONE[@]}" "$RIVULET" bench "$1" --flows "$2" --rounds "$SAMPLES" --json |
        sed -nE 's/^ *"ns_per_packet_min": ([0-9.]+),?$/\1/p'
}

# measure_vpp FLOWS PEER NODE: ns per packet with the source, and of the nodes alone.
measure_vpp() {
    local flows=$1 peer=$2 node=$3 ghz i
    setup "$(number "$flows")" "$peer" "$work/$flows.pcap" >"$work/setup"
    start_vpp
    ghz=$(ctl show cpu | sed -nE 's/^Base frequency: +([0-9.]+) GHz.*/\1/p')
    ctl packet-generator enable-stream tape
    warm_up "$(number "$flows")"
    for ((i = 0; i < SAMPLES; i++)); do
        ctl clear runtime
        sleep "$SAMPLE_S"
        ctl show runtime
    done >"$work/runtime"
    stop_vpp
    figures "$node" "$ghz" <"$work/runtime" >"$work/figures" ||
        { echo "vpp $peer with $flows flows:" >&2; cat "$work/runtime" >&2; return 1; }
    LC_ALL=C sort -g "$work/figures" | head -n 1
}

# warm_up FLOWS: until the capture was replayed three times, which opens all flows.
warm_up() {
    local wanted=$((3 * ($1 > 65536 ? $1 : 65536))) count tries
    for ((tries = 0; tries < 600; tries++)); do
        count=$(ctl show packet-generator | awk '$1 == "tape" { print $3 }')
        ((count >= wanted)) && return
        sleep 0.1
    done
    echo "vpp does not warm up: $count of $wanted packets in a minute" >&2
    return 1
}

# figures NODE GHZ: reads VPP's tables of nodes; fails if a packet was dropped, missed the node, or took a slow path.
figures() {
    LC_ALL=C awk -v must="$1" -v ghz="$2" -v samples="$SAMPLES" '
        function wrong(what) {
            print what > "/dev/stderr"
            failed = 1
            exit 1
        }
        function sample(    packets, total, node) {
            packets = vectors["pg-input"]
            if (packets == 0 || rate == 0 || ghz == 0) wrong("no packets came")
            if (dropped > 0 || vectors["pg1-tx"] < packets) wrong("packets were lost")
            if (vectors[must] < packets) wrong("packets missed " must)
            for (node in vectors) {
                if (node ~ /slowpath/) wrong("packets took the slow path")
                if (node != "pg-input") total += vectors[node] * clocks[node]
            }
            printf "%.2f %.2f\n", 1e9 / rate, total / packets / ghz
        }
        /^Time / && tables++ {
            sample()
            split("", vectors)
        }
        / vector rates in / {
            rate = $4 + 0
            dropped = $8 + 0
        }
        # The state may be of two words, so fields are counted from the right: vectors, suspends, clocks, vectors per call.
        NF >= 7 && $(NF - 3) ~ /^[0-9]+$/ && $(NF - 3) > 0 {
            vectors[$1] = $(NF - 3)
            clocks[$1] = $(NF - 1)
        }
        END {
            if (!failed) sample()
            if (!failed && tables != samples) wrong("samples are missing")
            exit failed
        }'
}

start_vpp() {
    local tries
    rm -f "$work/cli.sock"
    "${ALONE[@]}" "$VPP/vpp" "unix { nodaemon nosyslog nobanner cli-no-pager runtime-dir $work cli-listen $work/cli.sock exec $work/setup }" \
        "cpu { main-core $CORE }" "memory { main-heap-size 1536M ${PAGES:+main-heap-page-size $PAGES} }" "statseg { socket-name $work/stats.sock size 256M }" \
        "api-segment { prefix peers-$$ }" "plugins { plugin default { disable } $(plugins) }" \
        "acl-plugin { connection hash buckets 262144 connection count max 2000000 }" >"$work/log" 2>&1 &
    vpp_pid=$!
    for ((tries = 0; tries < 600; tries++)); do
        ctl show packet-generator 2>/dev/null | grep -q '^tape ' && return
        kill -0 "$vpp_pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "vpp does not start, or refuses its setup:" >&2
    cat "$work/log" >&2
    return 1
}

stop_vpp() {
    [[ -n ${vpp_pid:-} ]] || return 0
    kill "$vpp_pid" 2>/dev/null || true
    wait "$vpp_pid" 2>/dev/null || true
    vpp_pid=
}

ctl() {
    "$VPP/vppctl" -s "$work/cli.sock" "$@" </dev/null
}

plugins() {
    local name
    for name in nat nat44_ei acl lb flowprobe; do
        echo "plugin ${name}_plugin.so { enable }"
    done
}

# setup FLOWS PEER PCAP: what VPP is told at its start: clients behind pg0, a next hop behind pg1, the function, the source.
setup() {
    cat <<END
create packet-generator interface pg0 hw-addr 02:00:00:00:00:02
create packet-generator interface pg1 hw-addr 02:00:00:00:01:01
set interface state pg0 up
set interface state pg1 up
set interface ip address pg0 10.255.255.254/8
set interface ip address pg1 203.0.113.1/24
set ip neighbor static pg1 203.0.113.2 02:00:00:00:01:02
ip route add 0.0.0.0/0 via 203.0.113.2 pg1
END
    "$2" "$1"
    echo "packet-generator new { name tape limit 1e15 interface pg0 node ethernet-input pcap $3 }"
}

ip4() {
    :
}

# Room for a quarter more sessions than there are flows; and, as ports are drawn at random, more external addresses than we
# need.
nat44_ed() {
    echo "nat44 plugin enable sessions $(($1 + $1 / 4 + 1024))"
    echo "nat44 add address 198.18.0.1 - 198.18.0.$(($1 / 10000 + 1))"
    echo "set interface nat44 in pg0 out pg1"
}

nat44_ei() {
    echo "nat44 ei plugin enable sessions $(($1 + $1 / 4 + 1024)) users $(($1 / 64 + 1024))"
    echo "nat44 ei add address 198.18.0.1 - 198.18.0.$(($1 / 10000 + 1))"
    echo "set interface nat44 ei in pg0 out pg1"
}

acl_reflect() {
    acl permit+reflect
}

acl_stateless() {
    acl permit
}

# acl ACTION: 99 rules that do not match, and one that does.
acl() {
    local i rules=
    for ((i = 0; i < 99; i++)); do
        rules+="deny src 172.$((16 + i % 16)).0.0/16 dst 203.0.113.$i/32 proto 6 sport 0-65535 dport $((1000 + i)), "
    done
    echo "set acl-plugin acl ${rules}$1 src 0.0.0.0/0 dst 0.0.0.0/0"
    echo "set acl-plugin interface pg0 input acl 0"
}

lb_gre() {
    lb "$1" "encap gre4"
}

lb_nat() {
    lb "$1" "encap nat4 type clusterip target_port 80"
    echo "lb set interface nat4 in pg1"
}

# lb FLOWS HOW: 32 servers, and a table with a bucket of four entries for each flow.
lb() {
    local buckets=1024 vip="192.0.2.80/32 protocol udp port 80"
    while ((buckets < $1)); do buckets=$((buckets * 2)); done
    echo "lb conf ip4-src-address 203.0.113.1 buckets $buckets timeout 40"
    echo "lb vip $vip $2"
    printf 'lb as %s' "$vip"
    printf ' 172.16.0.%s' {1..32}
    echo
}

flowprobe() {
    echo "set ipfix exporter collector 203.0.113.2 src 203.0.113.1 template-interval 20 path-mtu 1450"
    echo "flowprobe params record l3 l4"
    echo "flowprobe feature add-del pg0 ip4 rx"
}

# Less than our chain of four does: behind a VIP of its load balancer, VPP does not translate.
chain_without_lb() {
    acl_reflect
    nat44_ed "$1"
    flowprobe
}

# frames FLOWS: the capture. Every flow comes once, in random order, before any comes again; 65,536 frames at least.
frames() {
    perl -e '
        use strict;
        use warnings;

        my ($flows) = @ARGV;
        my $count = $flows > 65536 ? $flows : 65536;
        binmode STDOUT;
        srand 42;
        print pack("VvvVVVV", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1);
        my @deck = (0 .. $flows - 1);
        my $left = 0;
        for (1 .. $count) {
            $left ||= $flows;
            my $drawn = int(rand($left--));
            @deck[$drawn, $left] = @deck[$left, $drawn];
            my $frame = frame($deck[$left]);
            print pack("VVVV", 0, 0, length $frame, length $frame), $frame;
        }

        sub frame {
            my ($flow) = @_;
            my $client = 10 << 24 | int($flow / 64) + 1;
            my $port = 1024 + $flow % 64 * 997 % 60000;
            my $service = 192 << 24 | 2 << 8 | 80;
            my $ip = pack("CCnnnCCnNN", 0x45, 0, 46, 0, 0x4000, 64, 17, 0, $client, $service);
            substr($ip, 10, 2) = pack("n", checksum($ip));
            my $udp = pack("nnnn", $port, 80, 26, 0) . "\0" x 18;
            substr($udp, 6, 2) = pack("n", checksum(pack("NNnn", $client, $service, 17, 26) . $udp) || 0xffff);
            return pack("H*", "020000000002" . "020000000001" . "0800") . $ip . $udp;
        }

        sub checksum {
            my $sum = unpack("%32n*", $_[0]);
            $sum = ($sum & 0xffff) + ($sum >> 16) for 1 .. 2;
            return ~$sum & 0xffff;
        }
    ' "$1"
}

main
