"""Functions of tools, with signatures, annotations and documentation from their schemas."""
import inspect
from typing import Any, Dict, List, Optional, Union

from hotcell_check import python_name, python_names

try:
    from typing import Literal, TypedDict
except ImportError:
    Literal = TypedDict = None

DEPTH_MAX = 4
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
INSTANCES = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None), "array": (list, tuple), "object": dict,
}


class MCPError(Exception):
    """A call that failed: `code` is a word, `message` what the server said, `data` what else it sent."""

    __module__ = "mcp"

    def __init__(self, code, message, data=None, server=None, tool=None):
        super().__init__(message)
        self.code, self.message, self.data = code, message, data
        self.server, self.tool = server, tool

    def __str__(self):
        where = "%s.%s: " % (self.server, self.tool) if self.tool else ""
        return "%s%s (%s)" % (where, self.message, self.code)


class MCPArgumentError(MCPError, TypeError):
    """Arguments that do not fit the signature. Nothing was sent."""

    __module__ = "mcp"


class Unset:
    """Stands for an argument that is left out."""

    def __repr__(self):
        return "<left out>"


UNSET = Unset()


def shown(text):
    """A text of a server without control characters."""
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text or "")


class Schema:
    """Annotations from a JSON Schema."""

    def __init__(self, root, name):
        self.root, self.name = root, name

    def resolve(self, schema):
        for _ in range(8):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str) or not reference.startswith("#/"):
                break
            found = self.root
            for part in reference[2:].split("/"):
                found = found.get(part, {}) if isinstance(found, dict) else {}
            schema = found
        return schema if isinstance(schema, dict) else {}

    def annotation(self, schema, name, depth=0):
        schema = self.resolve(schema)
        if depth > DEPTH_MAX:
            return Any
        values = schema.get("enum")
        if isinstance(values, list) and values and Literal and all(isinstance(v, (str, int, bool)) for v in values):
            return Literal[tuple(values)]
        either = schema.get("anyOf") or schema.get("oneOf")
        kind = schema.get("type")
        if isinstance(either, list) and either:
            return Union[tuple(self.annotation(one, name, depth + 1) for one in either[:16])]
        if isinstance(kind, list) and kind:
            return Union[tuple(self.annotation(dict(schema, type=one), name, depth + 1) for one in kind[:8])]
        if kind == "array":
            return List[self.annotation(schema.get("items", {}), name, depth + 1)]
        if kind == "object" or "properties" in schema:
            return self.mapping(schema, name, depth)
        return TYPES.get(kind, Any) if isinstance(kind, str) else Any

    def mapping(self, schema, name, depth):
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties or TypedDict is None:
            return Dict[str, Any]
        camel = "".join(part[:1].upper() + part[1:] for part in python_name(name).split("_"))
        fields = {
            key: self.annotation(value, name + "_" + key, depth + 1) for key, value in list(properties.items())[:256]
        }
        required = schema.get("required") or []
        return TypedDict(camel, fields, total=all(key in required for key in fields))


def annotation_text(annotation):
    if annotation is inspect.Parameter.empty or annotation is Any:
        return "Any"
    return inspect.formatannotation(annotation).replace("typing.", "").replace("hotcell_tools.", "")


def shape(annotation, depth=0):
    """An annotation with the fields of its dictionaries, so that nobody has to guess them."""
    if hasattr(annotation, "__total__") and depth < DEPTH_MAX:
        fields = annotation.__annotations__.items()
        return "{%s}" % ", ".join("%s: %s" % (name, shape(field, depth + 1)) for name, field in fields)
    if getattr(annotation, "__origin__", None) is list:
        return "[%s]" % shape(annotation.__args__[0], depth + 1)
    return annotation_text(annotation)


