"""Keeps one Python interpreter for a session and passes the server's requests to it.

    server ── tunnel ──▶ socket ── supervisor ── socket pair ── interpreter (runs the cells)
                                        └───── two pipes ────── its stdout and stderr, and its children's

Two processes, so that a busy or broken interpreter cannot keep the channel silent. The supervisor runs no cell. When
the interpreter says that a cell has ended, all that the cell wrote is in the pipes: the supervisor sends as much as the
pipes hold at that moment, then the end. What background threads write later belongs to the next cell.

Frames are a length (4 bytes, big endian) and so many bytes. A frame for the server begins with a byte for its kind.
Cells may write to all of this. That harms only their own session: the server believes nothing that it reads here.
"""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios

STDOUT, STDERR, EVENT = 1, 2, 3

FRAME_BYTES_MAX = 64 << 20
CHUNK_BYTES = 64 << 10


def pack(data):
    return struct.pack(">I", len(data)) + data


def take_frame(buffer):
    """Removes the first frame from a buffer and returns it, or None if it is not complete."""
    if len(buffer) < 4:
        return None
    (size,) = struct.unpack_from(">I", buffer)
    if size > FRAME_BYTES_MAX:
        raise ValueError("a frame is too long")
    if len(buffer) < 4 + size:
        return None
    frame = bytes(buffer[4 : 4 + size])
    del buffer[: 4 + size]
    return frame


def held_bytes(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


class Supervisor:
    def __init__(self, listener, control, pipes, pid, wakeup):
        self.listener, self.control, self.pipes, self.pid = listener, control, pipes, pid
        self.wakeup = wakeup
        self.server = None
        self.from_server, self.from_interpreter = bytearray(), bytearray()
        # The newest request that was passed on, and whether it still runs.
        self.last_id, self.is_busy = 0, False
        # Whether it can be interrupted yet, and whether it shall be.
        self.has_begun, self.is_interrupted = False, False
        self.is_over = False

    def run(self):
        while not self.is_over:
            handlers = self.handlers()
            poll = select.poll()
            for descriptor in handlers:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll():
                if not self.is_over:
                    handlers[descriptor]()

    def handlers(self):
        handlers = {self.control.fileno(): self.read_control, self.wakeup: self.reap}
        if self.server is None:
            handlers[self.listener.fileno()] = self.accept
        else:
            handlers[self.server.fileno()] = self.read_server
        # Between cells nobody would get the output: it waits in the pipes for the next one.
        if self.is_busy:
            for stream, pipe in self.pipes.items():
                handlers[pipe] = lambda stream=stream: self.forward(stream, CHUNK_BYTES)
        return handlers

    def accept(self):
        self.server, _ = self.listener.accept()
        self.from_server.clear()
        version = "%d.%d.%d" % sys.version_info[:3]
        self.tell({"event": "hello", "last_id": self.last_id, "busy": self.is_busy, "python": version})

    def read_server(self):
        if self.server is None:
            # Sending to it has failed in this round.
            return
        try:
            data = self.server.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self.lose_server()
            return
        self.from_server += data
        try:
            while self.server is not None:
                frame = take_frame(self.from_server)
                if frame is None:
                    break
                self.serve(json.loads(frame.decode()), frame)
        except ValueError:
            self.lose_server()

    def serve(self, request, frame):
        if request["op"] == "interrupt":
            if self.is_busy and request["id"] == self.last_id:
                self.interrupt()
        elif request["id"] > self.last_id and not self.is_busy:
            self.last_id, self.is_busy = request["id"], True
            self.has_begun, self.is_interrupted = False, False
            try:
                self.control.sendall(pack(frame))
            except OSError:
                self.end_interpreter()

    def lose_server(self):
        """Nobody waits for the cell that runs: it is interrupted, and what it still writes is dropped."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if self.is_busy:
            self.interrupt()

    def interrupt(self):
        """Interrupts the cell once it has begun: before that, the interpreter ignores the signal."""
        self.is_interrupted = True
        if not self.has_begun:
            return
        try:
            os.kill(self.pid, signal.SIGINT)
        except OSError:
            pass

    def read_control(self):
        try:
            data = self.control.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self.end_interpreter()
            return
        self.from_interpreter += data
        try:
            while not self.is_over:
                frame = take_frame(self.from_interpreter)
                if frame is None:
                    break
                self.take_event(json.loads(frame.decode()), frame)
        except (ValueError, KeyError, TypeError):
            self.end_interpreter()

    def take_event(self, event, frame):
        if not self.is_busy or event["id"] != self.last_id:
            return
        if event["event"] == "begun":
            self.has_begun = True
            if self.is_interrupted:
                self.interrupt()
            return
        self.flush()
        self.is_busy = False
        self.send(EVENT, frame)

    def flush(self):
        """Sends what is in the pipes now, and nothing that comes meanwhile."""
        for stream, pipe in self.pipes.items():
            left = held_bytes(pipe)
            while left > 0:
                sent = self.forward(stream, min(left, CHUNK_BYTES))
                if sent == 0:
                    break
                left -= sent

    def forward(self, stream, bytes_max):
        try:
            data = os.read(self.pipes[stream], bytes_max)
        except BlockingIOError:
            return 0
        if data:
            self.send(stream, data)
        return len(data)

    def reap(self):
        try:
            os.read(self.wakeup, CHUNK_BYTES)
        except BlockingIOError:
            pass
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self.end_interpreter()

    def end_interpreter(self):
        """Tells how the interpreter ended. One that closed its channel is killed: it cannot be reached."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        except OSError:
            status = 0
        # What it said before it died counts.
        self.is_over = True
        self.flush()
        ended = {"event": "died", "id": self.last_id if self.is_busy else 0}
        if os.WIFSIGNALED(status):
            ended["signal"] = os.WTERMSIG(status)
        else:
            ended["code"] = os.WEXITSTATUS(status)
        self.tell(ended)

    def tell(self, event):
        self.send(EVENT, json.dumps(event).encode())

    def send(self, kind, data):
        if self.server is None:
            return
        try:
            self.server.sendall(struct.pack(">IB", len(data) + 1, kind) + data)
        except OSError:
            self.lose_server()


def high(descriptor):
    """The same file under a number that cells do not come across by accident."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(descriptor)
    return moved


def main(path):
    umask = os.umask(0o077)
    listener = socket.socket(socket.AF_UNIX)
    try:
        # Of one that was killed.
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener.bind(path)
    listener.listen(1)
    os.umask(umask)
    control, control_inside = socket.socketpair()
    stdout, stdout_inside = os.pipe()
    stderr, stderr_inside = os.pipe()
    wakeup, wakeup_inside = os.pipe()
    for pipe in (stdout, stderr, wakeup, wakeup_inside):
        os.set_blocking(pipe, False)
    pid = os.fork()
    if pid == 0:
        listener.close()
        control.close()
        for pipe in (stdout, stderr, wakeup, wakeup_inside):
            os.close(pipe)
        return (
            socket.socket(fileno=high(control_inside.detach())),
            high(stdout_inside),
            high(stderr_inside),
        )
    control_inside.close()
    os.close(stdout_inside)
    os.close(stderr_inside)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_inside, warn_on_full_buffer=False)
    # It may have died before there was a handler.
    os.write(wakeup_inside, b"\0")
    pipes = {STDOUT: stdout, STDERR: stderr}
    # Whoever started us can connect now.
    os.write(1, b"ready\n")
    try:
        Supervisor(listener, control, pipes, pid, wakeup).run()
    finally:
        os.unlink(path)
        os._exit(0)


channel = main(sys.argv[1])
