import locale
print(locale.getlocale(), "{:n}".format(1234567), "ä".upper(), sorted("zäa"))
