"""A server of the Python SDK, on the transport and port that its arguments name."""
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("python", instructions="adds")


@server.tool()
async def add(a: int, b: int, ctx: Context) -> int:
    """Add two numbers"""
    await ctx.report_progress(1, 2)
    return a + b


@server.resource("memo://{name}")
def memo(name: str) -> str:
    """A memo"""
    return f"memo {name}"


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody"""
    return f"hello {name}"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
