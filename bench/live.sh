#!/usr/bin/env bash
# What goes through between two hosts: Rivulet on packet sockets and on AF_XDP beside the kernel's own, over the same veth pairs, in
# turn. Network namespaces on this machine; iperf3 sends and receives. It takes root, iproute2, nftables, iperf3, ping and python3.
#
#   bench/live.sh [ROUNDS [SECONDS [CASE...]]]
#
# RIVULET names the program, else it is the release build.
#
# The cases, all of them unless some are named:
#
# - wire: packets are routed, and nothing else: what the ports cost that functions are put between;
# - nat: a NAT; nftables masquerade;
# - balance: an address with two servers behind it, the same one for all that a client has; DNAT by a hash of the client's address;
# - limit: a rate of 10 Gbit/s, which is never reached; `limit rate over`;
# - filter: a firewall that follows connections, with 1,000 addresses that must not come in; a set, and `ct state`.
#
# For each, the medians of all rounds:
#
# - udp_BYTES_kpps: packets of UDP that leave in a second, of 64 and, of the NAT, of 1,400 bytes, as many as are sent. That the
#   receiver takes them all is not asked for: its program is often the slowest;
# - own_BYTES_ns: of the NAT, processor time that itself takes for a packet, at a rate that all of them carry: what iperf3 at both
#   ends, Rivulet, and the kernel's threads for frames (ksoftirqd) run for, less what they do where the hosts are connected
#   directly, without a NAT. The kernel's NAT works on the time of whoever sends; so does what takes in what Rivulet sends;
# - drain_64_ns: processor time that Rivulet takes for a packet where many wait: it is stopped while they come, and then goes on. That
#   is what it can carry with a core of its own, with what the kernel does for it in its system calls, up to the receiver's socket;
#   drain_64_kernel: the share of it that is the kernel's, in those calls, where `perf` is installed;
# - tcp_gbit: TCP's throughput; ping_ms: the round-trip time of a ping while nothing else is sent.
#
# Sender, receiver and what is between them share the machine's cores, so that rates say what is left for that beside them.
set -euo pipefail

