"""A CI job in a container: the sources go in at once, each step runs as a command with a timeout, and what it made comes
out. The container is gone afterwards, whatever happens."""

import asyncio
import base64
import io
import tarfile

from hotcell_client import call, connect

SOURCES = {
    "double.py": "def double(number):\n    return 2 * number\n",
    "test_double.py": "import unittest\nfrom double import double\n\nclass Double(unittest.TestCase):\n"
    "    def test_four(self):\n        self.assertEqual(double(2), 4)\n",
}

# Name, command, and for how long it may run.
STEPS = [
    ("check", ["python3", "-m", "compileall", "-q", "."], 60),
    ("test", ["python3", "-m", "unittest", "-q"], 120),
]


async def step(client, container, name, command, seconds):
    """Runs a command to its end; returns its exit code."""
    ran = await call(client, "exec_start", container_id=container, cmd=command, timeout_s=seconds, wait_s=20)
    while not ran["complete"]:
        ran = await call(client, "exec_poll", exec_id=ran["exec_id"], after_seq=ran["next_seq"], wait_s=20)
    print(f"{name}: exit code {ran['exit_code']}")
    return ran["exit_code"]


async def main():
    async with connect() as client:
        container = (await call(client, "spawn", memory="256m", pids=64))["container_id"]
        try:
            files = [{"op": "write", "path": path, "content": text} for path, text in SOURCES.items()]
            await call(client, "fs_batch", container_id=container, operations=files)
            for name, command, seconds in STEPS:
                if await step(client, container, name, command, seconds) != 0:
                    raise SystemExit(f"{name} failed")
            made = await call(client, "fs_export", container_id=container, exclude=["test_*", "__pycache__"])
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(made["archive"]))) as archive:
                print("package:", ", ".join(entry.name for entry in archive if entry.isfile()))
        finally:
            await call(client, "kill", container_id=container)


asyncio.run(main())
