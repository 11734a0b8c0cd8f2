# stdin: first\nsecond\nthird
import sys
print(repr(sys.stdin.readline()), [line for line in sys.stdin], sys.stdin.read())
