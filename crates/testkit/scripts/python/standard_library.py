import base64, collections, csv, datetime, decimal, fractions, hashlib, heapq, io, itertools, json, math, re, statistics, textwrap, urllib.parse, uuid
print(json.dumps({"a": [1, 2.5, None, True]}, indent=1), re.findall(r"\w+", "a b-c"), math.pi, statistics.mean([1, 2, 4]))
print(decimal.Decimal(1) / 3, fractions.Fraction(1, 3) + 1, hashlib.sha256(b"x").hexdigest(), base64.b64encode(b"abc"))
print(collections.Counter("hello").most_common(1), list(itertools.combinations("abc", 2)), heapq.nsmallest(2, [3, 1, 2]))
print(list(csv.reader(io.StringIO("a,b\n1,2"))), datetime.date(2024, 2, 29).isoformat(), urllib.parse.quote("a b"), textwrap.fill("x " * 50, 20))
print(uuid.uuid5(uuid.NAMESPACE_DNS, "example.org"))
