import os
open("cached.py", "w").write("x = 1\n")
import cached
print(os.path.exists(cached.__cached__))
