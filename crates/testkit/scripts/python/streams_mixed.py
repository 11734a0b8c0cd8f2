import os, sys
print("buffered")
os.write(1, b"written\n")
sys.stdout.flush()
print("to stderr", file=sys.stderr)
os.write(2, b"to stderr too\n")
sys.stderr.write("no newline")
sys.stdout.buffer.write(b"\xff\xfe bytes")
