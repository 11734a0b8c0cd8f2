import traceback
def f():
    traceback.print_stack()
    print(traceback.format_stack())
f()
