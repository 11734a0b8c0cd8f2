"""Tests of the notebook's two Python programs, over the channel that the server uses."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/exec/notebook")
DEADLINE_S = 60
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def source(name):
    with open(os.path.join(SOURCES, name)) as file:
        return file.read()


class Kernel:
    """A kernel and the server's end of its channel."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "socket")
        os.mkdir(os.path.join(self.directory.name, "home"))
        self.home = os.path.join(self.directory.name, "home")
        environment = dict(os.environ, HOME=self.home)
        command = [sys.executable, "-c", source("boot.py"), self.path, source("supervisor.py"), source("interpreter.py")]
        self.process = subprocess.Popen(command, env=environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"
        self.last_id = 0
        self.connect()

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(self.path)
        kind, data = self.frame()
        self.hello = json.loads(data)
        assert (kind, self.hello["event"]) == (3, "hello")

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.directory.cleanup()

    def request(self, **request):
        self.last_id += 1
        request["id"] = self.last_id
        self.write(request)

    def write(self, request):
        data = json.dumps(request).encode()
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def begin(self, code, **more):
        code = textwrap.dedent(code)
        cell = self.last_id + 1
        self.request(op="run", code=code, cell=cell, figures="figure-%d" % cell, **more)

    def interrupt(self):
        self.write({"op": "interrupt", "id": self.last_id})

    def frame(self):
        (size,) = struct.unpack(">I", self.exactly(4))
        data = self.exactly(size)
        return data[0], data[1:]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def end(self, until=None):
        """Output until the event at the end, or until `until` is in it."""
        out = {1: b"", 2: b""}
        while True:
            kind, data = self.frame()
            if kind == 3:
                event = json.loads(data)
                event["stdout"], event["stderr"] = out[1].decode(), out[2].decode()
                return event
            out[kind] += data
            if until is not None and until in out[1]:
                return None

    def run(self, code, **more):
        self.begin(code, **more)
        return self.end()


class KernelTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.kernel = Kernel()
        self.addCleanup(self.kernel.close)

    def run_cell(self, code, **more):
        return self.kernel.run(code, **more)

    def ok(self, code, **more):
        ended = self.run_cell(code, **more)
        self.assertEqual((ended["event"], ended["code"], ended["stderr"]), ("end", 0, ""))
        return ended

    def value(self, code):
        return self.ok(code)["result"]["text"]

    def dies(self, code):
        ended = self.run_cell(code)
        self.assertEqual(ended["event"], "died")
        self.assertEqual(self.kernel.process.wait(DEADLINE_S), 0)
        return ended


class State(KernelTest):
    def test_variables_imports_and_functions_survive(self):
        self.ok("import math\nx = 40\ndef f(y):\n    return math.floor(x + y)\n")
        self.assertEqual(self.value("f(2.5)"), "42")

    def test_the_last_value_is_underscore(self):
        self.ok("6 * 7")
        self.assertEqual(self.value("_ + 1"), "43")

    def test_an_assignment_none_and_a_semicolon_have_no_result(self):
        for code in ("x = 1", "None", "5;", "", "# nothing"):
            self.assertNotIn("result", self.ok(code), code)

    def test_classes_can_be_pickled(self):
        self.ok("class A:\n    pass\nimport pickle")
        self.assertEqual(self.value("type(pickle.loads(pickle.dumps(A()))) is A"), "True")
        self.assertEqual(self.value("__name__"), "'__main__'")

    def test_future_statements_stay_in_force(self):
        self.ok("from __future__ import annotations")
        self.assertEqual(self.value("def g(a: undefined): pass\ng.__annotations__"), "{'a': 'undefined'}")

    def test_source_of_functions_can_be_read(self):
        self.ok("def f():\n    return 1  # here\n")
        self.assertIn("# here", self.value("import inspect; inspect.getsource(f)"))

    def test_arguments_are_of_the_cell(self):
        self.assertEqual(self.value("import sys; sys.argv"), "['']")
        self.assertEqual(self.ok("sys.argv", args=["a", "b"])["result"]["text"], "['', 'a', 'b']")


class Output(KernelTest):
    def test_streams_are_told_apart_and_complete(self):
        ended = self.run_cell("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.stdout.write('no end')")
        self.assertEqual((ended["stdout"], ended["stderr"]), ("out\nno end", "err\n"))

    def test_much_output_arrives_before_the_end(self):
        ended = self.ok("print('x' * 10_000_000)")
        self.assertEqual(len(ended["stdout"]), 10_000_001)

    def test_output_of_children_is_captured(self):
        ended = self.run_cell("import subprocess; subprocess.run('echo a; echo b >&2', shell=True).returncode")
        self.assertEqual((ended["stdout"], ended["stderr"]), ("a\n", "b\n"))

    def test_every_cell_gets_its_own_output_and_all_of_it(self):
        for number in range(50):
            self.assertEqual(self.ok("import os; os.write(1, b'%d\\n'); print('p%d')" % (number, number))["stdout"], "%d\np%d\n" % (number, number))

    def test_what_a_thread_writes_later_belongs_to_the_next_cell(self):
        self.ok("import threading\ngo = threading.Event(); done = threading.Event()\ndef late():\n    go.wait(); print('late', flush=True); done.set()\nthreading.Thread(target=late).start()")
        self.assertEqual(self.ok("pass")["stdout"], "")
        self.assertEqual(self.ok("go.set(); done.wait(); print('now')")["stdout"], "late\nnow\n")

    def test_a_thread_that_never_stops_writing_does_not_stop_the_cell(self):
        self.ok("import threading, os\ndef flood():\n    while True: os.write(1, b'x' * 4096)\nthreading.Thread(target=flood, daemon=True).start()")
        self.assertIn("done", self.ok("print('done')")["stdout"])

    def test_input_reads_what_was_given_and_only_that(self):
        self.assertEqual(self.ok("print(input() + input())", stdin="a\nb\n")["stdout"], "ab\n")
        ended = self.run_cell("input()")
        self.assertIn("EOFError", ended["stderr"])
        self.assertEqual(self.ok("import subprocess; print(subprocess.run('cat', capture_output=True).stdout)", stdin="to a child")["stdout"], "b'to a child'\n")


class Errors(KernelTest):
    def test_tracebacks_show_the_lines_of_the_user_only(self):
        self.ok("def f(x):\n    return 1 / x\n")
        ended = self.run_cell("y = 1\nf(0)")
        self.assertEqual(ended["code"], 1)
        lines = [line for line in ended["stderr"].splitlines() if set(line.strip()) - set("~^")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<cell 2>", line 2, in <module>',
                "    f(0)",
                '  File "<cell 1>", line 2, in f',
                "    return 1 / x",
                "ZeroDivisionError: division by zero",
            ],
        )

    def test_errors_behind_errors_are_shown(self):
        ended = self.run_cell("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e")
        self.assertIn("direct cause", ended["stderr"])
        self.assertNotIn("hotcell", ended["stderr"])

    def test_a_syntax_error_has_its_line(self):
        ended = self.run_cell("x = (1,\ny = 2")
        self.assertIn("<cell 1>", ended["stderr"])
        self.assertIn("SyntaxError", ended["stderr"])
        self.assertNotIn("hotcell", ended["stderr"])

    def test_leaving_a_cell_keeps_the_state(self):
        self.ok("x = 1")
        for code, expected in [("sys.exit(3)", 3), ("sys.exit()", 0), ("exit(2)", 2), ("sys.exit(259)", 3), ("raise SystemExit", 0)]:
            self.assertEqual(self.run_cell("import sys; " + code)["code"], expected, code)
        ended = self.run_cell("sys.exit('why')")
        self.assertEqual((ended["code"], ended["stderr"]), (1, "why\n"))
        self.assertEqual(self.value("x"), "1")

    def test_deep_recursion_is_an_error(self):
        ended = self.run_cell("def f(): f()\nf()")
        self.assertIn("RecursionError", ended["stderr"])
        self.assertEqual(self.value("1"), "1")

    def test_an_error_that_cannot_be_shown_is_named(self):
        ended = self.run_cell("class E(Exception):\n    def __str__(self): raise ValueError\nraise E")
        self.assertEqual(ended["code"], 1)
        self.assertIn("E", ended["stderr"])


