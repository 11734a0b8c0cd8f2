import ctypes
import os

libc = ctypes.CDLL(None)
for number in sorted(os.sched_getaffinity(0)):
    os.sched_setaffinity(0, {number})
    # glibc reads it from memory that the kernel writes to.
    print(libc.sched_getcpu() == number)
