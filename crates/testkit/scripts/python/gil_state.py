import ctypes
order = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
calls = []
@order
def compare(left, right):
    calls.append(1)
    a, b = (ctypes.cast(each, ctypes.POINTER(ctypes.c_int))[0] for each in (left, right))
    return a - b
numbers = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
ctypes.CDLL(None).qsort(numbers, 5, 4, compare)
print(list(numbers), len(calls) > 0)