class Await(KernelTest):
    def test_await_at_the_top(self):
        self.ok("import asyncio\nawait asyncio.sleep(0)\nx = await asyncio.sleep(0, 5)")
        self.assertEqual(self.value("await asyncio.sleep(0, x)"), "5")

    def test_all_cells_share_one_loop_and_tasks_go_on(self):
        self.ok("import asyncio\nasync def f():\n    await asyncio.sleep(0.001)\n    return 7\nt = asyncio.create_task(f()); await asyncio.sleep(0)")
        self.assertEqual(self.value("await t"), "7")

    def test_asyncio_run_still_works(self):
        self.ok("import asyncio\nasync def f(): return 3")
        self.assertEqual(self.value("asyncio.run(f())"), "3")
        self.assertEqual(self.value("await f()"), "3")

    def test_tracebacks_of_waiting_cells_hide_the_loop(self):
        ended = self.run_cell("async def f():\n    raise KeyError(1)\nawait f()")
        self.assertNotIn("asyncio", ended["stderr"])
        self.assertIn("await f()", ended["stderr"])


class Interrupts(KernelTest):
    def interrupted(self, code):
        self.ok("x = 'kept'")
        self.kernel.begin("print('begun', flush=True)\n" + textwrap.dedent(code))
        self.kernel.end(until=b"begun\n")
        self.kernel.interrupt()
        ended = self.kernel.end()
        self.assertEqual((ended["event"], ended["code"]), ("end", 130), ended)
        self.assertEqual(self.value("x"), "'kept'")
        return ended

    def test_a_busy_loop_is_interrupted_and_the_state_stays(self):
        self.assertIn("KeyboardInterrupt", self.interrupted("while True: pass")["stderr"])

    def test_sleeping_waiting_and_children_are_interrupted(self):
        self.interrupted("import time; time.sleep(1000)")
        self.interrupted("import asyncio; await asyncio.sleep(1000)")
        self.interrupted("import subprocess; subprocess.run(['sleep', '1000'])")

    def test_an_endless_repr_is_interrupted(self):
        self.interrupted("class R:\n    def __repr__(self):\n        while True: pass\nR()")

    def test_an_interrupt_is_not_lost_however_early_it_comes(self):
        self.ok("x = 'kept'")
        for _ in range(50):
            self.kernel.begin("while True: pass")
            self.kernel.interrupt()
            ended = self.kernel.end()
            self.assertEqual((ended["event"], ended["code"]), ("end", 130), ended)
            self.assertIn("KeyboardInterrupt", ended["stderr"])
        self.assertEqual(self.value("x"), "'kept'")

    def test_an_interrupt_at_the_very_end_keeps_the_state(self):
        self.ok("x = 'kept'")
        for _ in range(100):
            self.kernel.begin("print('begun', flush=True)")
            self.kernel.end(until=b"begun\n")
            self.kernel.interrupt()
            self.assertEqual(self.kernel.end()["event"], "end")
        self.assertEqual(self.value("x"), "'kept'")

    def test_an_interrupt_between_cells_does_nothing(self):
        self.ok("x = 1")
        self.kernel.interrupt()
        self.assertEqual(self.value("x"), "1")

    def test_an_interrupt_can_be_caught_and_ignored(self):
        self.kernel.begin("import time\ntry:\n    print('begun', flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('caught')")
        self.kernel.end(until=b"begun\n")
        self.kernel.interrupt()
        ended = self.kernel.end()
        self.assertEqual((ended["code"], ended["stdout"]), (0, "caught\n"))


