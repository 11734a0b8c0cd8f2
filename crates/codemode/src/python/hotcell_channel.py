"""Requests of a script to the server, many at a time."""
import json
import os
import threading

from hotcell_run import HEADER

FRAME_BYTES_MAX = 64 << 20


class Channel:
    """Requests to the server, many at a time. The thread that reads answers starts with the first."""

    def __init__(self, stream):
        self.socket, self.reader = stream, stream.makefile("rb", 1 << 16)
        self.sending = threading.Lock()
        self.waiting = {}
        self.last_id = 0
        self.pid = os.getpid()
        self.thread = None
        self.is_lost = False

    def send(self, number, message):
        body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        if len(body) > FRAME_BYTES_MAX:
            return len(body)
        with self.sending:
            self.socket.sendall(HEADER.pack(len(body), number) + body)
        return None

    def receive(self):
        header = self.reader.read(HEADER.size)
        if len(header) < HEADER.size:
            raise EOFError
        length, number = HEADER.unpack(header)
        return number, json.loads(self.reader.read(length))

    def begin(self, message, answered):
        """Sends a request; `answered` is called with the answer, in another thread."""
        if os.getpid() != self.pid:
            return failure("unavailable", "only the script's own process can call: it has forked")
        with self.sending:
            self.last_id += 1
            number = self.last_id
            self.waiting[number] = answered
            if self.thread is None:
                self.thread = threading.Thread(target=self.read, daemon=True)
                self.thread.start()
        try:
            size = self.send(number, message)
        except (OSError, ValueError) as error:
            self.waiting.pop(number, None)
            if isinstance(error, OSError) or self.is_lost:
                return failure("unavailable", "the server has closed the channel of this run")
            return failure("invalid_argument", "the arguments are not JSON: " + str(error))
        except (TypeError, RecursionError) as error:
            self.waiting.pop(number, None)
            return failure("invalid_argument", "the arguments are not JSON: " + str(error))
        if size is not None:
            self.waiting.pop(number, None)
            text = "the arguments have %d bytes as JSON; %d are allowed" % (size, FRAME_BYTES_MAX)
            return failure("invalid_argument", text)
        if self.is_lost and self.waiting.pop(number, None):
            return failure("unavailable", "the server has closed the channel of this run")
        return number

    def cancel(self, number):
        if self.waiting.pop(number, None):
            try:
                self.send(number, {"op": "cancel"})
            except OSError:
                pass

    def read(self):
        try:
            while True:
                number, answer = self.receive()
                if "progress" in answer:
                    answered = self.waiting.get(number)
                else:
                    answered = self.waiting.pop(number, None)
                if answered:
                    answered(answer)
        except (OSError, EOFError, ValueError):
            pass
        self.is_lost = True
        lost = failure("unavailable", "the server has closed the channel of this run")
        while self.waiting:
            try:
                _, answered = self.waiting.popitem()
            except KeyError:
                break
            answered(lost)

    def ask(self, message, on_progress=None):
        """The answer; waits for it, whether or not an event loop runs."""
        done = threading.Event()
        answers = []

        def answered(answer):
            if "progress" in answer:
                if on_progress:
                    on_progress(answer["progress"])
            else:
                answers.append(answer)
                done.set()

        begun = self.begin(message, answered)
        if isinstance(begun, dict):
            return begun
        try:
            done.wait()
        except BaseException:
            self.cancel(begun)
            raise
        return answers[0]

    async def ask_async(self, message, on_progress=None):
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def arrived(answer):
            if "progress" in answer:
                if on_progress:
                    on_progress(answer["progress"])
            elif not future.done():
                future.set_result(answer)

        def answered(answer):
            try:
                loop.call_soon_threadsafe(arrived, answer)
            except RuntimeError:
                pass

        begun = self.begin(message, answered)
        if isinstance(begun, dict):
            return begun
        try:
            return await future
        except asyncio.CancelledError:
            self.cancel(begun)
            raise


def failure(code, message):
    return {"error": {"code": code, "message": message}}
