import sys
sys.stdout.reconfigure(encoding="latin-1", errors="replace", line_buffering=True)
print("äöü €")
