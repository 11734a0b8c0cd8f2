import os
print(sorted(os.environ.items()), os.getenv("MISSING"), os.environb[b"HOME"])
os.environ["NEW"] = "1"
print(os.popen("echo $NEW $HOME").read(), os.path.expanduser("~"), os.path.expandvars("$HOME/x"))
