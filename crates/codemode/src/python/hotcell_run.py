"""Runs a script of `run_python` as `__main__`.

The first line of standard input says where the channel to the server is and the secret of this run. The rest, unless it
is long, is what the server says first.
This module is compiled for each new container, so it has only what a script needs that ends well and calls nobody: the
rest is in `hotcell_show`.
"""
import ast
import json
import os
import socket
import struct
import sys
import types

HEADER = struct.Struct(">II")
SCRIPT = "script.py"
MENTIONS = ("mcp", "MCP", "memor", "save_tool", "saved_tools")


class Invalid(Exception):
    """A script that is not run."""


def send(stream, number, message):
    body = json.dumps(message).encode()
    stream.sendall(HEADER.pack(len(body), number) + body)


def prepare(source, stream, welcome, namespace):
    """The script as code; servers and memory are there if it mentions them."""
    try:
        tree = ast.parse(source, SCRIPT)
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            target = ast.copy_location(ast.Name("__hotcell_result__", ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value, lineno=last.lineno), last)
        if any(word in source for word in MENTIONS):
            import hotcell_check

            tree = hotcell_check.checked(tree, stream, welcome, namespace)
        return compile(tree, SCRIPT, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        import hotcell_show

        raise hotcell_show.wrong(error) from None


def execute(code, namespace):
    """Runs it; returns the value of its last expression."""
    value = eval(code, namespace)
    if hasattr(value, "__await__"):
        import asyncio

        asyncio.run(value)
    value = namespace.get("__hotcell_result__")
    if hasattr(value, "__await__"):
        import hotcell_show

        value = hotcell_show.awaited(value)
    return value


def ended(value):
    """The last frame of a script that has run to its end."""
    frame = {"op": "end", "status": "success"}
    if value is not None:
        import hotcell_show

        hotcell_show.add_result(frame, value)
    return frame


def run(stream, welcome):
    """Returns the last frame and the exit code."""
    source = welcome["code"]
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace["__builtins__"] = __builtins__
    try:
        code = prepare(source, stream, welcome, namespace)
    except Invalid as error:
        import hotcell_show

        return hotcell_show.refused(error)
    import linecache

    linecache.cache[SCRIPT] = (len(source), None, source.splitlines(True), SCRIPT)
    # The module that is replaced still runs.
    module.__hotcell_main__ = sys.modules["__main__"]
    sys.modules["__main__"] = module
    sys.argv = [SCRIPT]
    try:
        return ended(execute(code, namespace)), 0
    except BaseException as error:
        import hotcell_show

        if isinstance(error, SystemExit) and error.code in (None, 0):
            return ended(namespace.get("__hotcell_result__")), 0
        return hotcell_show.failed(error)


def first_frame(stream):
    import hotcell_show

    return hotcell_show.receive(stream)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.getcwd(), *(entry for entry in sys.path if entry != here), here]
    pieces = []
    while True:
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    line, _, welcome = b"".join(pieces).partition(b"\n")
    path, secret = line.decode().split()
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(path)
    send(stream, 0, {"op": "hello", "secret": secret, "is_welcome": bool(welcome)})
    frame, status = run(stream, json.loads(welcome) if welcome else first_frame(stream))
    for output in (sys.stdout, sys.stderr):
        try:
            output.flush()
        except (OSError, ValueError):
            pass
    try:
        send(stream, 0, frame)
    except OSError:
        pass
    if "hotcell_mcp" not in sys.modules:
        # Nobody reads from it, and an open one would be warned about.
        stream.close()
    # An interpreter that runs to the end of its script ends faster than one that is told to exit.
    if status:
        sys.exit(status)
