import weakref
class Told:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("deleted", self.name)
kept = Told("global")
cycle = Told("cycle")
cycle.self = cycle
weakref.finalize(Told("finalized"), print, "finalizer")
import sys
sys.attribute = Told("in sys")