ROUNDS=${1:-3}
SECONDS_EACH=${2:-4}
CASES=(wire nat balance limit filter)
[[ $# -le 2 ]] || CASES=("${@:3}")
HERE=$(cd "$(dirname "$0")/.." && pwd)
RIVULET=${RIVULET:-$HERE/target/dist/rivulet}
readonly ROUNDS SECONDS_EACH CASES HERE RIVULET
readonly PACED_KPPS=100
readonly SERVER=203.0.113.2 OTHER_SERVER=203.0.113.3 BALANCED=198.51.100.80
readonly C=rvlbc$$ M=rvlbm$$ S=rvlbs$$
WORK=$(mktemp -d)
PID=

main() {
    for tool in ip nft iperf3 ping python3; do
        command -v "$tool" >/dev/null || { echo "bench/live.sh: $tool is not installed" >&2; exit 1; }
    done
    for case in "${CASES[@]}"; do
        declare -F "kernel_$case" >/dev/null || { echo "bench/live.sh: there is no case $case" >&2; exit 2; }
    done
    [[ -x $RIVULET ]] || cargo build --profile dist --manifest-path "$HERE/Cargo.toml"
    trap clean EXIT
    hosts
    policies
    for ((round = 1; round <= ROUNDS; round++)); do
        for case in "${CASES[@]}"; do
            echo "round $round of $ROUNDS: $case" >&2
            one "$case"
        done
    done
    report
}

# one CASE
one() {
    local target=$SERVER
    [[ $1 != balance ]] || target=$BALANCED
    [[ $1 != nat ]] || own nat direct 192.0.2.2
    kernel_on "$1"
    measure "$1" kernel $target
    kernel_off
    for io in packet xdp; do
        rivulet_on "$1" $io
        measure "$1" $io $target
        drain "$1" $io $target
        rivulet_off
    done
}

hosts() {
    for ns in $C $M $S; do
        ip netns add $ns
        ip -n $ns link set lo up
    done
    ip link add inside netns $M type veth peer name eth0 netns $C
    ip link add outside netns $M type veth peer name eth0 netns $S
    for dev in inside outside; do ip -n $M link set $dev up; done
    ip -n $C addr add 10.7.0.1/24 dev eth0
    for address in $SERVER $OTHER_SERVER; do ip -n $S addr add $address/24 dev eth0; done
    for ns in $C $S; do ip -n $ns link set eth0 up; done
    ip link add direct netns $C type veth peer name direct netns $S
    ip -n $C addr add 192.0.2.1/24 dev direct
    ip -n $S addr add 192.0.2.2/24 dev direct
    for ns in $C $S; do ip -n $ns link set direct up; done
    ip -n $C route add default via 10.7.0.254
    ip -n $S route add 10.7.0.0/24 via 203.0.113.1
    # Bound, as what answers datagrams does not mind which address they were for.
    for address in $SERVER $OTHER_SERVER 192.0.2.2; do ip netns exec $S iperf3 -s -D -B $address; done
}

policies() {
    policy wire "" "inside <-> outside"
    policy nat "NAT f { external: [203.0.113.1] };" "inside <-> f <-> outside"
    local servers="[{ name: a, address: $SERVER }, { name: b, address: $OTHER_SERVER }]" services=
    for service in "tcp 5201" "udp 5201" "udp 9"; do
        services+="{ name: ${service/ /}, vip: $BALANCED, protocol: ${service% *}, port: ${service#* }, affinity: source, servers: servers },"
    done
    policy balance "let servers = $servers; LoadBalancer f { services: [$services], answer_ping: true };" "inside <-> f <-> outside"
    policy limit "Policer f { rate: 10Gbps, per: all };" "inside <-> f <-> outside"
    policy filter "Firewall f { rules: \"deny in from {$(banned)}\\nallow out\" };" "inside <-> f <-> outside"
}

# policy CASE FUNCTION PIPELET
policy() {
    cat >"$WORK/$1.rvl" <<POLICY
Port<0> inside { address: "10.7.0.254/24" };
Port<1> outside { address: "203.0.113.1/24" };
$2
pipelet { $3; }
POLICY
}

banned() {
    python3 -c "print(', '.join(f'198.18.{n // 250}.{n % 250 + 1}' for n in range(1000)))"
}

kernel_on() {
    ip -n $M addr add 10.7.0.254/24 dev inside
    ip -n $M addr add 203.0.113.1/24 dev outside
    ip netns exec $M sysctl -qw net.ipv4.ip_forward=1
    "kernel_$1" | ip netns exec $M nft -f -
}

# What nft is given.
kernel_wire() { :; }

kernel_nat() {
    echo 'table ip t { chain post { type nat hook postrouting priority 100; oifname "outside" masquerade; }; }'
}

kernel_balance() {
    cat <<NFT
table ip t { chain pre { type nat hook prerouting priority -100;
    ip daddr $BALANCED dnat to jhash ip saddr mod 2 map { 0 : $SERVER, 1 : $OTHER_SERVER }; }; }
NFT
}

kernel_limit() {
    echo 'table ip t { chain f { type filter hook forward priority 0; limit rate over 1250 mbytes/second burst 125 mbytes drop; }; }'
}

kernel_filter() {
    cat <<NFT
table ip t { set banned { type ipv4_addr; elements = { $(banned) }; }
    chain f { type filter hook forward priority 0; policy drop;
        ct state established,related accept; iifname "outside" ip saddr @banned drop; iifname "inside" accept; }; }
NFT
}

kernel_off() {
    ip netns exec $M nft flush ruleset
    ip netns exec $M sysctl -qw net.ipv4.ip_forward=0
    ip -n $M addr flush dev inside
    ip -n $M addr flush dev outside
}

# rivulet_on CASE IO
rivulet_on() {
    ip netns exec $M "$RIVULET" up "$WORK/$1.rvl" --port inside=inside --port outside=outside --driver "$2" --quiet &
    PID=$!
    sleep 1
}

rivulet_off() {
    kill $PID
    wait $PID
    PID=
}

# measure CASE WHO TARGET. Each figure is a line of: case, who, what, value.
measure() {
    ip netns exec $C ping -q -c 1 -W 2 "$3" >/dev/null || true
    local ping
    ping=$(ip netns exec $C ping -q -c 200 -i 0.005 "$3" | awk -F/ '/^rtt/ {print $5}')
    echo "$1 $2 ping_ms $ping" >>"$WORK/figures"
    udp "$@" 22 # With headers, 64 bytes.
    if [[ $1 == nat ]]; then
        udp "$@" 1358
        own "$@"
    fi
    ip netns exec $C iperf3 -c "$3" -t "$SECONDS_EACH" -J |
        python3 -c "import json,sys; print('$1 $2 tcp_gbit', json.load(sys.stdin)['end']['sum_received']['bits_per_second']/1e9)" >>"$WORK/figures"
}

# udp CASE WHO TARGET PAYLOAD
udp() {
    local before after
    before=$(left)
    ip netns exec $C iperf3 -c "$3" -u -b 0 -l "$4" -t "$SECONDS_EACH" >/dev/null
    after=$(left)
    python3 -c "print('$1 $2 udp_$(($4 + 42))_kpps', ($after - $before) / $SECONDS_EACH / 1e3)" >>"$WORK/figures"
}

# How many packets have left to the outside.
left() {
    ip -n $M -j -s link show outside | python3 -c "import json,sys; print(json.load(sys.stdin)[0]['stats64']['tx']['packets'])"
}

# own CASE WHO TARGET: how long all who have to do with it run per packet that is sent, at an even rate.
own() {
    for size in 22 1358; do
        python3 - "$@" $size $PACED_KPPS "$SECONDS_EACH" $C $S "$PID" >>"$WORK/figures" <<'PYTHON'
import json, os, resource, subprocess, sys
case, who, target, size, kpps, seconds, client, server, rivulet = sys.argv[1:]
pids = subprocess.run(["ip", "netns", "pids", server], check=True, capture_output=True, text=True).stdout.split()
pids += [rivulet] if rivulet else []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        pids += [pid] if open(f"/proc/{pid}/comm").read().startswith("ksoftirqd/") else []
    except FileNotFoundError:
        pass # It has ended.
def run_ns():
    sender = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = sum(int(open(f"/proc/{pid}/schedstat").read().split()[0]) for pid in pids)
    return others + (sender.ru_utime + sender.ru_stime) * 1e9
rate = int(kpps) * 1000 * int(size) * 8
before = run_ns()
said = subprocess.run(
    ["ip", "netns", "exec", client, "iperf3", "-c", target, "-u", "-b", str(rate), "-l", size, "-t", seconds, "-J"],
    check=True, capture_output=True).stdout
ran = run_ns() - before
print(f"{case} {who} ran_{int(size) + 42}_ns", ran / json.loads(said)["end"]["sum"]["packets"])
PYTHON
    done
}

# drain CASE IO TARGET: what Rivulet runs for per packet of some thousands that wait for it, no more than AF_XDP's rings have room for.
drain() {
    ip netns exec $S python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 9))
time.sleep(60)" &
    local receiver=$!
    sleep 0.5
    ip netns exec $C python3 - "$@" $PID "$WORK" >>"$WORK/figures" <<'PYTHON'
import os, shutil, signal, socket, subprocess, sys, time
case, who, target, pid, work = sys.argv[1:]
pid = int(pid)
PACKETS, TIMES = 3500, 40
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((target, 9))
def run_ns():
    return int(open(f"/proc/{pid}/schedstat").read().split()[0])
def kernel_share(samples):
    """What the kernel has of them."""
    line = ["perf", "report", "-i", samples, "--no-children", "--stdio", "-g", "none", "--sort", "dso"]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    rows = [row.split() for row in said.splitlines() if "%" in row and not row.startswith("#")]
    of = lambda rows: sum(float(share.rstrip("%")) for share, *_ in rows)
    return of(row for row in rows if row[1].startswith("[kernel")) / of(rows)
sender.send(b"x" * 22) # Neighbours are known from here on.
time.sleep(0.5)
idle = run_ns()
time.sleep(1)
idle = run_ns() - idle
samples = f"{work}/samples"
perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "5000", "-p", str(pid), "-o", samples]
perf = subprocess.Popen(perf) if shutil.which("perf") else None
ran = 0
for _ in range(TIMES):
    os.kill(pid, signal.SIGSTOP)
    for _ in range(PACKETS):
        sender.send(b"x" * 22)
    before = run_ns()
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.2)
    ran += run_ns() - before
