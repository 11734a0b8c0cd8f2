# The warmed Python interpreter ("zygote"). The agent starts it with this source as an argument.
#
#   agent ── zygote                     imports modules, forks; never runs user code
#        ├── keeper ── spare            forked by the zygote, waiting for its script
#        └── keeper ── script           a spare that got one
#
# Keepers are children of the agent (CLONE_PARENT) and subreapers, like those that the agent forks
# itself. A spare runs its script as `python3 script` would: from the same C function, as the main
# thread, with no frame of ours below it. The trick is in `main`: the zygote waits in a thread whose
# lowest frame is C, and the thread that forks is the child's main thread.
#
# Whatever a spare cannot do exactly so, it leaves to the plain interpreter: it answers PLAIN, and
# the agent starts one. Nothing here may import from a directory that a script can write to.
import sys

sys.path.pop(0)
sys.dont_write_bytecode, WRITES_BYTECODE = True, sys.dont_write_bytecode
AT_START = set(sys.modules)
MAIN = {name: value for name, value in vars(sys.modules["__main__"]).items() if name != "sys"}

if sys.implementation.name != "cpython" or sys.version_info < (3, 8):
    sys.exit(1)

import __future__
import _thread
import atexit
import codecs
import ctypes
import gc
import os
import signal
import socket
import stat
import struct
import time
from collections import deque
from functools import partial

READY, RUNNING, PLAIN = b"R", b"r", b"p"
REQUEST_BYTES_MAX = 64 << 10
RECORD = struct.Struct("<5Q")
CODE, SIGNAL, SPARE = 3, 4, 5
OOM_SCORE_ADJ = b"500"
DESCRIPTORS_MAX = 256
STACK_BYTES = 8 << 20
ZIP_TAIL_BYTES = 65557
WALL = 0x40000000
CLONE_PARENT = 0x8000
CLONE_NUMBERS = {"x86_64": 56, "aarch64": 220}
SET_DUMPABLE, SET_NAME, SET_CHILD_SUBREAPER = 4, 15, 36

# Usual modules, as many as there is memory for. None of them starts a thread, opens a file or keeps
# the working directory.
PRELOADED = """
    array base64 bisect calendar collections.abc contextlib copy csv dataclasses datetime decimal enum
    fractions functools glob heapq inspect io itertools json locale math numbers operator pathlib
    queue random re shutil signal string subprocess textwrap threading traceback types typing
    urllib.parse warnings weakref zlib
"""
# Where an image has it. Libraries that compute in threads end them before a fork.
NUMPY = "numpy"

# How scripts get rid of our frames. Before 3.12, a second thread state in one thread confuses C code
# that asks for the GIL; a thread does not. Since then an interpreter knows the state of its main
# thread, and needs it when it exits: there, scripts get a new state. Where it is not found they
# live with our frames.
HAS_OWN_THREAD = sys.version_info < (3, 12)
RUNTIME_WORDS_MAX = 1024

# The modules that scripts find loaded. Never freed.
KEPT = {}

libc = ctypes.PyDLL(None, use_errno=True)
libc.fdopen.restype = ctypes.c_void_p
run_file = ctypes.pythonapi.PyRun_SimpleFileExFlags
run_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]


def prctl(option, argument):
    rest = [ctypes.c_ulong(0)] * 3
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    return libc.prctl(ctypes.c_int(option), value, *rest)


def new_thread_state():
    """A state of this thread in which no frame runs."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Main.restype = api.PyThreadState_New.restype = ctypes.c_void_p
    interpreter = ctypes.c_void_p(api.PyInterpreterState_Main())
    return ctypes.c_void_p(api.PyThreadState_New(interpreter))


def main_thread_state():
    """Where the interpreter keeps the state of its main thread: behind that thread's id."""
    state = ctypes.pythonapi.PyThreadState_Get
    state.restype = ctypes.c_void_p
    sought = (_thread.get_ident(), state())
    address = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    words = (ctypes.c_size_t * RUNTIME_WORDS_MAX).from_address(address)
    places = [place for place, pair in enumerate(zip(words, words[1:])) if pair == sought]
    if len(places) != 1:
        return None
    return ctypes.c_size_t.from_address(ctypes.addressof(words) + 8 * (places[0] + 1))


