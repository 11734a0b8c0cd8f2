"""Code mode: a script in a sealed container calls two other MCP servers. A model would need seven calls for this, and
read every answer; here it writes one script and reads one number."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from hotcell_client import call, connect

SCRIPT = """
import asyncio

async def worth(article):
    count, price = await asyncio.gather(mcp_stock.count(article=article), mcp_prices.price(article=article))
    return value(count) * value(price)

def value(answer):
    return answer["result"] if isinstance(answer, dict) else answer

articles = value(await mcp_stock.articles())
cents = await asyncio.gather(*(worth(article) for article in articles))
{"articles": len(articles), "euros": sum(cents) / 100}
"""


async def main():
    here = Path(__file__).resolve().parent
    servers = {
        name: {"command": sys.executable, "args": [str(here / "servers" / f"{name}.py")]}
        for name in ("stock", "prices")
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"mcpServers": servers}, config)
        config.flush()
        os.environ["MCP_SERVERS_CONFIG"] = config.name
        async with connect() as client:
            answer = await call(client, "run_python", code=SCRIPT, servers=["stock", "prices"])
    if answer["status"] != "success":
        raise RuntimeError(json.dumps(answer))
    print("result:", json.dumps(answer["result"], sort_keys=True))
    print("calls:", len(answer["calls"]))


asyncio.run(main())
