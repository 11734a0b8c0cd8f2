import sys
sys.exit("a last word")
