import sys
print(sys.executable, sys.prefix, sys.base_prefix, sys.version_info, getattr(sys, "orig_argv", None))
