"""A host on loopback that does as little as possible. Arguments: files with a certificate and its key.

Prints two ports. The first says one byte, then sends as many as it is asked for. The second speaks HTTP over TLS: a path is
the length of its body, and below /keep it may be kept.
"""

import socket
import ssl
import sys
import threading

CHUNK = bytes(1 << 20)


def send(stream, size):
    while size:
        part = min(size, len(CHUNK))
        stream.sendall(CHUNK[:part] if part < len(CHUNK) else CHUNK)
        size -= part


def raw(stream):
    stream.sendall(b"x")
    for line in stream.makefile("rb"):
        send(stream, int(line))


def http(stream):
    stream = CONTEXT.wrap_socket(stream, server_side=True)
    lines = stream.makefile("rb")
    for line in lines:
        path = line.split()[1].decode()
        while lines.readline().strip():
            pass
        size = int(path.rsplit("/", 1)[1])
        kept = "Cache-Control: max-age=86400\r\n" if path.startswith("/keep") else "Cache-Control: no-store\r\n"
        head = f"HTTP/1.1 200 OK\r\n{kept}Content-Length: {size}\r\n\r\n".encode()
        if size < 4096:
            stream.sendall(head + CHUNK[:size])
        else:
            stream.sendall(head)
            send(stream, size)


def serve(answer):
    def one(stream):
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer(stream)
        except OSError:
            pass
        finally:
            stream.close()

    def accept():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    threading.Thread(target=accept).start()
    return listener.getsockname()[1]


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(sys.argv[1], sys.argv[2])
print(serve(raw), serve(http), flush=True)