class Unfit(Exception):
    """What only the plain interpreter does right."""


MAIN_STATE = None if HAS_OWN_THREAD else main_thread_state()


def preload():
    # Called last, because it is registered first.
    atexit.register(forget_modules)
    codecs.register_error("hotcell", LastWord())
    for name in PRELOADED.split() + [NUMPY]:
        try:
            __import__(name)
        except Exception:
            # A script may never need it, or sees for itself.
            pass


def forget_modules():
    """Keeps the interpreter from taking its modules apart, which would copy most of the memory that
    we share. Those of the script, which may have something to say, are not among them."""
    for name, module in KEPT.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        # Then it has another exit code.
        LastWord.code = None


class LastWord:
    """Freed when the interpreter has called all that it calls: whatever is still buffered is written
    then, because modules that we keep may keep the streams, and the process exits at once."""

    code = None

    def __init__(self):
        self.flushes = sys.stdout.flush, sys.stderr.flush

    def __call__(self, error):
        raise error

    def __del__(self, exit=os._exit):
        for flush in self.flushes:
            try:
                flush()
            except:
                # A closed one. There are no names left to catch it by.
                pass
        if self.code is not None:
            exit(self.code)


def preloaded_names():
    """What a script's own module of the same name would come before."""
    names = {name.partition(".")[0] for name in KEPT if name not in AT_START}
    return names.difference(sys.builtin_module_names)


def prepare():
    """Makes this process ready to fork; returns the agent's socket."""
    if prctl(SET_DUMPABLE, 0) != 0:
        raise OSError("prctl")
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    control = socket.socket(fileno=os.dup(0))
    preload()
    needed = ("__main__", "builtins", "sys")
    KEPT.update(item for item in sys.modules.items() if item[0] not in needed)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(KEPT))
    gc.collect()
    gc.freeze()
    gc.disable()
    return control


def steps(control, results):
    """Serves the agent; continues in each child as its script. Yields what is called without a
    Python frame."""
    try:
        script = trial = try_out()
        if script is None:
            names = preloaded_names()
            control.send(READY)
            request = wait_for_spares(control)
            script = become(request, names)
    except BaseException:
        os._exit(1)
    if MAIN_STATE is not None:
        state = new_thread_state()
        yield partial(ctypes.pythonapi.PyThreadState_Swap, state)
        MAIN_STATE.value = state.value
    yield partial(run_file, script[0], script[1], 1, None)
    if trial:
        check_fork()
    code = exit_code(results[-1])
    yield partial(ctypes.pythonapi.Py_Exit, code)


def try_out():
    """Runs a script that does nothing, in a child: this Python may be one that we do not know.
    Returns the script in the child, and in the zygote if that has ended well."""
    pid = os.fork()
    if pid == 0:
        set_main()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        path = os.fsencode(sys.modules["__future__"].__file__)
        return libc.fdopen(os.open(path, os.O_RDONLY), b"rb"), path
    _, status = os.waitpid(pid, 0)
    threads = len(os.listdir("/proc/self/task"))
    if status != 0 or threads > 1 + HAS_OWN_THREAD:
        raise Unfit("scripts would not end well")
    return None


def check_fork():
    """Exits in a child and, if that went well, here."""
    pid = os.fork()
    if pid != 0 and os.waitpid(pid, 0)[1] != 0:
        os._exit(1)


def wait_for_spares(control):
    """Forks a spare per message; returns in the spare, with its socket."""
    number = CLONE_NUMBERS[os.uname().machine]
    flags = CLONE_PARENT | signal.SIGCHLD
    while True:
        data, descriptors, _, _ = receive(control, 1, 2)
        if not data:
            os._exit(0)
        request, told = descriptors
        # The C library's fork would make the keeper our child.
        pid = libc.syscall(*[ctypes.c_long(part) for part in (number, flags, 0, 0, 0, 0)])
        if pid == 0:
            keep(request, told)
            control.detach()
            return socket.socket(fileno=request)
        os.close(request)
        os.close(told)
        if pid < 0:
            os._exit(1)


