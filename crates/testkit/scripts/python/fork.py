import os
print("before", flush=True)
child = os.fork()
if child == 0:
    print("child", os.getppid() > 1)
    raise SystemExit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if hasattr(os, "waitstatus_to_exitcode") else 3)
