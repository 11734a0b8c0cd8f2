"""Code mode, by the PyPI package `mcp`: scripts that call real servers, and a user who is asked.

    codemode_story.py STORY stdio MODE COMMAND ARGUMENT…
    codemode_story.py STORY http MODE URL

STORY is `servers` or `asks`; MODE is `legacy` or `auto`, as the package calls the two protocol
generations. `STORY_ROOT` is the directory that server-filesystem offers.
"""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

EVERYTHING = """
import asyncio
r = mcp.runtime
async def look(name):
    server = mcp_servers[name]
    steps = []
    await server.trigger_long_running_operation(duration=0.2, steps=2, on_progress=steps.append)
    picture = [one for one in await server.get_tiny_image() if isinstance(one, bytes)][0]
    weather = await server.get_structured_content(location="New York")
    links = [one for one in await server.get_resource_links(count=2) if hasattr(one, "read")]
    text = await links[0].read()
    listed = await r.list_resources(name)
    first = await r.read_resource(name, listed[0]["uri"])
    prompt = await r.get_prompt(name, "simple-prompt")
    sync = server.echo.sync("sync"), r.list_tools_sync(name)[0]["name"]
    return {
        "echo": await server.echo("größe"), "sync": sync[0], "steps": len(steps) > 0,
        "picture": [picture.mime_type, picture[:4].hex()], "weather": sorted(weather),
        "link": len(text) > 0, "resource": len(first) > 0, "prompt": len(str(prompt)) > 0,
    }
await asyncio.gather(*(look(name) for name in ("everything", "everything-http", "everything-sse")))
"""

FILES = """
import asyncio
root = %r
await asyncio.gather(*(mcp_files.write_file(path="%%s/%%d.txt" %% (root, n), content=str(n)) for n in range(3)))
read = await asyncio.gather(*(mcp_files.read_text_file(path="%%s/%%d.txt" %% (root, n)) for n in range(3)))
await mcp_graph.create_entities(entities=[{"name": "n", "entityType": "t", "observations": ["o"]}])
graph = await mcp_graph.read_graph()
[[one["content"] for one in read], graph["entities"][0]["name"]]
"""

PYTHON = """
import asyncio, inspect, io, contextlib
from mcp.servers.python import add
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    help(add)
found = await mcp.runtime.search_tool_docs("add two numbers", limit=3)
[(await add(2, b=3))["result"], "add(a: int, b: int) -> " in shown.getvalue(), found[0]["tool"],
 await mcp.runtime.read_resource("python", "memo://x"), str(await mcp.runtime.get_prompt("python", "greet", {"name": "ann"}))]
"""

FAST = """
[await mcp_fast.total([1, 2, 3]), (await mcp_fast.person("ann"))["age"]]
"""

ASKS = """
import asyncio
async def wipe(n):
    try:
        return await mcp_echo.wipe_all(n=n)
    except MCPError as error:
        return error.message
first = await wipe(0)
[first, *await asyncio.gather(*(wipe(n) for n in range(1, 4)))]
"""


class User:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self):
        self.asked, self.decide = [], lambda message: True

    async def __call__(self, context, params):
        self.asked.append(params.message)
        allow = self.decide(params.message)
        if allow is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"allow": allow})


async def run(client, code, **more):
    result = await client.call_tool("run_python", {"code": code, "timeout": 60, **more})
    assert not result.is_error, result
    return result.structured_content


async def servers(client, user):
    ran = await run(client, EVERYTHING)
    assert ran["status"] == "success", ran
    for seen in ran["result"]:
        assert "größe" in seen["echo"] and "sync" in seen["sync"], seen
        assert seen["steps"] and seen["link"] and seen["resource"] and seen["prompt"], seen
        assert seen["picture"] == ["image/png", "89504e47"], seen
        assert "temperature" in seen["weather"], seen
    ran = await run(client, FILES % os.environ["STORY_ROOT"])
    assert ran["result"] == [["0", "1", "2"], "n"], ran
    assert len([one for one in user.asked if "tool: write_file" in one]) == 3, user.asked
    ran = await run(client, PYTHON)
    fast = await run(client, FAST)
    assert fast["result"] == [6, 42], fast
    assert ran["result"][:4] == [5, True, "add", "memo x"] and "hello ann" in ran["result"][4], ran


async def asks(client, user):
    ran = await run(client, ASKS)
    assert ran["result"] == ["wiped"] * 4, ran
    assert len(user.asked) == 4 and all("tool: wipe-all" in one for one in user.asked), user.asked
    assert 'arguments: {"n":0}' in user.asked[0] and "reason: it says of itself" in user.asked[0], user.asked[0]
    user.decide = lambda message: True if '"n":2' in message else None
    ran = await run(client, ASKS)
    no = "the user declined echo.wipe-all"
    assert ran["result"] == [no, no, "wiped", no], ran
    assert [call["status"] for call in ran["calls"]].count("denied") == 3, ran
    user.decide = lambda message: False
    ran = await run(client, "await mcp_echo.wipe_all()")
    assert ran["status"] == "error" and "declined" in ran["error"], ran


async def main():
    story, transport, mode, *rest = sys.argv[1:]
    user = User()
    server = rest[0] if transport == "http" else StdioServerParameters(command=rest[0], args=rest[1:])
    async with Client(server, mode=mode, elicitation_callback=user) as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "run_python")
        assert "echo" in tool.description, tool.description
        await {"servers": servers, "asks": asks}[story](client, user)


asyncio.run(main())
