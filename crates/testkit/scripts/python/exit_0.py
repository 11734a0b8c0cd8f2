import sys
print("x")
sys.exit(0)
