import warnings
warnings.warn("a user's warning")
warnings.warn("deprecated", DeprecationWarning)
def old():
    warnings.warn("look at the caller", UserWarning, stacklevel=2)
old()
warnings.warn("far", UserWarning, stacklevel=9)
print([each for each in warnings.filters if "numpy" not in str(each)])
"\d"
