"""The story, by the PyPI package `mcp`.

    mcp_story.py stdio MODE COMMAND ARGUMENT…
    mcp_story.py http MODE URL
    mcp_story.py sse URL

MODE is `legacy` or `auto`, as the package calls the two protocol generations.
"""

import asyncio
import sys

from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.sse import sse_client

import story


class Adapter:
    """The package validates structured content against the tool's output schema."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, (tool, result.content)
        return result.structured_content

    async def refused(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, (tool, result)
        return result.structured_content


async def over(server, mode):
    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        await story.work(Adapter(client), [tool.name for tool in tools.tools])


async def over_sse(url):
    async with sse_client(url) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        await story.work(Adapter(session), [tool.name for tool in tools.tools])


def main():
    transport, *rest = sys.argv[1:]
    if transport == "sse":
        asyncio.run(over_sse(rest[0]))
    elif transport == "http":
        asyncio.run(over(rest[1], rest[0]))
    else:
        server = StdioServerParameters(command=rest[1], args=rest[2:])
        asyncio.run(over(server, rest[0]))


main()
