class Broken:
    def __del__(self):
        raise RuntimeError("in __del__")
Broken()
last = Broken()
print("end")
