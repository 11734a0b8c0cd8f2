import os, sys
os.makedirs("package", exist_ok=True)
open("package/__init__.py", "w").write("value = 1\n")
open("package/part.py", "w").write("from . import value\nraised = lambda: 1 / 0\n")
open("beside.py", "w").write("print('imported', __name__, __file__, __package__)\n")
import beside, package.part
print(package.part.value, beside.__spec__.origin, package.__path__)
package.part.raised()
