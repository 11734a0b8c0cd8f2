"""A browser for tests, as the variable BROWSER names it: it follows redirects, with cookies, to the page at the end."""
import sys
from http.cookiejar import CookieJar
from urllib.request import HTTPCookieProcessor, build_opener

build_opener(HTTPCookieProcessor(CookieJar())).open(sys.argv[1], timeout=60).read()
