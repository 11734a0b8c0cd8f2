try:
    bytearray(1 << 60)
except MemoryError as error:
    print("refused", error)
raise MemoryError
