import sys, threading
print(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.getswitchinterval(), threading.stack_size())
seen = []
sys.settrace(lambda frame, event, argument: seen.append((event, frame.f_code.co_name)))
def f(): pass
f()
sys.settrace(None)
print(seen)
