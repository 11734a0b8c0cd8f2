import atexit, os, signal, time
atexit.register(print, "at exit")
os.kill(os.getpid(), signal.SIGINT)
time.sleep(10)
