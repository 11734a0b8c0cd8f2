import faulthandler, sys
print(faulthandler.is_enabled())
