# args: one|two three|--four|ünï
import sys
print(sys.argv)
