"""A synthetic MCP server with 100 tools: records of a shop, each kind with the same ten verbs."""
from typing import Any

from mcp.server.mcpserver import MCPServer

KINDS = ["customer", "order", "invoice", "product", "shipment", "supplier", "ticket", "employee", "warehouse", "coupon"]
VERBS = ["get", "list", "create", "update", "delete", "search", "count", "archive", "restore", "export"]

server = MCPServer("shop", instructions="Records of a shop.")


def record(kind: str, number: int) -> dict[str, Any]:
    """A record with what real ones carry along: most of it is of no use to a question."""
    return {
        "id": f"{kind}-{number}", "name": f"{kind.title()} {number}", "status": ["open", "paid", "late"][number % 3],
        "customer_id": f"customer-{number % 7}", "amount_cents": 995 * (number % 11 + 1), "currency": "EUR",
        "created_at": f"2026-03-{number % 28 + 1:02}T09:30:00Z", "updated_at": f"2026-04-{number % 28 + 1:02}T17:05:00Z",
        "tags": ["imported", f"batch-{number % 5}"], "notes": "Created by the nightly import. No manual changes since then.",
        "address": {"street": f"{number} Long Street", "city": "Hamburg", "postcode": f"{20000 + number}", "country": "DE"},
    }


def add(verb: str, kind: str) -> None:
    plural = kind + "s"
    if verb in ("list", "search", "export"):
        def tool(query: str = "", status: str = "", limit: int = 50) -> list[dict[str, Any]]:
            found = (record(kind, number) for number in range(limit))
            return [one for one in found if not status or one["status"] == status]
    elif verb == "count":
        def tool(status: str = "") -> int:
            return 50
    else:
        def tool(id: str, reason: str = "") -> dict[str, Any]:
            return record(kind, int(id.rpartition("-")[2]))
    text = (
        f"{verb.title()} {plural} of the shop. Use this when the user asks to {verb} a {kind} or several {plural}. "
        f"Identifiers look like {kind}-17. Returns the full record of each {kind}, with amounts in cents."
    )
    server.add_tool(tool, name=f"{verb}_{kind}", description=text)


for a_kind in KINDS:
    for a_verb in VERBS:
        add(a_verb, a_kind)

server.run("stdio")
