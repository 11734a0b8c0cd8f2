"""What a script of `run_python` finds of MCP servers: `mcp_<alias>`, `mcp_servers`, the packages `mcp`
and `saved_tools`, and `mcp.runtime`. Modules of servers are made when they are used, from definitions
that the server sends over the channel.
"""
import base64
import inspect
import json
import sys
import types

from hotcell_channel import Channel
from hotcell_check import near, python_names
from hotcell_tools import MCPArgumentError, MCPError, ToolFunction, shown

class Blob(bytes):
    """Bytes of an image, a sound or a resource, with `mime_type` and, for a resource, `uri`."""

    mime_type = uri = None

    def __repr__(self):
        return "<%d bytes of %s>" % (len(self), self.mime_type or "unknown type")


class AwaitableList(list):
    def __await__(self):
        return self
        yield


class AwaitableDict(dict):
    def __await__(self):
        return self
        yield


class AwaitableText(str):
    def __await__(self):
        return str(self)
        yield


class ResourceLink:
    """A resource that a tool points to."""

    def __init__(self, runtime, server, link):
        self._runtime, self._server = runtime, server
        self.uri, self.name = link.get("uri"), link.get("name")
        self.mime_type, self.description = link.get("mimeType"), link.get("description")

    async def read(self):
        return await self._runtime.read_resource(self._server, self.uri)

    def read_sync(self):
        return self._runtime.read_resource_sync(self._server, self.uri)

    def __repr__(self):
        return "ResourceLink(%r)" % self.uri


def blob(data, mime_type, uri=None):
    made = Blob(base64.b64decode(data))
    made.mime_type, made.uri = mime_type, uri
    return made


