#!/usr/bin/env bash
# Rivulet on network interfaces for as long as one likes, under a mixed load, with interfaces that go down and up and neighbours that
# get other cards. Network namespaces on this machine; a router with a NAT, a firewall and a monitor is between two hosts. It takes
# root, iproute2, iperf3, curl, ping and python3.
#
#   bench/soak.sh [MINUTES [SEED]]
#
# The load: iperf3 by TCP and by UDP, curl, ping, and new flows all the time, some hundreds in a second. Every few seconds, at times
# and in an order that follow from SEED, an interface goes down for up to two seconds and up again, or is taken away and put back, or a
# host gets another address of its card. IO=packet or IO=xdp says by which way frames come and go, else Rivulet chooses; RIVULET
# names the program.
#
# It fails:
#
# - if Rivulet ends, or does not end well when it is told to, or its report does not account for every packet;
# - if a ping does not come back within a second after an interface is up again, as the kernel says it at both ends;
# - if, behind a warm-up of a quarter of the time and ten minutes at most, its resident memory grows by more than 16 MiB, or it has more
#   than four files open beyond those of then. Its table of flows is small, and full by then.
set -euo pipefail

MINUTES=${1:-10}
SEED=${2:-1}
IO=${IO:-auto}
HERE=$(cd "$(dirname "$0")/.." && pwd)
RIVULET=${RIVULET:-$HERE/target/dist/rivulet}
readonly MINUTES SEED IO HERE RIVULET
readonly C=rvlsc$$ M=rvlsm$$ S=rvlss$$
WORK=$(mktemp -d)
PID=
LOADS=()

main() {
    for tool in ip iperf3 curl ping python3; do
        command -v "$tool" >/dev/null || { echo "bench/soak.sh: $tool is not installed" >&2; exit 1; }
    done
    [[ -x $RIVULET ]] || cargo build --profile dist --manifest-path "$HERE/Cargo.toml"
    trap clean EXIT
    hosts
    rivulet_on
    loads
    watch
}

hosts() {
    for ns in $C $M $S; do
        ip netns add $ns
        ip -n $ns link set lo up
    done
    connect inside $C 10.7.0.1/24
    connect outside $S 203.0.113.2/24
    ip -n $C route add default via 10.7.0.254
}

# connect NAME HOST ADDRESS: an interface of this name in the middle, and the host's `eth0` at its other end.
connect() {
    ip link add "$1" netns $M type veth peer name eth0 netns "$2"
    ip -n $M link set "$1" up
    ip -n "$2" addr add "$3" dev eth0
    ip -n "$2" link set eth0 up
}

rivulet_on() {
    cat >"$WORK/soak.rvl" <<'POLICY'
Port<0> inside { address: "10.7.0.254/24" };
Port<1> outside { address: "203.0.113.1/24" };
settings { flows: 4k };
NAT translate { external: [203.0.113.1] };
Firewall gate { rules: "allow out any" };
Monitor watch;
pipelet { inside <-> translate <-> gate <-> watch <-> outside; }
POLICY
    ip netns exec $M "$RIVULET" up "$WORK/soak.rvl" --port inside=inside --port outside=outside --driver "$IO" -o json \
        >"$WORK/report.json" 2>"$WORK/said" &
    PID=$!
    sleep 1
    cat "$WORK/said"
}

# What is cut off by an interface that is down begins anew.
loads() {
    head -c 20M /dev/urandom >"$WORK/file"
    server iperf3 -s -1 -p 5201 --rcv-timeout 5000
    server iperf3 -s -1 -p 5202 --rcv-timeout 5000
    server python3 -m http.server 8080 --directory "$WORK"
    server python3 -c "$ANSWERS"
    client iperf3 -c 203.0.113.2 -p 5201 -t 8 -b 150M
    client iperf3 -c 203.0.113.2 -p 5202 -t 8 -u -b 20M -l 1000
    client curl -s -m 10 --limit-rate 10M -o "$WORK/copy" http://203.0.113.2:8080/file
    client ping -q -c 50 -i 0.1 203.0.113.2
    client python3 -c "$NEW_FLOWS"
}

