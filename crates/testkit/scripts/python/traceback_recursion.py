import sys
sys.setrecursionlimit(60)

def again():
    again()

try:
    again()
except RecursionError as error:
    print(type(error).__name__, error)
