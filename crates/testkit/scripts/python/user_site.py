import os, site, sys
print(site.ENABLE_USER_SITE, site.getusersitepackages(), site.USER_BASE)
print([entry for entry in sys.path if entry.startswith(os.environ["HOME"])])
