import signal
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.sigpending())
for number in sorted(signal.valid_signals()):
    try:
        print(number, signal.getsignal(number))
    except ValueError as error:
        print(number, error)
for line in open("/proc/self/status"):
    name, _, value = line.partition(":\t")
    if name in ("SigPnd", "SigBlk", "SigIgn", "SigCgt"):
        # Without those that the C library uses for its threads.
        print(name, hex(int(value, 16) & 0x7FFFFFFF))
