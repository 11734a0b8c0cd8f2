import atexit
atexit.register(print, "still called")
raise KeyError("missing")
