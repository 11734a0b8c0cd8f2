# -*- coding: latin-1 -*-
print("ä".encode())