def keep(request, told):
    """Becomes a keeper; returns in the spare."""
    if prctl(SET_CHILD_SUBREAPER, 1) != 0:
        os._exit(1)
    os.setpgid(0, 0)
    leader = os.fork()
    if leader == 0:
        os.close(told)
        return
    prctl(SET_NAME, b"hotcell-keeper")
    os.closerange(0, told)
    os.closerange(told + 1, DESCRIPTORS_MAX)
    os.write(told, RECORD.pack(SPARE, leader, os.getpid(), 0, 0))
    while True:
        try:
            pid, status, usage = os.wait4(-1, WALL)
        except ChildProcessError:
            os._exit(0)
        if pid == leader and not os.WIFSTOPPED(status):
            tell_end(told, status, usage)


def tell_end(told, status, usage):
    if os.WIFSIGNALED(status):
        kind, value = SIGNAL, os.WTERMSIG(status)
    else:
        kind, value = CODE, os.WEXITSTATUS(status)
    user, system = (int(seconds * 1000000) for seconds in (usage.ru_utime, usage.ru_stime))
    os.write(told, RECORD.pack(kind, value, user, system, usage.ru_maxrss * 1024))


def become(request, names):
    """Waits for a script and becomes the process that runs it."""
    renew()
    data, descriptors, _, _ = receive(request, REQUEST_BYTES_MAX, 3)
    if not data:
        os._exit(0)
    try:
        script = dress(data, descriptors, names)
        if signal.sigpending():
            raise Unfit("somebody sent us a signal before there was a script")
    except BaseException:
        request.send(PLAIN)
        os._exit(0)
    request.send(RUNNING)
    undress(request, script[0])
    return libc.fdopen(script[0], b"rb"), script[1]


