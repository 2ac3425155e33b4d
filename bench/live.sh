#!/usr/bin/env bash
# What a NAT between two hosts takes: Rivulet on packet sockets and on AF_XDP beside the kernel's own (nftables masquerade), over the
# same veth pairs, in turn. Network namespaces on this machine; iperf3 sends and receives. It takes root, iproute2, nftables, iperf3.
#
#   bench/live.sh [ROUNDS [SECONDS]]
#
# For each, the medians of all rounds:
#
# - udp_BYTES_kpps: packets of UDP that leave the NAT in a second, of 64 and of 1,400 bytes, as many as are sent. That the receiver
#   takes them all is not asked for: its program is often the slowest;
# - own_BYTES_ns: processor time that the NAT itself takes for a packet, at a rate that all of them carry: what iperf3 at both
#   ends, Rivulet, and the kernel's threads for frames (ksoftirqd) run for, less what they do where the hosts are connected
#   directly, without a NAT. The kernel's NAT works on the time of whoever sends; so does what takes in what Rivulet sends;
# - drain_64_ns: processor time that Rivulet takes for a packet where many wait: it is stopped while they come, and then goes on. That
#   is what it can carry with a core of its own, with what the kernel does for it in its system calls, up to the receiver's socket;
#   drain_64_kernel: the share of it that is the kernel's, in those calls, where `perf` is installed; wire_64_ns, wire_64_kernel: the
#   same of a policy without functions, which is what the ports cost that a NAT is put between;
# - tcp_gbit: TCP's throughput; ping_ms: the round-trip time of a ping while nothing else is sent.
#
# Sender, receiver and what is between them share the machine's cores, so that rates say what is left for the NAT beside them.
set -euo pipefail

ROUNDS=${1:-3}
SECONDS_EACH=${2:-4}
HERE=$(cd "$(dirname "$0")/.." && pwd)
RIVULET=$HERE/target/release/rivulet
readonly ROUNDS SECONDS_EACH HERE RIVULET
readonly PACED_KPPS=100
readonly C=rvlbc$$ M=rvlbm$$ S=rvlbs$$
WORK=$(mktemp -d)
PID=

main() {
    for tool in ip nft iperf3 ping python3; do
        command -v "$tool" >/dev/null || { echo "bench/live.sh: $tool is not installed" >&2; exit 1; }
    done
    [[ -x $RIVULET ]] || cargo build --release --manifest-path "$HERE/Cargo.toml"
    trap clean EXIT
    hosts
    for ((round = 1; round <= ROUNDS; round++)); do
        echo "round $round of $ROUNDS" >&2
        own direct 192.0.2.2
        kernel_on; measure kernel; kernel_off
        for io in packet xdp; do
            rivulet_on nat $io; measure $io; drain drain $io; rivulet_off
            rivulet_on wire $io; drain wire $io; rivulet_off
        done
    done
    report
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
    ip -n $S addr add 203.0.113.2/24 dev eth0
    for ns in $C $S; do ip -n $ns link set eth0 up; done
    ip link add direct netns $C type veth peer name direct netns $S
    ip -n $C addr add 192.0.2.1/24 dev direct
    ip -n $S addr add 192.0.2.2/24 dev direct
    for ns in $C $S; do ip -n $ns link set direct up; done
    ip -n $C route add default via 10.7.0.254
    ip netns exec $S iperf3 -s -D
    cat >"$WORK/nat.rvl" <<'POLICY'
Port<0> inside { address: "10.7.0.254/24" };
Port<1> outside { address: "203.0.113.1/24" };
NAT translate { external: [203.0.113.1] };
pipelet { inside <-> translate <-> outside; }
POLICY
    grep '^Port' "$WORK/nat.rvl" >"$WORK/wire.rvl"
    echo 'pipelet { inside <-> outside; }' >>"$WORK/wire.rvl"
    ip -n $S route add 10.7.0.0/24 via 203.0.113.1
}

kernel_on() {
    ip -n $M addr add 10.7.0.254/24 dev inside
    ip -n $M addr add 203.0.113.1/24 dev outside
    ip netns exec $M sysctl -qw net.ipv4.ip_forward=1
    ip netns exec $M nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; };
        add rule ip nat post oifname "outside" masquerade'
}

