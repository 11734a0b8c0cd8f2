"""The story, by the PyPI package `fastmcp`.

    fastmcp_story.py stdio COMMAND ARGUMENT…
    fastmcp_story.py URL
"""

import asyncio
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import story


class Adapter:
    def __init__(self, client):
        self.client = client

    async def call(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments)
        return result.structured_content

    async def refused(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments, raise_on_error=False)
        assert result.is_error, (tool, result)
        return result.structured_content


async def main():
    if sys.argv[1] == "stdio":
        server = StdioTransport(sys.argv[2], sys.argv[3:], env=dict(os.environ))
    else:
        server = sys.argv[1]
    async with Client(server) as client:
        tools = await client.list_tools()
        await story.work(Adapter(client), [tool.name for tool in tools])


asyncio.run(main())
