# asking.py serve ADDRESS...: answers each datagram with the address that it came from.
# asking.py ask FILE ADDRESS...: asks all of these from one endpoint of each subscriber, until the
# file is there. Prints the questions, those without an answer, and the answers of each subscriber.
import os, select, socket, sys, time

PORTS = (9001, 9002, 9003)


def serve(addresses):
    sockets = []
    for address in addresses:
        for port in PORTS:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((address, port))
            sockets.append(s)
    listening = socket.socket()
    listening.bind((addresses[0], 9000))
    listening.listen()
    while True:
        for s in select.select(sockets, [], [])[0]:
            data, peer = s.recvfrom(100)
            s.sendto(('%s:%d' % peer).encode(), peer)


def ask(stop, addresses):
    asking = {}
    for host in range(11, 19):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(('10.7.0.%d' % host, 5555))
        s.settimeout(2)
        asking[host] = (s, set())
    lost = asked = 0
    while not os.path.exists(stop):
        for s, answers in asking.values():
            for address in addresses:
                for port in PORTS:
                    asked += 1
                    s.sendto(b'?', (address, port))
                    try:
                        answers.add(s.recv(100).decode())
                    except TimeoutError:
                        lost += 1
        time.sleep(0.02)
    print(asked, lost, *('+'.join(sorted(answers)) for _, answers in asking.values()))


if sys.argv[1] == 'serve':
    serve(sys.argv[2:])
else:
    ask(sys.argv[2], sys.argv[3:])
