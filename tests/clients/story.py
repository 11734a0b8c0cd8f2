"""What an agent does all day, told to each client library by one small adapter.

An adapter has `call(tool, arguments)`, which answers the structured content and raises what
the library raises, and `refused(tool, arguments)`, which answers the error's structured
content.
"""

TOOLS = {
    "spawn", "attach", "kill", "list_containers",
    "exec_start", "exec_poll", "exec_input", "exec_cancel", "list_execs",
    "fs_read", "fs_write", "fs_delete", "fs_stat", "fs_list", "fs_batch", "fs_import", "fs_export",
    "execute_code", "sandbox_read_file", "sandbox_write_file", "sandbox_list_files", "run_python",
}

# Over stdio; over HTTP only where the operator allowed it.
ADMIN_TOOLS = {"system_status", "metrics", "reconcile", "garbage_collect"}


async def work(client, tools):
    """Goes round once and leaves nothing behind."""
    missing = TOOLS - set(tools)
    assert not missing, f"missing: {missing}"
    admin = ADMIN_TOOLS & set(tools)
    assert admin in (set(), ADMIN_TOOLS), f"some admin tools only: {admin}"
    if admin:
        await client.call("system_status", {})
    else:
        denied = await client.refused("system_status", {})
        assert denied["code"] == "denied" and "--admin-over-http" in denied["hint"], denied

    await in_session(client)
    await with_script(client)
    made = await client.call("spawn", {"alias": "client", "labels": {"from": "a test"}})
    container = made["container_id"]
    assert made["status"] == "running", made
    try:
        await in_container(client, container)
    finally:
        assert (await client.call("kill", {"container_id": container}))["status"]
    gone = await client.refused("kill", {"container_id": container})
    assert gone["code"] == "not_found" and gone["hint"], gone


async def with_script(client):
    ran = await client.call("run_python", {"code": "import asyncio\nawait asyncio.sleep(0)\nprint('out')\n[1, 2]"})
    assert ran["status"] == "success" and ran["result"] == [1, 2] and ran["stdout"] == "out\n", ran
    wrong = await client.call("run_python", {"code": "mcp_nobody.tool()"})
    assert wrong["status"] == "validation_error" and "nobody" in wrong["error"], wrong
    await client.call("run_python", {"code": "save_memory('story', {'n': 1})"})
    kept = await client.call("run_python", {"code": "value = load_memory('story')\ndelete_memory('story')\nvalue"})
    assert kept["result"] == {"n": 1}, kept


async def in_session(client):
    session = {"session": "story"}
    await client.call("sandbox_write_file", {"path": "helper.py", "content": "answer = 42\n", **session})
    code = "import helper, sys\nprint(helper.answer, sys.argv[1], input())\nopen('made', 'w').write('1')"
    ran = await client.call("execute_code", {"code": code, "args": ["a"], "stdin": "b\n", **session})
    assert ran["stdout"] == "42 a b\n" and ran["exit_code"] == 0 and ran["session"] == "story", ran
    assert not ran["session_is_new"] and not ran["truncated"] and ran["artifacts"] == [], ran
    read = await client.call("sandbox_read_file", {"path": "made", **session})
    assert read["content"] == "1", read
    listed = await client.call("sandbox_list_files", session)
    assert {"/workspace/helper.py", "/workspace/made"} <= {entry["path"] for entry in listed["entries"]}, listed
    failed = await client.call("execute_code", {"code": "exit 3", "language": "sh", **session})
    assert failed["exit_code"] == 3 and failed["status"] == "failed", failed
    wrong = await client.refused("execute_code", {"code": "x", "language": "klingon"})
    assert wrong["code"] == "invalid_argument" and "python" in wrong["message"], wrong
    containers = (await client.call("list_containers", {}))["containers"]
    container = next(one["container_id"] for one in containers if one.get("session") == "story")
    await client.call("kill", {"container_id": container})


async def in_container(client, container):
    await client.call("attach", {"target": "client", "client_name": "story", "session_id": "1"})
    text = "print('snowman: \u2603')\n"
    written = await client.call(
        "fs_write", {"container_id": container, "path": "src/a.py", "content": text}
    )
    ran = await client.call(
        "exec_start",
        {"container_id": "client", "cmd": ["python3", "src/a.py"], "wait_s": 30},
    )
    assert ran["complete"] and ran["exit_code"] == 0, ran
    assert output(ran) == "snowman: \u2603\n", ran

    started = await client.call(
        "exec_start", {"container_id": container, "cmd": ["sh", "-c", "read line; echo got $line; sleep 1000"]}
    )
    exec_id = started["exec_id"]
    await client.call("exec_input", {"exec_id": exec_id, "data": "it\n"})
    polled = await client.call("exec_poll", {"exec_id": exec_id, "wait_s": 30})
    assert output(polled) == "got it\n", polled
    cancelled = await client.call("exec_cancel", {"exec_id": exec_id})
    assert cancelled["status"] == "cancelled", cancelled
    listed = await client.call("list_execs", {"container_id": container, "include_finished": True})
    assert len(listed["execs"]) == 2, listed

    read = await client.call("fs_read", {"container_id": container, "path": "src/a.py"})
    assert read["content"] == text and read["etag"] == written["etag"], read
    stat = await client.call("fs_stat", {"container_id": container, "path": "src/a.py"})
    assert stat["etag"] == written["etag"], stat
    entries = await client.call("fs_list", {"container_id": container, "path": ".", "recursive": True})
    assert len(entries["entries"]) == 2, entries
    await client.call(
        "fs_batch",
        {
            "container_id": container,
            "operations": [
                {"op": "copy", "path": "src/a.py", "dest_path": "b.py"},
                {"op": "delete", "path": "src"},
            ],
        },
    )
    await client.call("fs_export", {"container_id": container, "path": "."})
    await client.call("fs_delete", {"container_id": container, "path": "b.py"})
    denied = await client.refused("fs_read", {"container_id": container, "path": "/etc/passwd"})
    assert denied["code"] == "denied", denied
    wrong = await client.refused("exec_start", {"container_id": container, "cmd": 7})
    assert wrong["code"] == "invalid_argument", wrong


def output(polled):
    return "".join(message["data"] for message in polled["messages"])
