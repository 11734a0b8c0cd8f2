import os
here = os.path.dirname(os.path.abspath(__file__))
open(os.path.join(here, "json.py"), "w").write("mine = True\n")
try:
    import importlib, sys
    sys.modules.pop("json", None)
    importlib.invalidate_caches()
    import json
    print(json.mine)
finally:
    os.remove(os.path.join(here, "json.py"))
