import sys
print(sys.path)
print(sys.path_hooks, [type(finder).__name__ for finder in sys.meta_path])
