import builtins
print([name for name in dir(builtins)], hasattr(builtins, "_"), open.__module__, type(exit))
