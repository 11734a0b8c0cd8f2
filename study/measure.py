"""Measures tokens and round trips of direct tool calls against code mode.

    measure.py HOTCELL DIRECTORY_OF_SERVERS

Each task is done twice, for real: by calls of the servers' tools, as a model makes them, and by scripts of
`run_python`. No model takes part. What a model would read and write is counted: the definitions of the
tools it is given, the calls it writes, the results it reads. Its thoughts and the user's question are the
same in both and are left out.
"""
import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from mcp import Client, StdioServerParameters
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from chart import chart
from report import report
from tasks import TASKS

HERE = pathlib.Path(__file__).parent
ENCODER = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer


def tokens(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(ENCODER.encode(text, bos=False, eos=False))


class Conversation:
    """What a model reads and writes in one task."""

    def __init__(self, tools):
        self.definitions = tokens([tool.model_dump(by_alias=True, exclude_none=True, include={"name", "description", "input_schema"}) for tool in tools])
        self.content = self.processed = self.rounds = 0

    def turn(self, calls, results):
        """One round trip: the model writes calls, and reads their results. Everything so far is its input."""
        self.rounds += 1
        self.processed += self.definitions + self.content
        self.content += sum(map(tokens, calls)) + sum(map(tokens, results))

    def end(self):
        """The model reads all of it once more to answer."""
        self.processed += self.definitions + self.content
        return {"definitions": self.definitions, "content": self.content, "processed": self.processed, "rounds": self.rounds}


def text_of(result):
    """What a model is shown: the text blocks, or the structured content if there is no text."""
    texts = [block.text for block in result.content if block.type == "text"]
    return "\n".join(texts) or json.dumps(result.structured_content)


async def consent(context, params):
    from mcp.types import ElicitResult

    return ElicitResult(action="accept", content={"allow": True})


async def direct(task, servers, root):
    """By calls of the servers' own tools; calls that need nothing of each other are one round trip."""
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(Client(servers[name])) for name in task.servers}
        listed = [await client.list_tools() for client in clients.values()]
        talk = Conversation([tool for one in listed for tool in one.tools])
        steps = task.direct(root)
        results = None
        while True:
            try:
                calls = steps.send(results)
            except StopIteration as ended:
                return ended.value, talk.end()
            answers = await asyncio.gather(*(clients[server].call_tool(tool, given) for server, tool, given in calls))
            results = [text_of(answer) for answer in answers]
            talk.turn([{"name": tool, "arguments": given} for _, tool, given in calls], results)


async def scripted(task, hotcell, root):
    """By scripts: one that looks up the tools it needs, and one that does the work."""
    async with Client(hotcell, mode="legacy", elicitation_callback=consent) as client:
        talk = Conversation((await client.list_tools()).tools)
        for code in (task.lookup, task.script(root)):
            given = {"code": code, "servers": list(task.servers)}
            answer = await client.call_tool("run_python", given)
            assert answer.structured_content["status"] == "success", answer.structured_content
            talk.turn([{"name": "run_python", "arguments": given}], [text_of(answer)])
        return answer.structured_content["result"], talk.end()


def configuration(directory, servers):
    path = pathlib.Path(directory, "hotcell.toml")
    lines = []
    for name, server in servers.items():
        lines += [f"[upstream.{name}]", f"command = {json.dumps(server.command)}", f"args = {json.dumps(server.args)}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def files(directory):
    """Logs of 40 services, with a few errors in each."""
    for service in range(40):
        lines = []
        for n in range(60):
            level = "ERROR" if (n * 7 + service) % 23 == 0 else "INFO"
            lines.append(f"2026-05-{n % 28 + 1:02}T10:{n:02}:00Z {level} service-{service:02} request {n * 37 + service} took {n * 13 % 400} ms")
        pathlib.Path(directory, f"service-{service:02}.log").write_text("\n".join(lines) + "\n")
    pathlib.Path(directory, "readme.md").write_text("# Logs\n\n" + "Each file is the log of one service, one line per request. " * 12 + "\n")
    return directory


async def main():
    hotcell, clients = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as root:
        root = files(os.path.realpath(root))
        servers = {
            "everything": StdioServerParameters(command=str(clients / "server-everything"), args=["stdio"]),
            "files": StdioServerParameters(command=str(clients / "server-filesystem"), args=[root]),
            "shop": StdioServerParameters(command=sys.executable, args=[str(HERE / "wide_server.py")]),
        }
        config = configuration(state, servers)
        arguments = ["serve", "--transport", "stdio", "--toolsets", "codemode", "--state-dir", state, "--config", str(config)]
        # As its operator does once: the catalogue then knows the tools of all servers.
        subprocess.run([hotcell, "upstream", "test", "--state-dir", state, "--config", config], check=True, stdout=sys.stderr)
        ours = StdioServerParameters(command=str(hotcell), args=arguments)
        rows = []
        for task in TASKS:
            one, directly = await direct(task, servers, root)
            other, by_script = await scripted(task, ours, root)
            assert one == other, (task.name, one, other)
            rows.append((task, directly, by_script))
            print(task.name, directly, by_script, file=sys.stderr)
    (HERE / "README.md").write_text(report(rows))
    (HERE / "tokens.svg").write_text(chart(rows))


asyncio.run(main())