class ToolFunction:
    """Makes the function of one tool."""

    def __init__(self, runtime, server, name, definition):
        self.runtime, self.server, self.name, self.tool = runtime, server, name, definition["name"]
        self.definition = definition
        schema = definition.get("inputSchema")
        self.schema = schema if isinstance(schema, dict) else {}
        self.types = Schema(self.schema, name)
        properties = self.schema.get("properties")
        self.properties = properties if isinstance(properties, dict) else {}
        required = self.schema.get("required")
        self.required = [key for key in required if isinstance(key, str)] if isinstance(required, list) else []
        ordered = [key for key in self.properties if key in self.required]
        ordered += [key for key in self.properties if key not in self.required]
        self.names = python_names(ordered)
        self.is_open = bool(self.schema.get("additionalProperties")) or not self.schema
        self.signature = self.make_signature()

    def make_signature(self):
        parameters = []
        for name, key in self.names.items():
            schema = self.types.resolve(self.properties[key])
            default = schema.get("default", UNSET)
            if key in self.required:
                default = inspect.Parameter.empty
            annotation = self.types.annotation(schema, self.name + "_" + key)
            if default is UNSET:
                annotation = Optional[annotation]
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        if self.is_open:
            parameters.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
        output = self.definition.get("outputSchema")
        result = Any
        if isinstance(output, dict):
            result = Schema(output, self.name).annotation(output, self.name + "_result")
        return inspect.Signature(parameters, return_annotation=result)

    def text(self):
        """The signature as people write one."""
        parts = []
        for parameter in self.signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                parts.append("**" + parameter.name)
                continue
            part = "%s: %s" % (parameter.name, annotation_text(parameter.annotation))
            if parameter.default is not inspect.Parameter.empty:
                part += " = %s" % ("..." if parameter.default is UNSET else repr(parameter.default))
            parts.append(part)
        return "%s(%s) -> %s" % (self.name, ", ".join(parts), annotation_text(self.signature.return_annotation))

    def doc(self):
        lines = []
        described = shown(self.definition.get("description"))
        if described:
            lines += ["The server describes it so:", ""]
            lines += ["> " + line for line in described.strip().splitlines()]
            lines.append("")
        for name, key in self.names.items():
            schema = self.types.resolve(self.properties[key])
            text = shown(schema.get("description") if isinstance(schema.get("description"), str) else "")
            need = "" if key in self.required else ", optional"
            told = "%s (%s%s)" % (name, shape(self.signature.parameters[name].annotation), need)
            lines.append("    " + told + (": " + " ".join(text.split()) if text else ""))
        if self.returns():
            lines += ["", "Returns: " + self.returns()]
        lines += ["", "Signature: " + self.text(), "Awaitable; `%s.sync(...)` waits instead." % self.name]
        return "\n".join(lines).strip()

    def returns(self):
        """What comes back, if the server says so."""
        annotation = self.signature.return_annotation
        return None if annotation is Any else shape(annotation)

    def refuse(self, why):
        message = "%s\nsignature: %s" % (why, self.text())
        raise MCPArgumentError("invalid_argument", message, server=self.server["name"], tool=self.tool)

    def bind(self, args, kwargs):
        """The arguments as the server takes them. What does not fit is told before anything is sent."""
        names = list(self.names)
        if len(args) > len(names):
            self.refuse("takes %d positional arguments, and %d were given" % (len(names), len(args)))
        given = dict(zip(names, args))
        arguments = {}
        for name, value in kwargs.items():
            if name not in self.names and name in self.properties:
                name = next(known for known, key in self.names.items() if key == name)
            if name in given:
                self.refuse("argument %r was given twice" % name)
            if name in self.names:
                given[name] = value
            elif self.is_open:
                arguments[name] = value
            else:
                self.refuse("there is no argument %r" % name)
        for name, value in given.items():
            if value is not UNSET:
                key = self.names[name]
                self.check(name, self.types.resolve(self.properties[key]), value)
                arguments[key] = value
        missing = [name for name, key in self.names.items() if key in self.required and key not in arguments]
        if missing:
            self.refuse("argument %s is missing" % ", ".join(map(repr, missing)))
        return arguments

    def check(self, name, schema, value):
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
            fits = any(self.is_a(kind, value) for kind in kinds)
            if not fits:
                self.refuse("argument %r must be %s, not %s" % (name, " or ".join(kinds), type(value).__name__))
        values = schema.get("enum")
        if isinstance(values, list) and values and value not in values:
            self.refuse("argument %r must be one of %s, not %r" % (name, values[:20], value))

    @staticmethod
    def is_a(kind, value):
        if isinstance(value, bool):
            return kind == "boolean" or kind not in INSTANCES
        if kind == "integer" and isinstance(value, float):
            return value.is_integer()
        return kind not in INSTANCES or isinstance(value, INSTANCES[kind])

    def make(self):
        def tool(*args, on_progress=None, **kwargs):
            arguments = self.bind(args, kwargs)
            return self.runtime._call(self.server, self.tool, arguments, on_progress)

        def sync(*args, on_progress=None, **kwargs):
            arguments = self.bind(args, kwargs)
            return self.runtime._call_sync(self.server, self.tool, arguments, on_progress)

        for function, suffix in ((tool, ""), (sync, ".sync")):
            function.__name__ = self.name + suffix
            function.__qualname__ = function.__name__
            function.__module__ = "mcp.servers." + self.server["alias"]
            function.__signature__ = self.signature
            function.__doc__ = self.doc()
        tool.sync = sync
        return tool
