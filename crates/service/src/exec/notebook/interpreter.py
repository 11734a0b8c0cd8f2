"""Runs cells, one after the other, in one namespace.

This code has a copy of the builtins of its own, and all its frames are hidden from tracebacks. The cells run in the
module `__main__`. Everything here can be reached and broken by a cell; then the interpreter ends, and the next one is new.
"""

import __future__
import ast
import base64
import builtins
import importlib
import inspect
import json
import linecache
import os
import resource
import signal
import struct
import sys
import traceback
import types

TEXT_CHARS_MAX = 20_000
DISPLAYED_MAX = 16
LINES_OF_CELLS_MAX = 1000
FRAME_ROWS_MAX, FRAME_COLUMNS_MAX = 20, 12
PICTURE_BYTES_MAX = 32 << 20

OURS = "<hotcell>"

# Holds the value of the last expression for a moment.
VALUE = "__hotcell_value__"

# Forms of a value, richest first: the method, its mime type, the ending of a file, and whether it may be a part of the answer.
FORMS = [
    ("_repr_png_", "image/png", "png", False),
    ("_repr_jpeg_", "image/jpeg", "jpg", False),
    ("_repr_svg_", "image/svg+xml", "svg", False),
    ("_repr_html_", "text/html", "html", False),
    ("_repr_markdown_", "text/markdown", "md", True),
    ("_repr_json_", "application/json", "json", True),
]