def dress(data, descriptors, names):
    """Takes over all that a new process gets from its parent."""
    argc, envc = struct.unpack_from("<II", data)
    strings = data[8:].split(b"\0")
    cwd, argv, env = strings[0], strings[1 : 1 + argc], strings[1 + argc : 1 + argc + envc]
    os.setsid()
    os.chdir(cwd)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    set_environment(env)
    name = os.fsdecode(argv[1])
    directory = os.path.dirname(os.path.realpath(name))
    script = open_script(name)
    check_shadows(directory, names)
    add_user_site()
    add_python_path()
    sys.path.insert(0, directory)
    sys.argv[:] = [name] + [os.fsdecode(part) for part in argv[2:]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [os.fsdecode(part) for part in argv]
    renew_finders()
    if "logging" in sys.modules:
        sys.modules["logging"]._startTime = time.time()
    path = argv[1]
    if sys.version_info >= (3, 9) and not path.startswith(b"/"):
        path = os.fsencode(os.getcwd()) + b"/" + path
    return script, path


def set_main():
    """Replaces our `__main__` by one in which nothing has run."""
    main = sys.modules["__main__"] = type(sys)("__main__")
    vars(main).clear()
    vars(main).update(MAIN)
    if "__annotations__" in MAIN:
        vars(main)["__annotations__"] = {}


def set_environment(env):
    pairs = [part.split(b"=", 1) for part in env]
    os.environ.clear()
    for name, value in pairs:
        os.environb[name] = value
    posix = sys.modules["posix"].environ
    posix.clear()
    posix.update(pairs)
    time.tzset()


def open_script(name):
    script = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    about = os.fstat(script)
    if not stat.S_ISREG(about.st_mode) or not name.endswith(".py"):
        raise Unfit("a directory, an archive or bytecode")
    tail = os.pread(script, ZIP_TAIL_BYTES, max(0, about.st_size - ZIP_TAIL_BYTES))
    if b"PK\5\6" in tail:
        raise Unfit("an archive")
    return script


def check_shadows(directory, names):
    for entry in os.listdir(directory):
        stem, _, suffix = entry.partition(".")
        if stem in names and (not suffix or suffix.endswith(("py", "pyc", "so"))):
            raise Unfit("a module of the script comes before one that we have loaded")


def add_python_path():
    """Adds `PYTHONPATH`, which an interpreter searches from its start: nothing that is already loaded
    may be there."""
    value = os.environ.get("PYTHONPATH", "")
    entries = value.split(":") if value else []
    loaded = {name.partition(".")[0] for name in sys.modules}.difference(sys.builtin_module_names)
    for entry in entries:
        if entry != os.path.abspath(entry) or entry in sys.path or entries.count(entry) > 1:
            raise Unfit("an entry that site would change")
        if os.path.isdir(entry):
            check_shadows(entry, loaded.union(("sitecustomize", "usercustomize")))
        elif os.path.exists(entry):
            raise Unfit("an archive")
    sys.path[:0] = entries


def add_user_site():
    """Adds the directory of `pip install --user`, which exists only below a home directory."""
    site = sys.modules.get("site")
    if site is None or not site.ENABLE_USER_SITE:
        return
    site.USER_BASE = site.USER_SITE = None
    path = site.getusersitepackages()
    if not os.path.isdir(path):
        return
    entries = os.listdir(path)
    if any(entry.endswith(".pth") or entry.startswith("usercustomize") for entry in entries):
        raise Unfit("code that runs when an interpreter starts")
    check_shadows(path, {NUMPY}.intersection(sys.modules))
    others = site.getsitepackages()
    places = [place for place, each in enumerate(sys.path) if each in others]
    sys.path.insert(places[0] if places else len(sys.path), path)


def renew():
    """Renews what the zygote has and each interpreter has for itself."""
    sys.dont_write_bytecode = WRITES_BYTECODE
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    for name in ("cache", "_interactive_cache"):
        getattr(sys.modules.get("linecache"), name, {}).clear()
    set_main()
    gc.enable()


def renew_finders():
    """What was found when the zygote looked may have changed."""
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None:
            del sys.path_importer_cache[path]
        elif "-packages" in path:
            finder.invalidate_caches()


def undress(request, script):
    """Gives up what protected us from scripts: from here on we are one."""
    request.detach()
    os.closerange(3, script)
    os.closerange(script + 1, DESCRIPTORS_MAX)
    prctl(SET_DUMPABLE, 1)
    try:
        adjust = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(adjust, OOM_SCORE_ADJ)
        os.close(adjust)
    except OSError:
        # The kernel may refuse it, and it is no more than a preference.
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def exit_code(result):
    """What the interpreter exits with after its script. After an unhandled KeyboardInterrupt it
    kills itself, when nothing else is left to do."""
    if result == 0 or getattr(sys, "last_type", None) is not KeyboardInterrupt:
        LastWord.code = int(result != 0)
        return LastWord.code
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        # exit(SIGINT) calls raise(SIGINT).
        libc.on_exit(ctypes.cast(libc["raise"], ctypes.c_void_p), None)
    except AttributeError:
        # musl
        sys.modules["atexit"]._run_exitfuncs()
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGINT)
    return int(signal.SIGINT)


def receive(connection, bytes_max, descriptors_max):
    room = socket.CMSG_SPACE(4 * descriptors_max)
    data, control, flags, _ = connection.recvmsg(bytes_max, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = []
    for _, _, part in control:
        descriptors += struct.unpack("%di" % (len(part) // 4), part)
    return data, descriptors, flags, None


def main():
    results = []
    # Each step is called by C, so that nothing of ours is below a script on its stack.
    calls = map(partial.__call__, steps(prepare(), results))
    serve = partial(deque, map(results.append, calls), 0)
    if not HAS_OWN_THREAD:
        serve()
    _thread.stack_size(STACK_BYTES)
    _thread.start_new_thread(serve, ())
    _thread.stack_size(0)
    while True:
        signal.pause()


main()
