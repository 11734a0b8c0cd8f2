import sys
print(__name__, __file__, __doc__, __package__, __spec__, type(__loader__).__name__)
print(list(globals()))
print(sys.modules["__main__"].__dict__ is globals(), __builtins__)
