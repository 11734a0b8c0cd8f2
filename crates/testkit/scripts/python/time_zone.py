# env: TZ=America/New_York
import datetime, time
print(time.tzname, time.timezone, time.localtime(0)[:6], datetime.datetime.fromtimestamp(0))
