import os
print("before", flush=True)
child = os.fork()
if child == 0:
    print("child", os.getppid() > 1)
    raise SystemExit(3)
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
