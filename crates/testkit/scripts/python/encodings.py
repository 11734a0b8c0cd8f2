import locale, sys
print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
print(locale.getpreferredencoding(False), locale.setlocale(locale.LC_ALL), locale.localeconv()["decimal_point"])
print("äöü €".encode(sys.stdout.encoding, "replace"), "\udcff".encode("utf-8", "surrogateescape"))