def json_value(text):
    if text[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text


class ServerModule(types.ModuleType):
    """`mcp_<alias>`: one function per tool, made on first use."""

    def __init__(self, runtime, server):
        super().__init__("mcp.servers." + server["alias"])
        self.__dict__["_runtime"] = runtime
        self.__dict__["_server"] = server
        self.__dict__["__path__"] = []

    @property
    def __all__(self):
        return sorted(self._runtime._tools(self._server))

    def __dir__(self):
        return self.__all__

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name != "__class__":
            raise AttributeError(name)
        tools = self._runtime._tools(self._server)
        if name not in tools:
            raise AttributeError("server %r has no tool %r%s" % (self._server["name"], name, near(name, tools)))
        function = ToolFunction(self._runtime, self._server, name, tools[name]).make()
        self.__dict__[name] = function
        return function

    def __repr__(self):
        return "<MCP server %r>" % self._server["name"]


class Servers(dict):
    """`mcp_servers["name"]`."""

    def __missing__(self, name):
        raise KeyError("there is no server %r in this run%s" % (name, near(str(name), self)))


class Runtime(types.ModuleType):
    """`mcp.runtime`."""

    def __init__(self, channel, welcome):
        super().__init__("mcp.runtime", "Calls to other MCP servers, what they offer, and memory.")
        self._channel = channel
        self._granted = welcome["servers"]
        self._definitions = {}
        self._modules = {}
        self.run_id = welcome["run_id"]
        self.MCPError = MCPError
        self.MCPArgumentError = MCPArgumentError

    # The channel.

    @staticmethod
    def _value(answer, server=None, tool=None):
        error = answer.get("error")
        if error is not None:
            raise MCPError(error["code"], error["message"], error.get("data"), server, tool)
        return answer["ok"]

    def _ask(self, op, **fields):
        return self._value(self._channel.ask(dict(fields, op=op)))

    async def _ask_async(self, op, **fields):
        return self._value(await self._channel.ask_async(dict(fields, op=op)))

    # Servers.

    def _server(self, name):
        for server in self._granted:
            if name in (server["name"], server["alias"]):
                return server
        raise MCPError("not_found", "server %r is not part of this run: name it in `servers`" % name)

    def _module(self, server):
        module = self._modules.get(server["alias"])
        if module is None:
            module = self._modules[server["alias"]] = ServerModule(self, server)
        return module

    def _tools(self, server):
        tools = self._definitions.get(server["alias"])
        if tools is None:
            found = {tool["name"]: tool for tool in self._ask("tools", server=server["name"])}
            tools = {python: found[name] for python, name in python_names(found).items()}
            self._definitions[server["alias"]] = tools
        return tools

    def known_tools(self, server):
        """For the check before the run; `None` if the server cannot be asked."""
        try:
            return self._tools(server)
        except MCPError:
            return None

    # Calls.

    @staticmethod
    def _request(server, tool, arguments, on_progress):
        return {
            "op": "call", "server": server["name"], "tool": tool,
            "arguments": arguments, "progress": on_progress is not None,
        }

    async def _call(self, server, tool, arguments, on_progress):
        request = self._request(server, tool, arguments, on_progress)
        answer = await self._channel.ask_async(request, on_progress)
        return self._result(server, tool, self._value(answer, server["name"], tool))

    def _call_sync(self, server, tool, arguments, on_progress):
        request = self._request(server, tool, arguments, on_progress)
        answer = self._channel.ask(request, on_progress)
        return self._result(server, tool, self._value(answer, server["name"], tool))

    def _result(self, server, tool, result):
        content = result.get("content") or []
        if result.get("isError"):
            texts = [block.get("text", "") for block in content if block.get("type") == "text"]
            message = "\n".join(texts) or json.dumps(result.get("structuredContent"))
            raise MCPError("tool_error", message, result.get("structuredContent"), server["name"], tool)
        structured = result.get("structuredContent")
        if structured is not None:
            if isinstance(structured, dict) and list(structured) == ["result"] and result.get("wrapped"):
                return structured["result"]
            return structured
        values = [self._block(server, block) for block in content]
        if len(values) == 1:
            return values[0]
        return values or None

    def _block(self, server, block):
        kind = block.get("type")
        if kind == "text":
            return json_value(block.get("text", ""))
        if kind in ("image", "audio"):
            return blob(block.get("data", ""), block.get("mimeType"))
        if kind == "resource":
            return self._contents(block.get("resource") or {})
        if kind == "resource_link":
            return ResourceLink(self, server["name"], block)
        return block

    @staticmethod
    def _contents(resource):
        if "blob" in resource:
            return blob(resource["blob"], resource.get("mimeType"), resource.get("uri"))
        return json_value(resource.get("text", ""))

    async def call_tool(self, server, tool, arguments=None, on_progress=None, **more):
        """Calls a tool by name; `arguments` is a dict."""
        return await self._call(self._server(server), tool, dict(arguments or {}, **more), on_progress)

    def call_tool_sync(self, server, tool, arguments=None, on_progress=None, **more):
        return self._call_sync(self._server(server), tool, dict(arguments or {}, **more), on_progress)

    # What there is.

    def list_tools_sync(self, server):
        """Name, signature and description of each tool of a server."""
        server = self._server(server)
        return AwaitableList(
            {
                "name": tool["name"],
                "signature": ToolFunction(self, server, name, tool).text(),
                "description": shown(tool.get("description")),
                "input_schema": tool.get("inputSchema"),
            }
            for name, tool in self._tools(server).items()
        )

    list_tools = list_tools_sync

    def list_servers_sync(self):
        """The names of the servers of this run."""
        return AwaitableList(server["name"] for server in self._granted)

    list_servers = list_servers_sync

    def discovered_servers_sync(self, detailed=False):
        """All servers that are known, whether or not they are part of this run."""
        servers = self._ask("servers")
        return AwaitableList(servers if detailed else [server["name"] for server in servers])

    discovered_servers = discovered_servers_sync

    def describe_server_sync(self, name):
        """What is known of one server. Nothing is started."""
        for server in self._ask("servers"):
            if name in (server["name"], server["alias"]):
                return AwaitableDict(server)
        raise MCPError("not_found", "there is no server %r" % name)

    describe_server = describe_server_sync

    def list_loaded_server_metadata_sync(self):
        """The servers of this run with what is known of them."""
        granted = {server["name"] for server in self._granted}
        return AwaitableList(server for server in self._ask("servers") if server["name"] in granted)

    list_loaded_server_metadata = list_loaded_server_metadata_sync

    def query_tool_docs_sync(self, server, tool=None, detail="summary"):
        """The documentation of a server's tools, or of one; `detail="full"` adds the schemas."""
        server = self._server(server)
        tools = self._tools(server)
        if tool is not None:
            tools = {n: t for n, t in tools.items() if tool in (n, t["name"])}
            if not tools:
                raise MCPError("not_found", "server %r has no tool %r" % (server["name"], tool))
        return AwaitableList(self._doc(server, name, found, detail) for name, found in tools.items())

    query_tool_docs = query_tool_docs_sync

    def _doc(self, server, name, definition, detail):
        function = ToolFunction(self, server, name, definition)
        told = {
            "server": server["name"],
            "tool": definition["name"],
            "call": "await mcp_%s.%s" % (server["alias"], function.text()),
            "doc": function.doc() if detail == "full" else shown(definition.get("description")),
        }
        if function.returns():
            told["returns"] = function.returns()
        if detail == "full":
            told["input_schema"] = definition.get("inputSchema")
            told["output_schema"] = definition.get("outputSchema")
        return told

    def search_tool_docs_sync(self, query, limit=5, servers=None):
        """The tools of all known servers that fit best, best first. Starts no server."""
        return AwaitableList(self._ask("search", query=query, limit=limit, servers=servers))

    search_tool_docs = search_tool_docs_sync

    def capability_summary_sync(self):
        """How to write such scripts, in a few lines."""
        return AwaitableText(self._ask("summary"))

    capability_summary = capability_summary_sync

    # Resources and prompts.

    def _read(self, contents):
        values = [self._contents(one) for one in contents]
        return values[0] if len(values) == 1 else values

    async def read_resource(self, server, uri):
        """The text or the bytes of a resource; a list if it has several contents."""
        return self._read(await self._ask_async("read_resource", server=self._server(server)["name"], uri=uri))

    def read_resource_sync(self, server, uri):
        return self._read(self._ask("read_resource", server=self._server(server)["name"], uri=uri))

    async def list_resources(self, server):
        """The resources of a server."""
        return await self._ask_async("resources", server=self._server(server)["name"])

    def list_resources_sync(self, server):
        return self._ask("resources", server=self._server(server)["name"])

    async def list_prompts(self, server):
        """The prompts of a server."""
        return await self._ask_async("prompts", server=self._server(server)["name"])

    def list_prompts_sync(self, server):
        return self._ask("prompts", server=self._server(server)["name"])

    async def get_prompt(self, server, name, arguments=None):
        """A prompt of a server, filled in."""
        server = self._server(server)["name"]
        return await self._ask_async("prompt", server=server, name=name, arguments=arguments or {})

    def get_prompt_sync(self, server, name, arguments=None):
        server = self._server(server)["name"]
        return self._ask("prompt", server=server, name=name, arguments=arguments or {})

    # Memory.

    def save_memory(self, key, value, metadata=None):
        """Keeps a JSON value for later runs; returns its version."""
        return self._ask("memory_save", key=key, value=value, metadata=metadata)["version"]

    def load_memory(self, key, default=None):
        """A value that was saved, or `default`."""
        found = self._ask("memory_load", key=key)
        return default if found is None else found["value"]

    def delete_memory(self, key):
        """Whether there was one."""
        return self._ask("memory_delete", key=key)

    def list_memories(self, prefix=""):
        """Key, version, size and time of each."""
        return self._ask("memory_list", prefix=prefix)

    def memory_exists(self, key):
        return self._ask("memory_load", key=key) is not None

    def get_memory_info(self, key):
        """Version, size, times and metadata; `None` if there is none."""
        found = self._ask("memory_load", key=key)
        if found is not None:
            del found["value"]
        return found

    def update_memory(self, key, update, default=None):
        """Saves `update(value)`, or merges a dict into a dict; again if another run was faster."""
        while True:
            found = self._ask("memory_load", key=key)
            value = default if found is None else found["value"]
            if callable(update):
                value = update(value)
            elif isinstance(update, dict) and isinstance(value, (dict, type(None))):
                value = dict(value or {}, **update)
            else:
                value = update
            version = 0 if found is None else found["version"]
            try:
                self._ask("memory_save", key=key, value=value, if_version=version)
                return value
            except MCPError as error:
                if error.code != "conflict":
                    raise

    def save_tool(self, tool, source=None, description=None):
        """Keeps a function for later runs: `from saved_tools import name`. Takes the function, or its name and source."""
        if source is None:
            import textwrap

            name, source = tool.__name__, textwrap.dedent(inspect.getsource(tool))
            description = description or inspect.getdoc(tool)
        else:
            name = tool
        if not name.isidentifier():
            raise MCPError("invalid_argument", "%r is no name of a function" % name)
        compile(source, "saved_tools/%s.py" % name, "exec")
        return self._ask("tool_save", name=name, source=source, description=description)["version"]

    def list_saved_tools(self):
        return self._ask("tool_list")


PUBLIC = (
    "save_memory load_memory delete_memory list_memories update_memory memory_exists get_memory_info save_tool"
).split()


class SavedTools(types.ModuleType):
    """`from saved_tools import name`."""

    def __init__(self, runtime, globals_of_scripts):
        super().__init__("saved_tools")
        self.__dict__["_runtime"] = runtime
        self.__dict__["_globals"] = globals_of_scripts
        self.__dict__["__path__"] = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._runtime._ask("tool_load", name=name)
        if found is None:
            raise AttributeError("no tool %r was saved" % name)
        import linecache

        file = "saved_tools/%s.py" % name
        source = found["source"]
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        module = types.ModuleType("saved_tools." + name)
        module.__dict__.update(self._globals)
        exec(compile(source, file, "exec"), module.__dict__)
        self.__dict__[name] = getattr(module, name, module)
        return self.__dict__[name]

    def __dir__(self):
        return [tool["name"] for tool in self._runtime.list_saved_tools()]


class Finder:
    """Finds `mcp`, `mcp.runtime`, `mcp.servers.<alias>` and `saved_tools`."""

    def __init__(self, modules, runtime):
        self.modules, self.runtime = modules, runtime

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import ModuleSpec

        if name in self.modules:
            return ModuleSpec(name, self, is_package=True)
        parts = name.split(".")
        if parts[:2] == ["mcp", "servers"] and len(parts) == 3:
            if any(server["alias"] == parts[2] for server in self.runtime._granted):
                return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        if spec.name in self.modules:
            return self.modules[spec.name]
        return self.runtime._module(self.runtime._server(spec.name.split(".")[2]))

    def exec_module(self, module):
        pass


def install(stream, welcome, namespace):
    """Gives a script its names; returns the runtime."""
    runtime = Runtime(Channel(stream), welcome)
    package, servers = types.ModuleType("mcp"), types.ModuleType("mcp.servers")
    package.__path__, servers.__path__, runtime.__path__ = [], [], []
    package.runtime, package.servers, package.MCPError = runtime, servers, MCPError
    given = {"mcp": package, "mcp_servers": Servers(), "MCPError": MCPError}
    for server in runtime._granted:
        module = runtime._module(server)
        given["mcp_" + server["alias"]] = module
        given["mcp_servers"][server["name"]] = module
        setattr(servers, server["alias"], module)
    for name in PUBLIC:
        given[name] = getattr(runtime, name)
    modules = {
        "mcp": package, "mcp.servers": servers, "mcp.runtime": runtime,
        "saved_tools": SavedTools(runtime, given),
    }
    sys.meta_path.insert(0, Finder(modules, runtime))
    namespace.update(given)
    return runtime
