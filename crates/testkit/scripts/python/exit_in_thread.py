import sys, threading
thread = threading.Thread(target=lambda: sys.exit(5))
thread.start()
thread.join()
print("the thread alone ended")
