"""An MCP server that knows how many of each article there are."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

STOCK = {"bolt": 1200, "nut": 800, "washer": 0}
READS = ToolAnnotations(read_only_hint=True)
server = MCPServer("stock")


@server.tool(annotations=READS)
def articles() -> list[str]:
    """All articles."""
    return sorted(STOCK)


@server.tool(annotations=READS)
def count(article: str) -> int:
    """How many of an article there are."""
    return STOCK[article]


server.run("stdio")
