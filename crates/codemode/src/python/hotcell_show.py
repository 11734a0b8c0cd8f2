"""Values and errors of a script, as JSON and text."""
import traceback

from hotcell_run import SCRIPT


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
