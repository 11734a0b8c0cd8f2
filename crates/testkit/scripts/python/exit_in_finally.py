import sys
try:
    raise ValueError("first")
finally:
    sys.exit(6)
