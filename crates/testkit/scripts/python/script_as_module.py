import importlib, runpy, sys
print(importlib.util.find_spec("__main__") if False else "x")
if len(sys.argv) == 1:
    sys.argv.append("again")
    runpy.run_path(__file__, run_name="__main__")
