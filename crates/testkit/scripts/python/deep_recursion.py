import sys
sys.setrecursionlimit(20000)
def depth(number):
    return 0 if number == 0 else 1 + depth(number - 1)
print(depth(5000))
