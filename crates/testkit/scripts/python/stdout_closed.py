import os
print("lost in the end")
os.close(1)