print(f"{case} {who} drain_64_ns", (ran - idle * 0.2 * TIMES) / (PACKETS * TIMES))
if perf:
    perf.send_signal(signal.SIGINT)
    perf.wait()
    print(f"{case} {who} drain_64_kernel", kernel_share(samples))
PYTHON
    kill $receiver
    wait $receiver || true
}

report() {
    python3 - "$WORK/figures" <<'PYTHON'
import statistics, sys
figures = {}
for line in open(sys.argv[1]):
    case, who, what, value = line.split()
    figures.setdefault(f"{case} {what}", {}).setdefault(who, []).append(float(value))
print("%-24s %10s %10s %10s %16s %13s" % ("", "kernel", "packet", "xdp", "packet / kernel", "xdp / kernel"))
for what, by in figures.items():
    value = {who: statistics.median(values) for who, values in by.items()}
    if "direct" in value:
        what = what.replace("ran", "own")
        value = {who: ran - value["direct"] for who, ran in value.items()}
    if "kernel" not in value:
        print("%-24s %10s %10.3f %10.3f" % (what, "", value["packet"], value["xdp"]))
        continue
    kernel, packet, xdp = (value[who] for who in ("kernel", "packet", "xdp"))
    print("%-24s %10.3f %10.3f %10.3f %16.2f %13.2f" % (what, kernel, packet, xdp, packet / kernel, xdp / kernel))
PYTHON
}

clean() {
    [[ -z $PID ]] || kill $PID 2>/dev/null || true
    for ns in $C $M $S; do
        ip netns pids $ns 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del $ns 2>/dev/null || true
    done
    rm -rf "$WORK"
}

main
