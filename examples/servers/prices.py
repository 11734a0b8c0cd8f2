"""An MCP server that knows what each article costs."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

CENTS = {"bolt": 12, "nut": 5, "washer": 2}
server = MCPServer("prices")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(article: str) -> int:
    """The price of an article, in cents."""
    return CENTS[article]


server.run("stdio")
