import json
print(len(json.dumps(json.loads("[" * 200 + "]" * 200))), eval("(" * 50 + "1" + ")" * 50))
