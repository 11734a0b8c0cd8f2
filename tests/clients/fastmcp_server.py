"""An MCP server by the PyPI package `fastmcp`, on stdio."""
from fastmcp import FastMCP

server = FastMCP("fast")


@server.tool
def total(numbers: list[int]) -> int:
    """Add numbers"""
    return sum(numbers)


@server.tool
def person(name: str) -> dict:
    """Somebody"""
    return {"name": name, "age": 42}


server.run()
