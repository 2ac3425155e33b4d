# Clients and servers that measure for how long traffic stalls. Each sample is a line of FILE: when
# it was sent (ns since 1970), its delay in ns, its number. A number that is missing was lost.
#
# stalls.py udp-server FILE ADDRESS: waits for a client, then sends to it as it does.
# stalls.py udp FILE FROM ADDRESS: sends a datagram each millisecond, and has as many sent back.
# stalls.py tcp-server: at port 8000, streams or answers as a client wants.
# stalls.py stream FILE FROM ADDRESS PORT: downloads 1 MB/s in blocks, each with its time.
# stalls.py connect FILE FROM ADDRESS PORT: connects and gets an answer, four times a second.
# stalls.py resolve FILE FROM ADDRESS: asks a name server by dig, twice a second.
# stalls.py type FILE COMMAND...: has `cat` behind a command such as ssh repeat a line, 50 times a second.
import os, re, signal, socket, struct, subprocess, sys, time

UDP_PORT, TCP_PORT = 7001, 8000
HEAD = struct.Struct('!QQ')
BLOCK, BLOCK_S = 4096, 0.004
SO_TIMESTAMPNS = 35
LOSS_S = 5


def family(address):
    return socket.AF_INET6 if ':' in address else socket.AF_INET


def paced(period_s):
    """Yields numbers, one a period; without those of the time for which this process had to wait."""
    at, number = time.monotonic(), 0
    while True:
        yield number
        number += 1
        at = max(at + period_s, time.monotonic())
        time.sleep(max(0, at - time.monotonic()))


def receive(s, size):
    """Returns what has come, and when it came by the kernel's clock."""
    data, ancillary, _, _ = s.recvmsg(size, 64)
    for _, kind, value in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, ns = struct.unpack('qq', value)
            return data, seconds * 10**9 + ns
    return data, time.time_ns()


def sample(out, sent, now, number):
    out.write('%d %d %d\n' % (sent, now - sent, number))


def exchange(s, file):
    """Sends and receives datagrams on a connected socket."""
    other = os.fork()
    if other == 0:
        with open(file, 'w') as out:
            while True:
                try:
                    data, now = receive(s, 100)
                except ConnectionError:
                    continue
                if len(data) == HEAD.size:
                    number, sent = HEAD.unpack(data)
                    sample(out, sent, now, number)
    try:
        for number in paced(0.001):
            try:
                s.send(HEAD.pack(number, time.time_ns()))
            except ConnectionError:
                pass
    finally:
        os.kill(other, signal.SIGTERM)
        os.waitpid(other, 0)


def udp_socket(address, port):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.bind((address, port))
    return s


def udp_server(file, address):
    s = udp_socket(address, UDP_PORT)
    _, peer = s.recvfrom(100)
    s.connect(peer)
    exchange(s, file)


def udp(file, source, address):
    s = udp_socket(source, 0)
    s.connect((address, UDP_PORT))
    exchange(s, file)


def tcp_server():
    listening = socket.create_server(('::', TCP_PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100)
    while True:
        s, _ = listening.accept()
        if s.recv(1) != b's':
            s.send(b'a')
        elif os.fork() == 0:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in paced(BLOCK_S):
                s.sendall(HEAD.pack(number, time.time_ns()) + bytes(BLOCK - HEAD.size))
        s.close()


def connection(source, address, port, wish):
    s = socket.create_connection((address, int(port)), LOSS_S, (source, 0))
    s.sendall(wish)
    return s


def stream(file, source, address, port):
    s = connection(source, address, port, b's')
    s.settimeout(None)
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    kept = b''
    with open(file, 'w') as out:
        while True:
            data, now = receive(s, 1 << 16)
            if not data:
                sys.exit('the stream has ended')
            kept += data
            while len(kept) >= BLOCK:
                number, sent = HEAD.unpack_from(kept)
                sample(out, sent, now, number)
                kept = kept[BLOCK:]


def connect(file, source, address, port):
    with open(file, 'w') as out:
        for number in paced(0.25):
            sent = time.time_ns()
            try:
                with connection(source, address, port, b'a') as s:
                    if s.recv(1) == b'a':
                        sample(out, sent, time.time_ns(), number)
            except OSError:
                pass


def resolve(file, source, address):
    line = ['dig', '-u', '+tries=1', '+timeout=%d' % LOSS_S, '-b', source, '@' + address, 'www.example.org']
    with open(file, 'w') as out:
        for number in paced(0.5):
            sent = time.time_ns()
            said = subprocess.run(line, stdout=subprocess.PIPE, text=True).stdout
            took = re.search(r'Query time: (\d+) usec', said)
            if took:
                sample(out, sent, sent + int(took[1]) * 1000, number)


def type_(file, *command):
    ssh = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with open(file, 'w') as out:
        for number in paced(0.02):
            sent = time.time_ns()
            ssh.stdin.write(b'%d\n' % number)
            if ssh.stdout.readline() != b'%d\n' % number:
                sys.exit('the session has ended')
            sample(out, sent, time.time_ns(), number)


def end(*_):
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
PROGRAMS = {
    'udp-server': udp_server, 'udp': udp, 'tcp-server': tcp_server, 'stream': stream, 'connect': connect,
    'resolve': resolve, 'type': type_,
}
PROGRAMS[sys.argv[1]](*sys.argv[2:])
