"""The tasks: what a model has to find out, by direct calls and by a script.

`direct` yields the calls of one round trip as `(server, tool, arguments)`, is sent their results as text, and returns
the answer. Calls are in one round trip unless one needs the result of another: the best that a model can do.
"""
import json
from dataclasses import dataclass
from typing import Callable


@dataclass
class Task:
    name: str
    servers: tuple
    direct: Callable
    lookup: str
    script: Callable


def one_sum(root):
    (said,) = yield [("everything", "get-sum", {"a": 2, "b": 3})]
    return said


def many_sums(root):
    said = yield [("everything", "get-sum", {"a": n, "b": n + 1}) for n in range(20)]
    return sum(int(text.rstrip(".").split()[-1]) for text in said)


def errors(root):
    (listed,) = yield [("files", "list_directory", {"path": root})]
    names = sorted(line.split()[-1] for line in listed.splitlines() if line.endswith(".log"))
    (texts,) = yield [("files", "read_multiple_files", {"paths": [f"{root}/{name}" for name in names]})]
    return texts.count(" ERROR ")


def whole_file(root):
    (text,) = yield [("files", "read_text_file", {"path": f"{root}/readme.md"})]
    return text


def one_record(root):
    (text,) = yield [("shop", "get_customer", {"id": "customer-17"})]
    return json.loads(text)["status"]


def late_amounts(root):
    (text,) = yield [("shop", "list_invoice", {"status": "late", "limit": 50})]
    late = records(text)
    customers = sorted({one["customer_id"] for one in late})
    told = yield [("shop", "get_customer", {"id": one}) for one in customers]
    names = {found["id"]: found["name"] for text in told for found in records(text)}
    sums = {}
    for one in late:
        sums[names[one["customer_id"]]] = sums.get(names[one["customer_id"]], 0) + one["amount_cents"]
    best = max(sums, key=lambda name: (sums[name], name))
    return [best, sums[best]]


def records(text):
    """One record, or several, each as JSON of its own."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found += value if isinstance(value, list) else [value]
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def docs(server, *tools):
    """A script that looks up tools by name."""
    return "for tool in %r:\n    for one in mcp.runtime.query_tool_docs(%r, tool):\n        print(one['call'], one.get('returns', ''))" % (list(tools), server)


def search(server, *queries):
    """A script that looks up tools by what they do."""
    return (
        "r = mcp.runtime\nfor query in %r:\n    for hit in r.search_tool_docs(query, limit=2, servers=[%r]):\n"
        "        for one in r.query_tool_docs(hit['server'], hit['tool']):\n            print(one['call'], one.get('returns', ''))" % (list(queries), server)
    )


TASKS = [
    Task("everything: one sum", ("everything",), one_sum, docs("everything", "get-sum"),
         lambda root: "await mcp_everything.get_sum(2, 3)"),
    Task("everything: 20 sums, added", ("everything",), many_sums, docs("everything", "get-sum"),
         lambda root: "import asyncio\nsaid = await asyncio.gather(*(mcp_everything.get_sum(n, n + 1) for n in range(20)))\n"
                      "sum(int(text.rstrip('.').split()[-1]) for text in said)"),
    Task("filesystem: show one file", ("files",), whole_file, docs("files", "read_text_file"),
         lambda root: "(await mcp_files.read_text_file(%r))['content']" % f"{root}/readme.md"),
    Task("filesystem: errors in 40 logs", ("files",), errors, docs("files", "list_directory", "read_multiple_files"),
         lambda root: "listed = (await mcp_files.list_directory(%r))['content']\n"
                      "names = [line.split()[-1] for line in listed.splitlines() if line.endswith('.log')]\n"
                      "texts = await mcp_files.read_multiple_files([%r + name for name in names])\n"
                      "texts['content'].count(' ERROR ')" % (root, root + "/")),
    Task("100 tools: one record", ("shop",), one_record, search("shop", "get a customer"),
         lambda root: "(await mcp_shop.get_customer('customer-17'))['status']"),
    Task("100 tools: join two lists", ("shop",), late_amounts, search("shop", "list invoices", "get a customer"),
         lambda root: "import asyncio\nlate = (await mcp_shop.list_invoice(status='late', limit=50))['result']\n"
                      "ids = sorted({one['customer_id'] for one in late})\n"
                      "names = {one['id']: one['name'] for one in await asyncio.gather(*map(mcp_shop.get_customer, ids))}\n"
                      "sums = {}\n"
                      "for one in late:\n"
                      "    name = names[one['customer_id']]\n"
                      "    sums[name] = sums.get(name, 0) + one['amount_cents']\n"
                      "best = max(sums, key=lambda name: (sums[name], name))\n[best, sums[best]]"),
]