def cut(text):
    """The beginning and the end of a long text."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    left_out = len(text) - 2 * half
    return "%s\n[%d characters left out here]\n%s" % (text[:half], left_out, text[-half:])


class Values:
    """What one cell displays."""

    def __init__(self, figures):
        self.figures, self.files = figures, 0
        self.displayed, self.left_out = [], 0

    def display(self, *values, **_named):
        for value in values:
            if len(self.displayed) < DISPLAYED_MAX:
                self.displayed.append(self.describe(value))
            else:
                self.left_out += 1

    def describe(self, value):
        """A value as text and in its richest form."""
        table = frame_table(value)
        if table is not None:
            return {"text": cut(table)}
        described = {}
        richest = richest_form(value)
        if richest is not None:
            mime, ending, may_be_inline, data = richest
            if may_be_inline and len(data) <= TEXT_CHARS_MAX:
                described.update(mime_type=mime, data=data)
            else:
                described.update(mime_type=mime, path=self.save(ending, data))
        text = repr(value)
        described["text"] = cut(str(text)).encode("utf-8", "replace").decode()
        return described

    def save(self, ending, data):
        self.files += 1
        directory = os.path.join(os.environ.get("HOME", "/workspace"), "artifacts")
        os.makedirs(directory, exist_ok=True)
        name = "%s-value-%02d.%s" % (self.figures, self.files, ending)
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        if len(data) > PICTURE_BYTES_MAX:
            raise ValueError("a value is displayed as %d bytes; %d are allowed" % (len(data), PICTURE_BYTES_MAX))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(os.path.join(directory, name), flags, 0o644), "wb") as file:
            file.write(data)
        return "artifacts/" + name


def frame_table(value):
    """A data frame or a series of pandas as a compact table with its shape; None for any other value."""
    kind = type(value)
    if not str(kind.__module__).startswith("pandas.") or kind.__name__ not in ("DataFrame", "Series"):
        return None
    if kind.__name__ == "Series":
        return value.to_string(max_rows=FRAME_ROWS_MAX, name=True, dtype=True, length=True)
    table = value.to_string(max_rows=FRAME_ROWS_MAX, max_cols=FRAME_COLUMNS_MAX, show_dimensions=False)
    return "%s\n\n[%d rows x %d columns]" % ((table,) + value.shape)


def richest_form(value):
    if isinstance(value, type):
        return None
    bundle = call_form(value, "_repr_mimebundle_")
    bundle = bundle if isinstance(bundle, dict) else {}
    for method, mime, ending, may_be_inline in FORMS:
        data = bundle.get(mime)
        if data is None:
            data = call_form(value, method)
        data = form_data(mime, data)
        if data is not None:
            return mime, ending, may_be_inline, data
    return None


def call_form(value, method):
    """What a display method returns. One that fails counts as one that is not there."""
    try:
        if not callable(getattr(type(value), method, None)):
            return None
        made = getattr(value, method)()
    except Exception:
        return None
    return made[0] if isinstance(made, tuple) and made else made


def form_data(mime, data):
    if data is None:
        return None
    if mime in ("image/png", "image/jpeg"):
        if isinstance(data, str):
            try:
                data = base64.b64decode(data)
            except ValueError:
                return None
        return bytes(data) if isinstance(data, (bytes, bytearray)) else None
    if mime == "application/json" and not isinstance(data, str):
        try:
            return json.dumps(data)
        except (TypeError, ValueError):
            return None
    return data if isinstance(data, str) else None


def find_installed():
    """Lets imports find what was installed since this interpreter began."""
    site = sys.modules.get("site")
    if site is not None and site.ENABLE_USER_SITE:
        path = site.getusersitepackages()
        if path not in sys.path and os.path.isdir(path):
            site.addsitedir(path)
    importlib.invalidate_caches()


class Figures:
    """The pictures of plots and images, which the modules beside this one save, counted anew for each cell."""

    @staticmethod
    def begin(prefix):
        os.environ["HOTCELL_FIGURES"] = prefix
        backend = sys.modules.get("hotcell_figures")
        if backend is not None:
            backend._count = 0

    @staticmethod
    def end():
        backend = sys.modules.get("hotcell_figures")
        if backend is not None:
            backend._save_open()


class Interpreter:
    def __init__(self, control, stdout, stderr):
        self.control, self.stdout, self.stderr = control, stdout, stderr
        self.pid = os.getpid()
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        sys.modules["__main__"] = self.main
        self.names = self.main.__dict__
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.loop = None
        self.values = Values("value")
        self.names["display"] = lambda *values, **named: self.values.display(*values, **named)

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            request = self.receive()
            self.answer = {"code": 130}
            try:
                self.run_cell(request)
            except KeyboardInterrupt:
                # It came before the first line of the cell or after the last one.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                os.write(self.stderr, b"KeyboardInterrupt\n")
            self.flush()
            if os.getpid() != self.pid:
                # A cell has forked, and this is the other process.
                os._exit(self.answer["code"])
            self.tell(dict(self.answer, event="end", id=request["id"]))

    def tell(self, event):
        data = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace")
        self.control.sendall(struct.pack(">I", len(data)) + data)

    def receive(self):
        (size,) = struct.unpack(">I", self.receive_bytes(4))
        return json.loads(self.receive_bytes(size).decode())

    def receive_bytes(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.control.recv(min(count - len(data), 1 << 20))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)

    def run_cell(self, request):
        """Fills the answer. From `begun` to the end, an interrupt may come at any point."""
        self.set_streams(request.get("stdin"))
        sys.argv = [""] + list(request.get("args") or [])
        self.values = Values(request["figures"])
        find_installed()
        Figures.begin(request["figures"])
        before = self.usage()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.tell({"event": "begun", "id": request["id"]})
        self.answer.update(self.try_cell(request))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        user, system, rss = self.usage()
        self.answer.update(
            displayed=self.values.displayed,
            left_out=self.values.left_out,
            user_us=int(1e6 * (user - before[0])),
            system_us=int(1e6 * (system - before[1])),
            max_rss_bytes=rss,
        )

    def try_cell(self, request):
        name = "<cell %d>" % request["cell"]
        answer = {"code": 0}
        try:
            value = self.execute(request["code"], name)
            if value is not None:
                self.names["_"] = value
                answer["result"] = self.values.describe(value)
            Figures.end()
        except SystemExit as leaving:
            answer["code"] = self.exit_code(leaving)
        except BaseException as error:
            answer["code"] = 130 if isinstance(error, KeyboardInterrupt) else 1
            self.show_error(error, name)
        return answer

    def execute(self, code, name):
        """Runs a cell and returns the value of its last expression."""
        lines = code.splitlines(True)
        linecache.cache[name] = (len(code), None, lines, name)
        number = int(name[6:-1])
        linecache.cache.pop("<cell %d>" % (number - LINES_OF_CELLS_MAX), None)
        tree = compile(code, name, "exec", self.flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        has_value = tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silenced(code)
        if has_value:
            # A part of the same code, so that all of it runs in one coroutine if there is an `await`.
            last = tree.body[-1]
            target = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        self.evaluate(tree, name)
        return self.names.pop(VALUE, None) if has_value else None

    def evaluate(self, tree, name):
        code = compile(tree, name, "exec", self.flags, dont_inherit=True)
        for name in __future__.all_feature_names:
            self.flags |= code.co_flags & getattr(__future__, name).compiler_flag
        made = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            self.wait_for(made)

    def wait_for(self, coroutine):
        """Runs the event loop until a cell's own coroutine has ended. Other tasks go on in the next cell that waits."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except asyncio.CancelledError:
                    pass
            raise

    def exit_code(self, leaving):
        code = leaving.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF
        print(code, file=sys.stderr)
        return 1

    def show_error(self, error, name):
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        try:
            shown = traceback.TracebackException(type(error), error, error.__traceback__)
            hide_frames(shown, name)
            text = "".join(shown.format())
        except Exception:
            text = "%s: its traceback cannot be shown\n" % type(error).__name__
        self.flush()
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(2, data) :]

    def set_streams(self, text):
        """A cell begins with the streams that it should have, whatever an earlier one closed."""
        os.dup2(self.stdout, 1)
        os.dup2(self.stderr, 2)
        source = os.open(os.devnull, os.O_RDONLY)
        if text is not None:
            os.close(source)
            source = file_of(text.encode("utf-8", "surrogatepass"))
        if source != 0:
            os.dup2(source, 0)
            os.close(source)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        if getattr(sys.stdout, "closed", True):
            sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
        if getattr(sys.stderr, "closed", True):
            sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)

    def flush(self):
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except Exception:
                pass

    def usage(self):
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = own.ru_utime + children.ru_utime, own.ru_stime + children.ru_stime
        return user, system, max(own.ru_maxrss, children.ru_maxrss) * 1024


def is_silenced(code):
    """Whether the last expression ends with a semicolon, as plots often do."""
    return code.rstrip().endswith(";")


def hide_frames(shown, name):
    """Leaves the frames of the cell and of what it called, in the error and in those behind it."""
    hidden, waiting = set(), [shown]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in hidden:
            continue
        hidden.add(id(one))
        frames = [frame for frame in one.stack if frame.filename != OURS]
        cells = [index for index, frame in enumerate(frames) if frame.filename.startswith("<cell ")]
        if one is shown:
            frames = frames[cells[0] :] if cells else []
        one.stack = traceback.StackSummary.from_list(frames)
        waiting += [one.__cause__, one.__context__]
        waiting += getattr(one, "exceptions", None) or []


def file_of(data):
    """A file that is read from its beginning and has no name."""
    try:
        file = os.memfd_create("stdin")
    except (AttributeError, OSError):
        import tempfile

        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    while data:
        data = data[os.write(file, data) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def main(control, stdout, stderr):
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    sys.argv = [""]
    Interpreter(control, stdout, stderr).run()


main(*channel)