server() { again $S "$@"; }
client() { again $C "$@"; }

again() {
    local host=$1
    shift
    (
        trap 'kill $(jobs -p) 2>/dev/null; exit 0' TERM
        while true; do
            ip netns exec "$host" timeout 30 "$@" >/dev/null 2>&1 &
            wait $! || true
            sleep 0.2 &
            wait $!
        done
    ) &
    LOADS+=($!)
}

# Answers datagrams, and takes connections and ends them.
readonly ANSWERS='
import selectors, socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 7))
tcp = socket.create_server(("", 7), backlog=500)
both = selectors.DefaultSelector()
both.register(udp, selectors.EVENT_READ)
both.register(tcp, selectors.EVENT_READ)
while True:
    for key, _ in both.select():
        if key.fileobj is udp:
            data, who = udp.recvfrom(2000)
            try:
                udp.sendto(data, who)
            except OSError:
                pass
        else:
            tcp.accept()[0].close()
'

# A new flow every few milliseconds, one in four of them a connection.
readonly NEW_FLOWS='
import socket, time
number = 0
while True:
    number += 1
    try:
        if number % 4:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.sendto(b"new", ("203.0.113.2", 7))
        else:
            socket.create_connection(("203.0.113.2", 7), 0.5).close()
    except OSError:
        pass
    time.sleep(0.004)
'

# Makes things happen, looks at the process, and says what it has seen.
watch() {
    python3 - "$MINUTES" "$SEED" "$PID" $C $M $S "$WORK/report.json" <<'PYTHON'
import json, os, random, signal, subprocess, sys, time
minutes, seed, pid, inside, middle, outside, report = sys.argv[1:]
pid = int(pid)
ALLOWED_KIB, ALLOWED_FILES, ALLOWED_S = 16 << 10, 4, 1.0
HOSTS = {"inside": (inside, "10.7.0.1/24"), "outside": (outside, "203.0.113.2/24")}
chance = random.Random(int(seed))
began = time.monotonic()
ends = began + float(minutes) * 60
warm = began + min(float(minutes) * 15, 600)

def fail(why):
    print(f"FAILED after {time.monotonic() - began:.0f} s: {why}")
    sys.exit(1)

def ip(*words):
    subprocess.run(["ip", *words], check=True)

def comes_back():
    line = ["ip", "netns", "exec", inside, "ping", "-q", "-c", "1", "-W", "0.1", "203.0.113.2"]
    return subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

def is_up(which):
    """Both ends: the kernel may take up to a second to tell a host that its link is there again."""
    host, _ = HOSTS[which]
    for place, name in ((middle, which), (host, "eth0")):
        said = subprocess.run(["ip", "-n", place, "-j", "link", "show", name], capture_output=True, check=True).stdout
        if json.loads(said)[0]["operstate"] != "UP":
            return False
    return True

back = {}
def expect_back(event):
    """Until a ping comes back, with the time that it took."""
    set_up = time.monotonic()
    while not is_up(event.split()[1]):
        if time.monotonic() - set_up > 10:
            fail(f"{event}: the interface did not come up within 10 s")
        time.sleep(0.01)
    up = time.monotonic()
    while not comes_back():
        if time.monotonic() - up > 10:
            fail(f"{event}: no ping came back within 10 s")
    took = time.monotonic() - up
    back.setdefault(event.split()[0], []).append(took)
    if took > ALLOWED_S:
        fail(f"{event}: a ping came back only after {took:.2f} s")

def down():
    which, rest = chance.choice(sorted(HOSTS)), chance.uniform(0.05, 2)
    ip("-n", middle, "link", "set", which, "down")
    time.sleep(rest)
    ip("-n", middle, "link", "set", which, "up")
    expect_back(f"down {which} for {rest:.2f} s")

def gone():
    which, rest = chance.choice(sorted(HOSTS)), chance.uniform(0.05, 2)
    host, address = HOSTS[which]
    ip("-n", middle, "link", "del", which)
    time.sleep(rest)
    ip("link", "add", which, "netns", middle, "type", "veth", "peer", "name", "eth0", "netns", host)
    ip("-n", host, "addr", "add", address, "dev", "eth0")
    ip("-n", host, "link", "set", "eth0", "up")
    if which == "inside":
        ip("-n", host, "route", "add", "default", "via", "10.7.0.254")
    ip("-n", middle, "link", "set", which, "up")
    expect_back(f"gone {which} for {rest:.2f} s")

def neighbour():
    which = chance.choice(sorted(HOSTS))
    host, _ = HOSTS[which]
    mac = "02:" + ":".join(f"{chance.randrange(256):02x}" for _ in range(5))
    for change in (["down"], ["address", mac], ["up"]):
        ip("-n", host, "link", "set", "eth0", *change)
    if which == "inside":
        ip("-n", host, "route", "replace", "default", "via", "10.7.0.254")
    # As a host does that comes up anew: it speaks, and is known.
    gateway = "10.7.0.254" if which == "inside" else "203.0.113.1"
    subprocess.run(["ip", "netns", "exec", host, "ping", "-q", "-c", "1", "-W", "1", gateway], stdout=subprocess.DEVNULL)
    expect_back(f"neighbour {which}")

def look():
    """Resident memory in KiB, and open files."""
    try:
        status = open(f"/proc/{pid}/status").read()
        memory = int(status.split("VmRSS:")[1].split()[0])
        return memory, len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, IndexError):
        fail("Rivulet has ended")

