import sys
sys.excepthook = lambda kind, value, trace: print("hook:", kind.__name__, value, trace.tb_lineno)
raise ValueError("x")
