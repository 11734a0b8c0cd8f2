# Compiles the zygote's program, which is the last argument now, in another process: the compiler leaves
# two megabytes behind that nobody uses again.
import sys

# Nothing may be imported from where scripts can write.
sys.path.pop(0)

import marshal
import os


def load(source):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with open(writer, "wb") as out:
            out.write(marshal.dumps(compile(source, "hotcell", "exec", optimize=2)))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as compiled:
        code = marshal.loads(compiled.read())
    os.waitpid(pid, 0)
    return code


exec(load(sys.argv.pop()), {"__name__": "hotcell"})
