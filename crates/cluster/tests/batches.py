# batches.py LEN: sends a batch of datagrams of this length to this machine, by IPv4 and by IPv6, and
# prints the frames that the loopback device got for each.
import socket, struct, sys

SEGMENT = 1424
SOL_UDP, UDP_SEGMENT = 17, 103


def frames():
    for line in open('/proc/net/dev'):
        name, _, numbers = line.partition(':')
        if name.strip() == 'lo':
            return int(numbers.split()[1])


for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((address, 0))
    sender = socket.socket(family, socket.SOCK_DGRAM)
    before = frames()
    segment = [(SOL_UDP, UDP_SEGMENT, struct.pack('=H', SEGMENT))]
    sender.sendmsg([bytes(int(sys.argv[1]))], segment, 0, receiver.getsockname())
    receiver.recv(65536)
    print(frames() - before)