class Values(KernelTest):
    def described(self, body):
        code = "class V:\n    def __repr__(self): return 'V()'\n" + textwrap.indent(textwrap.dedent(body), "    ") + "\nV()"
        return self.ok(code)["result"]

    def file(self, described):
        with open(os.path.join(self.kernel.home, described["path"]), "rb") as file:
            return file.read()

    def test_pictures_become_files(self):
        described = self.described("def _repr_png_(self): return %r" % PNG)
        self.assertEqual((described["mime_type"], described["text"]), ("image/png", "V()"))
        self.assertEqual(self.file(described), PNG)
        import base64

        described = self.described("def _repr_jpeg_(self): return %r" % base64.b64encode(PNG).decode())
        self.assertEqual((described["mime_type"], self.file(described)), ("image/jpeg", PNG))

    def test_svg_and_html_become_files_and_markdown_and_json_stay_in_the_answer(self):
        for method, mime in [("svg", "image/svg+xml"), ("html", "text/html")]:
            described = self.described("def _repr_%s_(self): return '<b>'" % method)
            self.assertEqual((described["mime_type"], self.file(described)), (mime, b"<b>"))
        described = self.described("def _repr_markdown_(self): return '# x'")
        self.assertEqual((described["mime_type"], described["data"]), ("text/markdown", "# x"))
        described = self.described("def _repr_json_(self): return {'a': [1]}")
        self.assertEqual((described["mime_type"], described["data"]), ("application/json", '{"a": [1]}'))

    def test_the_richest_form_wins_and_broken_ones_do_not_count(self):
        body = "def _repr_markdown_(self): return 'm'\ndef _repr_html_(self): return 'h'\ndef _repr_png_(self): raise ValueError"
        self.assertEqual(self.described(body)["mime_type"], "text/html")
        body = "def _repr_mimebundle_(self, include=None, exclude=None): return {'text/markdown': 'm', 'text/plain': 'p'}, {}"
        self.assertEqual(self.described(body)["data"], "m")

    def test_display_shows_values_in_order(self):
        displayed = self.ok("display(1, 'b')\ndisplay([3])")["displayed"]
        self.assertEqual([value["text"] for value in displayed], ["1", "'b'", "[3]"])
        ended = self.ok("for i in range(100): display(i)")
        self.assertEqual((len(ended["displayed"]), ended["left_out"]), (16, 84))

    def test_a_long_repr_is_cut(self):
        text = self.value("'a' * 1_000_000")
        self.assertLess(len(text), 30_000)
        self.assertIn("980002 characters left out", text)

    def test_a_failing_repr_is_an_error_of_the_cell(self):
        ended = self.run_cell("class R:\n    def __repr__(self): return 1/0\nR()")
        self.assertEqual(ended["code"], 1)
        self.assertIn("1/0", ended["stderr"])
        self.assertNotIn("hotcell", ended["stderr"])

    def test_a_link_in_place_of_a_file_is_not_followed(self):
        target = os.path.join(self.kernel.home, "target")
        os.mkdir(os.path.join(self.kernel.home, "artifacts"))
        os.symlink(target, os.path.join(self.kernel.home, "artifacts/figure-1-value-01.png"))
        ended = self.run_cell("class V:\n    def _repr_png_(self): return b'x'\nV()")
        self.assertEqual((ended["code"], os.path.exists(target)), (1, False))

    def test_data_frames_are_compact_tables(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        text = self.value("import pandas\npandas.DataFrame({'c%d' % i: range(1000) for i in range(30)})")
        self.assertTrue(text.endswith("[1000 rows x 30 columns]"), text[-200:])
        self.assertLess(len(text.splitlines()), 30)
        self.assertIn("Length: 1000", self.value("pandas.Series(range(1000))"))


class Hostile(KernelTest):
    def test_leaving_the_process_is_told(self):
        ended = self.dies("print('last', flush=True)\nimport os\nos._exit(7)")
        self.assertEqual((ended["code"], ended["stdout"], ended["id"]), (7, "last\n", 1))

    def test_being_killed_is_told(self):
        self.assertEqual(self.dies("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")["signal"], 9)

    def test_a_crash_is_told(self):
        self.assertEqual(self.dies("import ctypes; ctypes.string_at(0)")["signal"], signal.SIGSEGV)

    def test_dying_while_a_child_keeps_the_descriptors_is_told(self):
        ended = self.dies("import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nos._exit(4)")
        self.assertEqual(ended["code"], 4)

    def test_a_fork_does_not_answer_twice(self):
        ended = self.ok("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('in', pid > 0)")
        self.assertEqual(sorted(ended["stdout"].splitlines()), ["in False", "in True"])
        self.assertEqual(self.value("1"), "1")

    def test_closed_streams_are_there_for_the_next_cell(self):
        self.run_cell("import os\nos.close(1); os.close(2); os.close(0)")
        self.assertEqual(self.ok("print('back')")["stdout"], "back\n")
        self.run_cell("import sys\nsys.stdout.close(); sys.stderr.close()")
        self.assertEqual(self.ok("print('again')")["stdout"], "again\n")

    def test_closing_the_channel_ends_the_interpreter(self):
        self.assertEqual(self.dies("import os; os.closerange(3, 1000)")["event"], "died")

    def test_changed_builtins_do_not_break_the_kernel(self):
        self.ok("import builtins\nbuiltins.print = builtins.open = builtins.repr = builtins.eval = None")
        self.assertEqual(self.value("1 + 1"), "2")

    def test_builtins_without_which_nothing_works_end_the_interpreter(self):
        self.dies("import builtins\nbuiltins.len = builtins.isinstance = builtins.type = None")

    def channel(self):
        return """
            import gc, json, os, socket, stat, struct
            channel = [int(n) for n in os.listdir('/proc/self/fd') if int(n) >= 200 and os.path.exists('/proc/self/fd/' + n) and stat.S_ISSOCK(os.stat('/proc/self/fd/' + n).st_mode)][0]
            def forge(**event):
                data = json.dumps(event).encode()
                os.write(channel, struct.pack('>I', len(data)) + data)
        """

    def test_a_forged_end_is_followed_by_a_usable_interpreter(self):
        self.ok(self.channel())
        forged = self.run_cell("forge(event='end', id=2, code=0, result={'text': 'forged'})")
        self.assertEqual(forged["result"]["text"], "forged")
        self.assertEqual(self.value("1 + 1"), "2")
        self.assertEqual(self.ok("forge(event='end', id=99, code=0); 5")["result"]["text"], "5")

    def test_garbage_in_the_channel_ends_the_interpreter(self):
        self.ok(self.channel())
        self.dies("os.write(channel, b'\\xff' * 100)\nimport time; time.sleep(1000)")

    def test_a_frame_that_is_not_json_ends_the_interpreter(self):
        self.ok(self.channel())
        self.dies("os.write(channel, b'\\0\\0\\0\\1[')\nimport time; time.sleep(1000)")


class Server(KernelTest):
    def test_a_server_that_is_gone_interrupts_and_the_next_finds_the_state(self):
        self.ok("x = 'kept'")
        self.kernel.begin("print('begun', flush=True)\nwhile True: pass")
        self.kernel.end(until=b"begun\n")
        self.kernel.socket.close()
        self.kernel.connect()
        ends = time.monotonic() + DEADLINE_S
        while self.kernel.hello["busy"]:
            assert time.monotonic() < ends
            self.kernel.socket.close()
            self.kernel.connect()
        self.assertEqual(self.kernel.hello["last_id"], 2)
        ended = self.ok("x")
        self.assertEqual((ended["result"]["text"], ended["stdout"]), ("'kept'", ""))

    def test_a_request_runs_once(self):
        self.ok("n = 0")
        self.ok("n += 1")
        self.kernel.write({"op": "run", "id": 2, "cell": 2, "figures": "f", "code": "n += 1"})
        self.assertEqual(self.value("n"), "1")

    def test_usage_is_told(self):
        ended = self.ok("sum(range(10**6))")
        self.assertGreater(ended["user_us"], 0)
        self.assertGreater(ended["max_rss_bytes"], 1 << 20)


if __name__ == "__main__":
    unittest.main()
