import inspect

def documented(a, *, b=2):
    """Says what it does."""
    return a + b

class Thing:
    value = 1

print(inspect.getsource(documented), inspect.getsource(Thing), inspect.getfile(documented))
print(inspect.signature(documented), inspect.getsourcefile(Thing), inspect.getmodule(documented))
