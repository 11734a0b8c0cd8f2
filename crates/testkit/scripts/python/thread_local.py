import contextvars, threading
local, variable = threading.local(), contextvars.ContextVar("v", default=1)
local.x = 5
variable.set(2)
thread = threading.Thread(target=lambda: print(hasattr(local, "x"), variable.get()))
thread.start(); thread.join()
print(local.x, variable.get(), contextvars.copy_context().run(variable.get))
