# enduring.py serve ADDRESS...: echoes lines at port 9100 of these addresses.
# enduring.py hold FILE SOURCES ADDRESS...: holds connections from each of the sources to each of
# the addresses in turn, 32 in all, and sends a long line over each every second, until the file is
# there. Prints the connections, those that broke, the lines echoed, and the longest wait for one
# in milliseconds.
# enduring.py delay MS JITTER INTERFACE INTERFACE: passes frames between two interfaces, each after
# MS +- JITTER milliseconds, so that some overtake others.
import asyncio, heapq, itertools, os, random, select, socket, sys, time

PORT, CONNECTIONS, LINE = 9100, 32, 4000


async def serve(addresses):
    async def echo(reader, writer):
        try:
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    servers = [await asyncio.start_server(echo, address, PORT) for address in addresses]
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def hold(stop, sources, addresses):
    broken, lines, longest = [], 0, 0.0

    async def one(source, address):
        nonlocal lines, longest
        try:
            reader, writer = await asyncio.open_connection(address, PORT, local_addr=(source, 0))
            for number in itertools.count():
                if os.path.exists(stop):
                    return writer.close()
                began = time.monotonic()
                writer.write(b'%d %s\n' % (number, b'x' * LINE))
                line = await asyncio.wait_for(reader.readline(), 60)
                if line.split(b' ')[0] != b'%d' % number:
                    raise ConnectionError('the end of the stream')
                took = time.monotonic() - began
                lines, longest = lines + 1, max(longest, took)
                await asyncio.sleep(max(0, 1 - took))
        except (OSError, asyncio.TimeoutError) as error:
            broken.append('%s-%s:%r' % (source, address, error))

    pairs = itertools.islice(itertools.cycle(itertools.product(sources, addresses)), CONNECTIONS)
    await asyncio.gather(*(one(*pair) for pair in pairs))
    print(CONNECTIONS, len(broken), lines, round(longest * 1e3), *broken)


def delay(ms, jitter, names):
    sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in names]
    for s, name in zip(sockets, names):
        s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        s.bind((name, 0))
    late, order = [], itertools.count()
    while True:
        wait = max(0, late[0][0] - time.monotonic()) if late else None
        for s in select.select(sockets, [], [], wait)[0]:
            frame, origin = s.recvfrom(1 << 16)
            if origin[2] != socket.PACKET_OUTGOING:
                due = time.monotonic() + (ms + random.uniform(-jitter, jitter)) / 1e3
                heapq.heappush(late, (due, next(order), sockets[s is sockets[0]], frame))
        while late and late[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(late)
            try:
                to.send(frame)
            except OSError:
                pass  # The interface is down.


if sys.argv[1] == 'serve':
    asyncio.run(serve(sys.argv[2:]))
elif sys.argv[1] == 'hold':
    asyncio.run(hold(sys.argv[2], sys.argv[3].split(','), sys.argv[4:]))
else:
    delay(float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
