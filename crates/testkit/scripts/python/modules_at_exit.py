import sys, types


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone:", self.name)


made = types.ModuleType("made")
made.last = Last("a module of our own")
sys.modules["made"] = made
del made
import json
del sys.modules["json"]
import json

json.last = Last("a module that was loaded again")
del json
here = Last("the script's own")
sys.modules["none"] = None
print(len(sys.modules) > 10, "made" in sys.modules, sys.modules["__main__"].here is here)
