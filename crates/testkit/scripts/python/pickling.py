import copy, pickle
class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return self.x == other.x
print(pickle.loads(pickle.dumps(Point(3))) == Point(3), pickle.dumps(Point, 2), copy.deepcopy(Point(1)).x, Point.__module__)
