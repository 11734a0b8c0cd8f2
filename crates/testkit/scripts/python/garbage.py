import gc
print(gc.isenabled(), gc.get_threshold(), gc.garbage, gc.get_debug())
class Node: pass
node = Node(); node.me = node; del node
print(gc.collect() >= 1)
