def outer(number):
    inner(number)

def inner(number):
    # A comment between.
    return [1, 2, 3][number]

outer(7)
