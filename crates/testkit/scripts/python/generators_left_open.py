def generator():
    try:
        yield 1
    finally:
        print("closed")
g = generator()
next(g)
