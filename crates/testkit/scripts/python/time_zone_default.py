import time
print(time.tzname, time.timezone, time.localtime(1e9)[:6])
