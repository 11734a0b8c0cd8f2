class Own(Exception):
    """An exception of our own."""

try:
    try:
        {}["a"]
    except KeyError as error:
        raise Own("second", 2) from error
except Own:
    raise ValueError("third")