most, then = [0, 0], None
event_at = time.monotonic() + 5
while time.monotonic() < ends:
    now = time.monotonic()
    seen = look()
    most = [max(pair) for pair in zip(most, seen)]
    if now >= warm:
        then = then or most
        if most[0] > then[0] + ALLOWED_KIB:
            fail(f"memory has grown from {then[0]} to {most[0]} KiB")
        if most[1] > then[1] + ALLOWED_FILES:
            fail(f"open files have become {most[1]}, from {then[1]}")
    if now >= event_at:
        chance.choices([down, gone, neighbour], [4, 1, 2])[0]()
        event_at = time.monotonic() + chance.uniform(1, 6)
    time.sleep(0.5)

os.kill(pid, signal.SIGTERM)
for _ in range(100):
    # Its parent is not this program: it is gone when its report is whole.
    try:
        told = json.load(open(report))
        break
    except ValueError:
        time.sleep(0.1)
else:
    fail("it did not end within 10 s")
came = told["packets_in"] + told["packets_generated"]
if came != told["packets_out"] + told["packets_pending"] + sum(told["drops"].values()):
    fail(f"the report does not account for every packet: {told}")
print(f"{minutes} minutes, seed {seed}: {told['packets_in']} packets, {told['bytes_in']} bytes, {told['flows']['started']} flows")
for what, times in sorted(back.items()):
    print(f"{what}: {len(times)} times, traffic came back after {max(times) * 1000:.0f} ms at most, {sorted(times)[len(times) // 2] * 1000:.0f} in the middle")
print(f"memory: {then[0]} KiB at most in the warm-up, {most[0]} in all; open files: {then[1]} and {most[1]}")
PYTHON
    wait $PID || { echo "FAILED: Rivulet ended with code $?"; exit 1; }
    PID=
    echo passed
}

clean() {
    for load in ${LOADS[@]+"${LOADS[@]}"}; do kill "$load" 2>/dev/null || true; done
    [[ -z $PID ]] || kill "$PID" 2>/dev/null || true
    for ns in $C $M $S; do
        ip netns pids $ns 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del $ns 2>/dev/null || true
    done
    rm -rf "$WORK"
}

main