kernel_off() {
    ip netns exec $M nft flush ruleset
    ip netns exec $M sysctl -qw net.ipv4.ip_forward=0
    ip -n $M addr flush dev inside
    ip -n $M addr flush dev outside
}

# rivulet_on POLICY IO
rivulet_on() {
    ip netns exec $M "$RIVULET" up "$WORK/$1.rvl" --port inside=inside --port outside=outside --io "$2" --quiet &
    PID=$!
    sleep 1
}

rivulet_off() {
    kill $PID
    wait $PID
    PID=
}

# Each figure is a line of: who, what, value.
measure() {
    ip netns exec $C ping -q -c 1 -W 2 203.0.113.2 >/dev/null || true
    local ping
    ping=$(ip netns exec $C ping -q -c 200 -i 0.005 203.0.113.2 | awk -F/ '/^rtt/ {print $5}')
    echo "$1 ping_ms $ping" >>"$WORK/figures"
    for size in 22 1358; do # With headers, 64 and 1,400 bytes.
        udp "$1" $size
    done
    own "$1" 203.0.113.2
    ip netns exec $C iperf3 -c 203.0.113.2 -t "$SECONDS_EACH" -J |
        python3 -c "import json,sys; print('$1 tcp_gbit', json.load(sys.stdin)['end']['sum_received']['bits_per_second']/1e9)" >>"$WORK/figures"
}

udp() {
    local before after
    before=$(left)
    ip netns exec $C iperf3 -c 203.0.113.2 -u -b 0 -l "$2" -t "$SECONDS_EACH" >/dev/null
    after=$(left)
    python3 -c "print('$1 udp_$(($2 + 42))_kpps', ($after - $before) / $SECONDS_EACH / 1e3)" >>"$WORK/figures"
}

# How many packets have left the NAT to the outside.
left() {
    ip -n $M -j -s link show outside | python3 -c "import json,sys; print(json.load(sys.stdin)[0]['stats64']['tx']['packets'])"
}

# How long all who have to do with it run per packet that is sent, at an even rate.
own() {
    for size in 22 1358; do
        python3 - "$1" "$2" $size $PACED_KPPS "$SECONDS_EACH" $C $S "$PID" >>"$WORK/figures" <<'PYTHON'
import json, os, resource, subprocess, sys
who, target, size, kpps, seconds, client, server, rivulet = sys.argv[1:]
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
print(f"{who} ran_{int(size) + 42}_ns", ran / json.loads(said)["end"]["sum"]["packets"])
PYTHON
    done
}

# drain WHAT IO: what Rivulet runs for per packet of some thousands that wait for it, no more than AF_XDP's rings have room for.
drain() {
    ip netns exec $S python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('203.0.113.2', 9))
time.sleep(60)" &
    local receiver=$!
    sleep 0.5
    ip netns exec $C python3 - "$@" $PID "$WORK" >>"$WORK/figures" <<'PYTHON'
import os, shutil, signal, socket, subprocess, sys, time
what, who, pid, work = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
PACKETS, TIMES = 3500, 60
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("203.0.113.2", 9))
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
print(f"{who} {what}_64_ns", (ran - idle * 0.2 * TIMES) / (PACKETS * TIMES))
if perf:
    perf.send_signal(signal.SIGINT)
    perf.wait()
    print(f"{who} {what}_64_kernel", kernel_share(samples))
PYTHON
    kill $receiver
    wait $receiver || true
}

report() {
    python3 - "$WORK/figures" <<'PYTHON'
import statistics, sys
figures = {}
for line in open(sys.argv[1]):
    who, what, value = line.split()
    figures.setdefault(what, {}).setdefault(who, []).append(float(value))
print("%-21s %10s %10s %10s %16s %13s" % ("", "kernel", "packet", "xdp", "packet / kernel", "xdp / kernel"))
for what, by in figures.items():
    value = {who: statistics.median(values) for who, values in by.items()}
    if "direct" in value:
        what = what.replace("ran", "own")
        value = {who: ran - value["direct"] for who, ran in value.items()}
    if "kernel" not in value:
        print("%-21s %10s %10.3f %10.3f" % (what, "", value["packet"], value["xdp"]))
        continue
    kernel, packet, xdp = (value[who] for who in ("kernel", "packet", "xdp"))
    print("%-21s %10.3f %10.3f %10.3f %16.2f %13.2f" % (what, kernel, packet, xdp, packet / kernel, xdp / kernel))
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
