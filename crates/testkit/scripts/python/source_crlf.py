print("a")
if True:
    print("b")
raise ValueError
