"""What is wrong with a script, found before anything is called; names that Python allows."""
import ast

from hotcell_run import Invalid

MEMORY = {
    "save_memory", "load_memory", "delete_memory", "list_memories", "update_memory",
    "memory_exists", "get_memory_info", "save_tool",
}


def checked(tree, stream, welcome, namespace):
    """Gives the script its servers and memory, and finds out whether it uses what there is."""
    import hotcell_mcp

    runtime = hotcell_mcp.install(stream, welcome, namespace)
    Check(welcome["servers"], welcome["others"], runtime.known_tools).run(tree)
    return ast.fix_missing_locations(Awaits().visit(tree))


class Awaits(ast.NodeTransformer):
    """Lets scripts await what needs no waiting for."""

    def visit_Await(self, node):
        self.generic_visit(node)
        called = node.value.func if isinstance(node.value, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", None))
        return node.value if name in MEMORY else node


class Check(ast.NodeVisitor):
    """Finds servers and tools that do not exist before anything is called."""

    def __init__(self, servers, others, tools_of):
        self.servers = {server["alias"]: server for server in servers}
        self.others = {server["alias"]: server["name"] for server in others}
        self.tools_of = tools_of
        self.bound = set()

    def run(self, tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
            elif isinstance(node, ast.arg):
                self.bound.add(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.bound.add(node.name)
            elif isinstance(node, ast.alias):
                self.bound.add((node.asname or node.name).partition(".")[0])
        self.visit(tree)

    def server(self, alias, node):
        if alias in self.servers:
            return self.servers[alias]
        if alias in self.others:
            name = self.others[alias]
            raise Invalid("line %d: server %r is not part of this run; add it to `servers` of the call" % (node.lineno, name))
        raise Invalid("line %d: there is no server %r%s" % (node.lineno, alias, near(alias, [*self.servers, *self.others])))

    def tool(self, server, name, node):
        tools = self.tools_of(server)
        if tools is not None and name not in tools and not name.startswith("__"):
            text = "line %d: server %r has no tool %r%s" % (node.lineno, server["name"], name, near(name, tools))
            raise Invalid(text)

    def visit_Name(self, node):
        if node.id.startswith("mcp_") and node.id != "mcp_servers" and node.id not in self.bound:
            self.server(node.id[4:], node)

    def visit_Attribute(self, node):
        value = node.value
        if isinstance(value, ast.Name) and value.id.startswith("mcp_") and value.id not in self.bound:
            if value.id != "mcp_servers":
                self.tool(self.server(value.id[4:], value), node.attr, node)
        self.generic_visit(node)

    def visit_Subscript(self, node):
        index = getattr(node.slice, "value", node.slice)
        index = getattr(index, "value", getattr(index, "s", index))
        if isinstance(node.value, ast.Name) and node.value.id == "mcp_servers" and isinstance(index, str):
            if "mcp_servers" not in self.bound and index not in self.servers:
                named = [alias for alias, server in self.servers.items() if server["name"] == index]
                named += [alias for alias, name in self.others.items() if name == index]
                self.server(named[0] if named else index, node)
        self.generic_visit(node)

    def visit_ImportFrom(self, node):
        parts = (node.module or "").split(".")
        if node.level == 0 and parts[:2] == ["mcp", "servers"]:
            if len(parts) == 2:
                for name in node.names:
                    if name.name != "*":
                        self.server(name.name, node)
            else:
                server = self.server(parts[2], node)
                for name in node.names:
                    if name.name != "*":
                        self.tool(server, name.name, node)

    def visit_Import(self, node):
        for name in node.names:
            parts = name.name.split(".")
            if parts[:2] == ["mcp", "servers"] and len(parts) > 2:
                self.server(parts[2], node)


def near(name, known):
    import difflib

    known = sorted(known)
    found = difflib.get_close_matches(name, known, 1, 0.5)
    if found:
        return "; did you mean %r?" % found[0]
    return "; there are: %s" % ", ".join(known[:20]) if known else "; there are none"


def python_name(name):
    """A name that Python allows, for any name of a tool or an argument."""
    import keyword

    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name[:128]) or "_"
    if text[0].isdigit():
        text = "_" + text
    if text.startswith("__"):
        text = "tool" + text
    return text + "_" if keyword.iskeyword(text) else text


def python_names(names):
    """The same for several; no two are equal."""
    taken = {}
    for name in names:
        base = found = python_name(name)
        number = 2
        while found in taken:
            found = "%s_%d" % (base, number)
            number += 1
        taken[found] = name
    return taken
