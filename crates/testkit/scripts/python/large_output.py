import sys
line = "0123456789abcdef" * 64
for number in range(600):
    print(number, line)
    print(number, file=sys.stderr)
