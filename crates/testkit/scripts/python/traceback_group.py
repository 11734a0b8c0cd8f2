try:
    raise ExceptionGroup("several", [ValueError(1), TypeError("two")])
except NameError:
    print("no groups here")
