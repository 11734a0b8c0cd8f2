import inspect, sys
frame = sys._getframe()
print(frame.f_back, frame.f_code.co_name, len(inspect.stack()))
print([info.function for info in inspect.stack()])
