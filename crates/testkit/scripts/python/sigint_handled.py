import os, signal
signal.signal(signal.SIGINT, lambda number, frame: print("handled", number, frame.f_code.co_name))
os.kill(os.getpid(), signal.SIGINT)
print(signal.getsignal(signal.SIGTERM), "done")
