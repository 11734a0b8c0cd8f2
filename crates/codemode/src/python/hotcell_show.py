"""Values and errors of a script, as JSON and text, and what else most scripts do without."""
import json
import sys
import traceback

from hotcell_run import HEADER, SCRIPT, Invalid

PIECE_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
ERROR_CHARS_MAX = 8 << 10


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


def awaited(value):
    import asyncio

    async def waited():
        return await value

    return asyncio.run(waited())


def add_result(frame, value):
    """Adds the value of the last expression to the last frame."""
    try:
        result = plain(value)
        text = json.dumps(result)
        if len(text) > RESULT_BYTES_MAX:
            result, frame["result_bytes"] = text[: RESULT_BYTES_MAX // 2], len(text)
    except Exception as error:
        result = "a %s that cannot be shown: %s" % (type(value).__name__, error)
    frame["result"] = result


def wrong(error):
    """Why a script is not run."""
    if not isinstance(error, (SyntaxError, ValueError)):
        return Invalid("the script is nested too deeply")
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return Invalid(text)


def refused(error):
    """The last frame of a script that is not run, and its exit code."""
    return {"op": "end", "status": "validation_error", "error": str(error)[:ERROR_CHARS_MAX]}, 1


def failed(error):
    """The last frame of a script that has failed, and its exit code."""
    status, text = 1, ""
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            status, text = error.code & 0xFF, "the script exited with code %d" % error.code
        else:
            text = str(error.code)
            sys.stderr.write(text + "\n")
    else:
        sys.stderr.write(users_lines(error))
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return {"op": "end", "status": "error", "error": text[:ERROR_CHARS_MAX]}, status


def users_lines(error):
    """The traceback without lines that the user did not write."""
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    seen, left = set(), [told]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        mine = [frame for frame in one.stack if frame.filename == SCRIPT or frame.filename.startswith("saved_tools/")]
        one.stack = traceback.StackSummary.from_list(mine)
        left += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(told.format())


def plain(value, depth=0):
    """A value that JSON has. What it has not becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if depth > 64:
        return repr(value)[:200]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray)):
        import base64

        told = {"base64": base64.b64encode(value).decode()}
        if getattr(value, "mime_type", None):
            told["mime_type"] = value.mime_type
        return told
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        names = value.__dataclass_fields__
        return {name: plain(getattr(value, name), depth + 1) for name in names}
    return str(value)
