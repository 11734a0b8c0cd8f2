import sys
sys.modules = dict(sys.modules)
sys.modules["extra"] = sys
import colorsys
print("extra" in sys.modules, colorsys.__name__)
