"""Measures connections, inside a container and on the host alike.

Arguments: where things are (JSON), then what to do. Prints a line for each measurement: its name and nanoseconds.
"""

import json
import socket
import ssl
import struct
import sys
import time

PLACES = json.loads(sys.argv[1])
CHUNK = memoryview(bytearray(1 << 20))
CONTEXT = ssl._create_unverified_context()


def address(name):
    host, port = PLACES[name]
    return socket.gethostbyname(host), port


def connect(name):
    stream = socket.create_connection(ADDRESSES[name])
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def secured(name):
    return CONTEXT.wrap_socket(connect(name), server_hostname=PLACES["server_name"])


def ask(stream, path):
    """Sends a request; returns the length of the body that follows, and what of it has come."""
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {PLACES['server_name']}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(4096)
    head, _, body = head.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(length.split(b":")[1]), len(body)


def fetch(stream, path):
    length, come = ask(stream, path)
    while come < length:
        count = stream.recv_into(CHUNK)
        assert count, "it was cut off"
        come += count


def dns():
    question = b"".join(bytes([len(label)]) + label for label in PLACES["raw"][0].encode().split(b".")) + b"\0"
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + question + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect(("127.0.0.1", 53))
        own.send(query)
        assert own.recv(512)[6:8] == b"\0\1", "no address"


def first_byte():
    with connect("raw") as stream:
        assert stream.recv(1)


def tls_new():
    with secured("tls") as stream:
        fetch(stream, "/1")


def denied():
    host = "refused.example.com"
    with socket.create_connection((socket.gethostbyname(host), 443)) as stream:
        with CONTEXT.wrap_socket(stream, server_hostname=host) as stream:
            stream.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert stream.recv(4096).startswith(b"HTTP/1.1 403")


def timed(name, work):
    start = time.perf_counter_ns()
    work()
    print(name, time.perf_counter_ns() - start, flush=True)


def calls(count, is_inside):
    """Each kind in turns."""
    kept = secured("tls")
    fetch(kept, "/1")
    for _ in range(int(count)):
        timed("first", first_byte)
        timed("new", tls_new)
        timed("kept", lambda: fetch(kept, "/1"))
        if is_inside == "inside":
            timed("dns", dns)
            timed("denied", denied)


def raw(size):
    with connect("raw") as stream:
        stream.recv(1)
        stream.sendall(f"{size}\n".encode())
        left = int(size)
        while left:
            count = stream.recv_into(CHUNK, min(left, len(CHUNK)))
            assert count, "it was cut off"
            left -= count


def opened(path):
    with secured("tls") as stream:
        timed("download", lambda: fetch(stream, path))


def idle(count):
    """Holds connections that carry nothing."""
    held = [connect("raw") for _ in range(int(count))]
    for stream in held:
        stream.recv(1)
    print("idle", 0, flush=True)
    time.sleep(600)


def pairs(count):
    """Holds TLS connections that have carried something."""
    held = [secured("tls") for _ in range(int(count))]
    for stream in held:
        fetch(stream, "/1")
    print("idle", 0, flush=True)
    time.sleep(600)


def stopped(count):
    """Asks for much on each connection, and reads nothing of it."""
    held = [connect("raw") for _ in range(int(count))]
    for stream in held:
        stream.recv(1)
        stream.sendall(b"1000000000\n")
    print("idle", 0, flush=True)
    time.sleep(600)


def short(count):
    for _ in range(int(count)):
        first_byte()


def ticks(count):
    """Says every now and then what time it is."""
    for _ in range(int(count)):
        print("tick", time.time_ns(), flush=True)
        time.sleep(0.02)


ADDRESSES = {} if sys.argv[2] in ("nothing", "ticks") else {name: address(name) for name in ("raw", "tls")}
WORK = {
    "calls": calls,
    "raw": lambda size: timed("download", lambda: raw(size)),
    "opened": opened,
    "idle": idle,
    "pairs": pairs,
    "stopped": stopped,
    "short": short,
    "ticks": ticks,
    "nothing": lambda: None,
}
WORK[sys.argv[2]](*sys.argv[3:])
