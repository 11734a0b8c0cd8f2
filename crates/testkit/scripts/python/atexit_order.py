import atexit
atexit.register(print, "registered first")
atexit.register(print, "registered second")

@atexit.register
def fails():
    raise RuntimeError("in atexit")

print("main")
