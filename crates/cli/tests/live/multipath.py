"""Echoes digests over Multipath TCP: `server`, or `client CONNECTIONS CHUNKS PAUSE_MS`.

Each client connection sends chunks with pauses between them, and checks the digest that the server
returns. The client prints the number of connections that were right.
"""

import hashlib
import socket
import sys
import threading
import time

MPTCP = 262
SERVER = ("10.7.0.2", 5001)


def serve(connection):
    digest = hashlib.sha256()
    while data := connection.recv(65536):
        digest.update(data)
    connection.sendall(digest.digest())
    connection.close()


def server():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(SERVER)
    listener.listen(64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def client(number, chunks, pause, right):
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    connection.settimeout(60)
    connection.connect(SERVER)
    digest = hashlib.sha256()
    for chunk in range(chunks):
        data = hashlib.sha256(b"%d %d" % (number, chunk)).digest() * 400
        digest.update(data)
        connection.sendall(data)
        time.sleep(pause)
    connection.shutdown(socket.SHUT_WR)
    answer = b""
    while data := connection.recv(64):
        answer += data
    if answer == digest.digest():
        right.append(number)


if sys.argv[1] == "server":
    server()
else:
    connections, chunks, pause_ms = map(int, sys.argv[2:])
    right = []
    clients = [
        threading.Thread(target=client, args=(number, chunks, pause_ms / 1000, right))
        for number in range(connections)
    ]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    print(len(right))
