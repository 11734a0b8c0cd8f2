"""What the examples share: how to start Hotcell, and how to call a tool."""

import os
import sys

from mcp import Client, StdioServerParameters


def connect(more_arguments=()):
    """A client of a Hotcell that runs as long as the client does."""
    command = sys.argv[1:] or ["hotcell", "serve", "--transport", "stdio"]
    arguments = [*command[1:], *more_arguments]
    return Client(StdioServerParameters(command=command[0], args=arguments, env=dict(os.environ)))


async def call(client, tool, **arguments):
    """What the tool answers, as structured content. An error is an exception with its next step."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.structured_content}")
    return result.structured_content or {"content": result.content}
