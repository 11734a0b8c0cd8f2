# stdin: a\0b\nc
import sys
print(sys.stdin.buffer.read())
