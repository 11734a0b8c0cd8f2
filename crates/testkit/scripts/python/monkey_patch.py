import json
print(json.dumps({}), hasattr(json, "patched"))
json.dumps = lambda value: "patched"
json.patched = True
import builtins
print(hasattr(builtins, "left_behind"))
builtins.left_behind = 1
