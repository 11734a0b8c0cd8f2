import sys

def hook(*about):
    raise TypeError("broken hook")

sys.excepthook = hook
raise ValueError("x")
