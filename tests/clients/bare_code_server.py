"""An MCP server without any isolation, by the PyPI package `fastmcp`, on stdio: what a snippet costs in a process of its own.
`xtask bench pictures --peer "bare=target/clients/bin/python-fastmcp tests/clients/bare_code_server.py"` measures it."""
import subprocess
import sys

from fastmcp import FastMCP

server = FastMCP("bare")


@server.tool
def execute_code(code: str) -> dict:
    """Run Python on this machine, without a container"""
    ran = subprocess.run([sys._base_executable, "-c", code], capture_output=True, text=True, timeout=60)
    return {"stdout": ran.stdout, "stderr": ran.stderr, "exit_code": ran.returncode}


server.run(show_banner=False)
