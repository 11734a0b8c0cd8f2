import os, atexit
file = open("left-open.txt", "w")
file.write("flushed at exit")
atexit.register(lambda: print(os.path.getsize("left-open.txt")))
