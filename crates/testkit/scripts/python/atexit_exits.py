import atexit, sys
atexit.register(sys.exit, 8)
