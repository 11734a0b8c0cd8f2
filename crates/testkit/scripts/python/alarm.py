import signal, time
def ring(number, frame):
    raise TimeoutError("rung")
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    time.sleep(10)
except TimeoutError as error:
    print(error)
