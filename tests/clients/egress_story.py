"""Questions about hosts, by the PyPI package `mcp`: a user is asked while a call is open.

    egress_story.py asks stdio MODE COMMAND ARGUMENT…
    egress_story.py asks http MODE URL
    egress_story.py strangers http MODE URL TOKEN TOKEN

MODE is `legacy` or `auto`, as the package calls the two protocol generations. `HOTCELL` is the program whose
command line answers what the user leaves.
"""

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import ElicitResult

# Only for tests that hang.
TIMEOUT_S = 60

URLOPEN = "import urllib.request as r\ntext = r.urlopen('http://%s/%s').read().decode()\n"


class User:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self):
        self.asked, self.answers, self.withdrawn = [], {}, []
        self.open, self.open_max = 0, 0

    async def __call__(self, context, params):
        choices = params.requested_schema["properties"]["answer"]["enum"]
        assert choices == ["allow_once", "allow", "deny"], params
        host = re.search('^host: "(.*)"$', params.message, re.M)[1]
        self.asked.append((host, params.message))
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        try:
            answer = self.answers[host]
            answer = await answer() if callable(answer) else answer
        except asyncio.CancelledError:
            self.withdrawn.append(host)
            raise
        finally:
            self.open -= 1
        if answer is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"answer": answer})

    def count(self, host):
        return [asked for asked, _ in self.asked].count(host)


async def until(what, is_so):
    async with asyncio.timeout(TIMEOUT_S):
        while not (found := await is_so()):
            await asyncio.sleep(0.02)
    assert found, what
    return found


