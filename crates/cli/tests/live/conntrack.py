"""Sends frames through the router in the middle, and says which of them it passes on.

Arguments: the names of two network namespaces with an interface eth0 each, the client's and the server's. Standard input: for each frame
a line with its direction (> or <), a marker and the frame itself, in hexadecimal. The marker, a frame that always passes, goes behind the
frame: once it has come, the frame will not come any more. Standard output: for each frame a line, pass or drop.
"""

import ctypes
import os
import socket
import sys

NEW_NETWORK = 0x40000000
OUTGOING = 4

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # Frames keep their order.
libc = ctypes.CDLL(None, use_errno=True)


def end_in(namespace):
    with open(f"/var/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    end.bind(("eth0", 0))
    end.settimeout(10)
    return end


def number(frame):
    return frame[18:20]


client, server = end_in(sys.argv[1]), end_in(sys.argv[2])
for line in sys.stdin:
    direction, marker, frame = line.split()
    marker, frame = bytes.fromhex(marker), bytes.fromhex(frame)
    sender, receiver = (client, server) if direction == ">" else (server, client)
    sender.send(frame)
    sender.send(marker)
    passed = False
    while True:
        got, address = receiver.recvfrom(65536)
        if address[2] == OUTGOING or len(got) < 20:
            continue
        passed |= number(got) == number(frame)
        if number(got) == number(marker):
            break
    print("pass" if passed else "drop")
