"""Runs a script of `run_python` as `__main__`.

The first line of standard input says where the channel to the server is and the secret of this run. The rest, unless it
is long, is what the server says first.
This module is compiled for each new container, so it has only what every script needs.
"""
import ast
import json
import os
import socket
import struct
import sys
import types

HEADER = struct.Struct(">II")
FRAME_BYTES_MAX = 64 << 20
PIECE_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
ERROR_CHARS_MAX = 8 << 10
SCRIPT = "script.py"
MENTIONS = ("mcp", "MCP", "memor", "save_tool", "saved_tools")
MEMORY = {
    "save_memory", "load_memory", "delete_memory", "list_memories", "update_memory",
    "memory_exists", "get_memory_info", "save_tool",
}


class Invalid(Exception):
    """A script that is not run."""


def send(stream, number, message):
    body = json.dumps(message).encode()
    stream.sendall(HEADER.pack(len(body), number) + body)


def receive(stream):
    """The first frame."""
    length, _ = HEADER.unpack(exactly(stream, HEADER.size))
    return json.loads(exactly(stream, length))


def exactly(stream, size):
    pieces = []
    while size:
        piece = stream.recv(min(size, PIECE_BYTES_MAX))
        if not piece:
            raise EOFError("the server has closed the channel of this run")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def wrong(error):
    if not isinstance(error, (SyntaxError, ValueError)):
        return Invalid("the script is nested too deeply")
    import traceback

    return Invalid("".join(traceback.format_exception_only(type(error), error)).strip())


def parse(source):
    try:
        tree = ast.parse(source, SCRIPT)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise wrong(error) from None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        target = ast.copy_location(ast.Name("__hotcell_result__", ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([target], last.value, lineno=last.lineno), last)
    return tree


def compiled(tree):
    try:
        return compile(tree, SCRIPT, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise wrong(error) from None


def prepare(source, stream, welcome, namespace):
    """The script as code; servers and memory are there if it mentions them."""
    tree = parse(source)
    if any(word in source for word in MENTIONS):
        import hotcell_check
        import hotcell_mcp

        runtime = hotcell_mcp.install(stream, welcome, namespace)
        hotcell_check.Check(welcome["servers"], welcome["others"], runtime.known_tools).run(tree)
        tree = ast.fix_missing_locations(hotcell_check.Awaits().visit(tree))
    return compiled(tree)


def execute(code, namespace):
    """Runs it; returns the value of its last expression."""
    value = eval(code, namespace)
    if hasattr(value, "__await__"):
        import asyncio

        asyncio.run(value)
    value = namespace.get("__hotcell_result__")
    if hasattr(value, "__await__"):
        import asyncio

        async def waited():
            return await value

        value = asyncio.run(waited())
    return value


def ended(value):
    """The last frame of a script that has run to its end."""
    frame = {"op": "end", "status": "success"}
    if value is None:
        return frame
    import hotcell_show

    try:
        result = hotcell_show.plain(value)
        text = json.dumps(result)
        if len(text) > RESULT_BYTES_MAX:
            result, frame["result_bytes"] = text[: RESULT_BYTES_MAX // 2], len(text)
    except Exception as error:
        result = "a %s that cannot be shown: %s" % (type(value).__name__, error)
    frame["result"] = result
    return frame


def failed(error):
    """The same of one that has not, and its exit code."""
    status, text = 1, ""
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            status, text = error.code & 0xFF, "the script exited with code %d" % error.code
        else:
            text = str(error.code)
            sys.stderr.write(text + "\n")
    else:
        import traceback

        import hotcell_show

        sys.stderr.write(hotcell_show.users_lines(error))
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return {"op": "end", "status": "error", "error": text[:ERROR_CHARS_MAX]}, status


def run(stream, welcome):
    """Returns the last frame and the exit code."""
    source = welcome["code"]
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace["__builtins__"] = __builtins__
    try:
        code = prepare(source, stream, welcome, namespace)
    except Invalid as error:
        return {"op": "end", "status": "validation_error", "error": str(error)[:ERROR_CHARS_MAX]}, 1
    import linecache

    linecache.cache[SCRIPT] = (len(source), None, source.splitlines(True), SCRIPT)
    # The module that is replaced still runs.
    module.__hotcell_main__ = sys.modules["__main__"]
    sys.modules["__main__"] = module
    sys.argv = [SCRIPT]
    try:
        return ended(execute(code, namespace)), 0
    except SystemExit as error:
        if error.code in (None, 0):
            return ended(namespace.get("__hotcell_result__")), 0
        return failed(error)
    except BaseException as error:
        return failed(error)


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
    frame, status = run(stream, json.loads(welcome) if welcome else receive(stream))
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