async def operator(*arguments):
    """`hotcell egress`, as the operator runs it."""
    ran = await asyncio.create_subprocess_exec(
        os.environ["HOTCELL"], "egress", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await ran.communicate()
    assert ran.returncode == 0, (arguments, out)
    return out.decode()


async def pending(host):
    questions = json.loads(await operator("pending", "--json"))["questions"]
    return host in [question["host"] for question in questions]


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


def text(polled):
    return "".join(message["data"] for message in polled["messages"])


def fetch(host, path, seconds=70):
    return f"curl -sS -m {seconds} -w ' %{{http_code}}' http://{host}/{path} 2>&1"


async def run(client, script, container="cell", wait_s=50):
    return await call(client, "exec_start", container_id=container, cmd=["sh", "-c", script], wait_s=wait_s)


async def poll(client, started, wait_s=50):
    seen = started
    output = text(started)
    while not seen["complete"]:
        ask = {"exec_id": started["exec_id"], "after_seq": seen["next_seq"], "wait_s": wait_s}
        seen = await call(client, "exec_poll", **ask)
        output += text(seen)
    return output


async def decides(client, user):
    user.answers["once.example.com"] = "allow_once"
    ran = await run(client, fetch("once.example.com", "a"))
    assert text(ran) == "plain /a 200", ran
    (host, message), = user.asked
    assert host == "once.example.com" and 'container: "cell" (c_' in message, message
    assert "port: 80" in message and 'profile: "work"' in message and "hostile" in message, message
    user.answers["once.example.com"] = "deny"
    for _ in range(2):
        ran = await run(client, fetch("once.example.com", "b"))
        assert text(ran).endswith(" 403") and "said no" in text(ran), ran
    assert user.count("once.example.com") == 2, user.asked


async def asks_in_every_call(client, user):
    hosts = ["poll.example.com", "code.example.com", "script.example.com", "other.example.com"]
    user.answers.update({host: "allow" for host in hosts})
    started = await run(client, fetch("poll.example.com", "c"), wait_s=0)
    assert await poll(client, started) == "plain /c 200"
    ran = await run(client, fetch("poll.example.com", "d"))
    assert text(ran) == "plain /d 200" and user.count("poll.example.com") == 1, (ran, user.asked)
    code = URLOPEN % ("code.example.com", "e") + "print(text)"
    ran = await call(client, "execute_code", code=code, timeout_s=60)
    assert ran["stdout"] == "plain /e\n", ran
    code = URLOPEN % ("script.example.com", "f") + "text"
    ran = await call(client, "run_python", code=code, timeout=60, session="default")
    assert ran["result"] == "plain /f", ran
    assert 'container: "default" (c_' in user.asked[-1][1], user.asked[-1]
    # Several at once are asked about one after another.
    user.answers["new.example.com"] = "allow_once"
    both = f"{fetch('other.example.com', 'g')} >g & {fetch('new.example.com', 'h')} >h & wait; cat g h"
    ran = await run(client, both)
    assert "plain /g 200" in text(ran) and "plain /h 200" in text(ran), ran
    for host in hosts:
        assert user.count(host) == 1, (host, user.asked)
    assert user.open_max == 1, user.open_max


async def leaves_it_to_the_operator(client, user):
    user.answers["left.example.com"] = None
    started = await run(client, fetch("left.example.com", "i"), wait_s=0)
    await call(client, "exec_poll", exec_id=started["exec_id"], wait_s=1)

    async def asked():
        await call(client, "exec_poll", exec_id=started["exec_id"], wait_s=0.5)
        return user.count("left.example.com")

    await until("the user is asked", asked)
    await call(client, "exec_poll", exec_id=started["exec_id"], wait_s=0.5)
    assert await pending("left.example.com")
    await operator("allow", "left.example.com")
    assert await poll(client, started) == "plain /i 200"
    assert user.count("left.example.com") == 1, user.asked


async def is_overtaken_by_the_operator(client, user, mode):
    async def slow():
        await operator("allow", "cli.example.com")
        if mode == "legacy":
            await asyncio.sleep(TIMEOUT_S)
        return "deny"

    user.answers["cli.example.com"] = slow
    for path in ["j", "k"]:
        ran = await run(client, fetch("cli.example.com", path))
        assert text(ran) == f"plain /{path} 200", ran
    assert user.count("cli.example.com") == 1, user.asked


async def answers_when_the_work_has_ended(client, user):
    """In rounds, a form stays although nobody waits any more. Its answer counts for a retry."""

    async def has_ended():
        return not (await call(client, "list_execs"))["execs"]

    async def too_late():
        await until("the snippet has ended", has_ended)
        return "allow"

    for number in range(5):
        host = f"slow{number}.example.com"
        user.answers[host] = too_late
        code = f"import urllib.request as r\nr.urlopen('http://{host}/', timeout=0.5)"
        ran = await call(client, "execute_code", code=code)
        assert "TimeoutError" in ran["stderr"], ran
        assert not await pending(host), user.asked
    user.answers["late.example.com"] = too_late
    ran = await run(client, fetch("late.example.com", "l", seconds=2))
    assert ran["exit_code"] != 0, ran
    ran = await run(client, fetch("late.example.com", "m"))
    assert text(ran) == "plain /m 200" and user.count("late.example.com") == 1, (ran, user.asked)


async def takes_its_form_with_it(client, user):
    async def never():
        await asyncio.sleep(TIMEOUT_S)

    user.answers["late.example.com"] = never
    ran = await run(client, fetch("late.example.com", "l", seconds=2))
    assert ran["exit_code"] != 0, ran

    async def withdrawn():
        return user.withdrawn == ["cli.example.com", "late.example.com"]

    await until("both forms are withdrawn", withdrawn)
    assert await pending("late.example.com")
    # The next call asks again.
    user.answers["late.example.com"] = "allow"
    started = await run(client, "sleep 60", wait_s=0)

    async def answered():
        await call(client, "exec_poll", exec_id=started["exec_id"], wait_s=0.5)
        return not await pending("late.example.com")

    await until("the next call asks", answered)
    await call(client, "exec_cancel", exec_id=started["exec_id"])
    ran = await run(client, fetch("late.example.com", "m"))
    assert text(ran) == "plain /m 200", ran


async def asks_so_often_in_a_call(client, user):
    hosts = [f"n{number}.example.org" for number in range(9)]
    user.answers.update({host: "deny" for host in hosts})
    ran = await run(client, "; ".join(fetch(host, "p", seconds=3) for host in hosts))
    assert text(ran).count("said no") == 8, ran
    assert [host for host, _ in user.asked][-8:] == hosts[:8], user.asked
    assert await pending(hosts[8])
    await operator("deny", hosts[8])


async def asks(mode, server):
    user = User()
    async with Client(server, mode=mode, elicitation_callback=user) as client:
        await call(client, "spawn", alias="cell", egress="work")
        await decides(client, user)
        await asks_in_every_call(client, user)
        await leaves_it_to_the_operator(client, user)
        await is_overtaken_by_the_operator(client, user, mode)
        if mode == "legacy":
            await takes_its_form_with_it(client, user)
        else:
            await answers_when_the_work_has_ended(client, user)
        await asks_so_often_in_a_call(client, user)


@asynccontextmanager
async def logged_in(url, token, mode, **more):
    headers = {"Authorization": f"Bearer {token}"}
    async with create_mcp_http_client(headers=headers) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client:
            yield client


async def strangers(mode, url, owner_token, other_token):
    user = User()
    user.answers["other.example.com"] = "allow"
    async with (
        logged_in(url, owner_token, mode) as owner,
        logged_in(url, other_token, mode, elicitation_callback=user) as other,
    ):
        for client in [owner, other]:
            await call(client, "spawn", alias="cell", egress="work")
        wait = f"until [ -e go ]; do sleep 0.05; done; {fetch('other.example.com', 'n')}"
        waiting = asyncio.create_task(run(other, wait))
        held = asyncio.create_task(run(owner, fetch("new.example.com", "o")))
        # The owner's client has nobody to ask, so the operator sees the question; it is the older one.
        await until("the owner's question is there", lambda: pending("new.example.com"))
        await call(other, "fs_write", container_id="cell", path="go", content="")
        assert text(await waiting) == "plain /n 200"
        assert [host for host, _ in user.asked] == ["other.example.com"], user.asked
        await operator("allow", "new.example.com", "--once")
        assert text(await held) == "plain /o 200"


async def main():
    story, transport, mode, *rest = sys.argv[1:]
    if story == "strangers":
        return await strangers(mode, *rest)
    await asks(mode, rest[0] if transport == "http" else StdioServerParameters(command=rest[0], args=rest[1:]))


asyncio.run(main())
