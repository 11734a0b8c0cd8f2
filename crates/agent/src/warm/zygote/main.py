# The warmed Python interpreter ("zygote"). The agent starts it with this source as an argument.
#
#   agent ── zygote                     imports modules, forks; never runs user code
#        ├── keeper ── spare            forked by the zygote, waiting for its script
#        └── keeper ── script           a spare that got one
#
# Keepers are children of the agent (CLONE_PARENT) and subreapers, like those that the agent forks
# itself. They run a few instructions that the agent brings along, and no Python: each page that a
# forked process writes to is copied, and Python writes to the count of references of all that it
# looks at. That is what a script in a spare costs, so whatever can be done before a fork is done
# there, and what is left touches few objects. A spare runs its script as `python3 script` would: from the same C function, as the main
# thread, with no frame of ours below it. The trick is in `main`: the zygote waits in a thread whose
# lowest frame is C, and the thread that forks is the child's main thread.
#
# Whatever a spare cannot do exactly so, it leaves to the plain interpreter: it answers PLAIN, and
# the agent starts one. Nothing here may import from a directory that a script can write to.
import sys

KEEPER = bytes.fromhex(sys.argv.pop())
sys.dont_write_bytecode, WRITES_BYTECODE = True, sys.dont_write_bytecode
AT_START = set(sys.modules)
MAIN = {name: value for name, value in vars(sys.modules["__main__"]).items() if name != "sys"}

if sys.implementation.name != "cpython" or sys.version_info < (3, 8):
    sys.exit(1)

import __future__
import _signal
import _socket
import _thread
import atexit
import codecs
import ctypes
import gc
import mmap
import os
import signal
import struct
import time
from array import array
from collections import deque
from functools import partial

READY, RUNNING, PLAIN = b"R", b"r", b"p"
REQUEST_BYTES_MAX = 64 << 10
NUMBERS = struct.Struct("<II")
OOM_SCORE_ADJ = b"500"
DESCRIPTORS_MAX = 256
STACK_BYTES = 8 << 20
FILE_TYPE, REGULAR = 0o170000, 0o100000
ZIP_TAIL_BYTES = 65557
SET_DUMPABLE = 4
READ_EXECUTE = 5
ENCODING, ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

# Usual modules, as many as there is memory for. None of them starts a thread, opens a file or keeps
# the working directory.
PRELOADED = """
    array base64 bisect calendar collections.abc contextlib copy csv dataclasses datetime decimal enum
    fractions functools glob heapq inspect io itertools json locale math numbers operator pathlib
    queue random re shutil signal socket string subprocess textwrap threading traceback types typing
    urllib.parse warnings weakref zlib
"""
# Where an image has it. Libraries that compute in threads end them before a fork.
NUMPY = "numpy"
MT19937_BYTES = 624 * 4

# How scripts get rid of our frames. Before 3.12, a second thread state in one thread confuses C code
# that asks for the GIL; a thread does not. Since then an interpreter knows the state of its main
# thread, and needs it when it exits: there, scripts get a new state. Where it is not found they
# live with our frames.
HAS_OWN_THREAD = sys.version_info < (3, 12)
RUNTIME_WORDS_MAX = 1024

# The name of what is called last. It is one of a table that is freed late.
LAST_WORD = "hotcell"

# The modules that scripts find loaded.
KEPT = {}
NEEDED = ("__main__", "builtins", "sys")

# Where the table of modules is, an empty one, and room for one.
MODULES = []
DICT_BYTES = {}.__sizeof__() - object.__basicsize__

# The names of what a script's own module would come before: of all modules, and of those that a
# plain interpreter would not have loaded.
LOADED, SHADOWED = set(), set()

# The end of the path of what is installed for one user.
USER_SITE = []

# What `threading` calls after a fork, and its code, where spares do without.
THREADING = []

# What spares need of their memory: three numbers for each range of pages, which are its address, its
# size, and what to ask for.
NEEDED_PAGES = array("l")

# The system call by which a spare registers its restartable sequences.
SEQUENCES = []
RSEQ, RSEQ_BYTES, RSEQ_SIGNATURE = 334, 32, 0x53053053

libc = ctypes.PyDLL(None, use_errno=True)
libc.fdopen.restype = ctypes.c_void_p
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
libc.syscall.argtypes = [ctypes.c_long] + [ctypes.c_size_t] * 4
run_file = ctypes.pythonapi.PyRun_SimpleFileExFlags
run_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
seed_numpy = None


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
    codecs.register_error(LAST_WORD, LastWord())
    for name in PRELOADED.split() + [NUMPY]:
        try:
            __import__(name)
        except Exception:
            # A script may never need it, or sees for itself.
            pass
    global seed_numpy
    seed_numpy = numpy_seeder()


def forget_modules():
    """Keeps the interpreter from taking its modules apart, which would copy most of the memory that
    we share. Those of the script, which may have something to say, are left: they are the last
    ones in the table."""
    own = []
    for name, module in reversed(sys.modules.items()):
        if KEPT.get(name, KEPT) is module:
            break
        own.append((name, module))
    for name, _ in own:
        del sys.modules[name]
    exchange_modules()
    sys.modules.update(reversed(own))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        # Then it has another exit code.
        LastWord.code = None


def exchange_modules():
    """Gives the table of modules the contents of an empty one, and the other way round: to remove them
    one by one would write to each of them."""
    table, empty, spare = MODULES
    ctypes.memmove(spare, table, DICT_BYTES)
    ctypes.memmove(table, empty, DICT_BYTES)
    ctypes.memmove(empty, spare, DICT_BYTES)


def find_modules():
    """Finds what two dictionaries differ in: all that follows their count of references and type."""
    empty = {}
    keep(empty)
    head = object.__basicsize__
    places = [id(table) + head for table in (sys.modules, empty)]
    if [ctypes.c_ssize_t.from_address(place).value for place in places] != [len(sys.modules), 0]:
        raise Unfit("another kind of dictionary")
    spare = ctypes.create_string_buffer(DICT_BYTES)
    keep(spare)
    MODULES[:] = places + [ctypes.addressof(spare)]


class LastWord:
    """Freed when the interpreter has called all that it calls: whatever is still buffered is written
    then, because modules that we keep may keep the streams, and the process exits at once."""

    code = None
    before = int

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
        self.before()
        if self.code is not None:
            exit(self.code)


def prepare(keeper):
    """Makes this process ready to fork; returns the agent's socket and what forks a keeper."""
    if libc.prctl(SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("prctl")
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    kind = _socket.AF_UNIX, _socket.SOCK_SEQPACKET
    control = _socket.socket(*kind, 0, os.dup(0))
    fork_keeper = load(keeper)
    preload()
    return control, fork_keeper


def keep_all():
    """Keeps all that is there, but for the last word and the table that has it."""
    last = codecs.lookup_error(LAST_WORD)
    for each in gc.get_objects():
        if each is not last and not (type(each) is dict and each.get(LAST_WORD) is last):
            keep(each)


def keep(value):
    """Keeps an interpreter from freeing something at its exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def load(code):
    """Makes a function of machine code."""
    if not code:
        raise Unfit("no keeper for this processor")
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    size = ctypes.c_size_t(mmap.PAGESIZE)
    if libc.mprotect(ctypes.c_void_p(address), size, READ_EXECUTE) != 0:
        raise OSError("mprotect")
    keep(memory)
    return ctypes.PYFUNCTYPE(
        ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
    )(address)


def settle():
    """Does what each spare would have to do, and would have to copy memory for."""
    if HAS_OWN_THREAD:
        take_over_threading()
    sys.dont_write_bytecode = WRITES_BYTECODE
    for name in ("cache", "_interactive_cache"):
        getattr(sys.modules.get("linecache"), name, {}).clear()
    renew_finders()
    find_user_site()
    find_sequences()
    # The script's own come last.
    for name in NEEDED:
        sys.modules[name] = sys.modules.pop(name)
    find_modules()
    first = {name: name.partition(".")[0] for name in sys.modules}
    LOADED.update(first.values())
    SHADOWED.update(first[name] for name in first if name not in AT_START)
    for names in (LOADED, SHADOWED):
        names.difference_update(sys.builtin_module_names)
    LOADED.update(("sitecustomize", "usercustomize"))
    gc.collect()
    if hasattr(libc, "malloc_trim"):
        # Each fork takes as long as there are pages.
        libc.malloc_trim(0)
    keep_all()
    KEPT.update(item for item in sys.modules.items() if item[0] not in NEEDED)
    gc.freeze()
    gc.disable()
    # The script's, so it is not frozen.
    set_main()


def take_over_threading():
    """Makes this thread the main thread of scripts. What `threading` does after a fork is done once and
    here, because it calls fifty functions; `begin_threading` does the rest."""
    threading = sys.modules["threading"]
    hook = threading._after_fork
    hook()
    THREADING.extend((hook, hook.__code__))
    hook.__code__ = (lambda: None).__code__


def begin_threading():
    if THREADING:
        hook, code = THREADING
        hook.__code__ = code
    sys.modules["threading"]._main_thread._native_id = _thread.get_native_id()


def find_sequences():
    """Finds what the C library has the kernel write to for restartable sequences (since glibc 2.35):
    it is behind the thread's id. Kernels do not register it for the children of a keeper."""
    try:
        size = ctypes.c_uint.in_dll(libc, "__rseq_size").value
        offset = ctypes.c_ssize_t.in_dll(libc, "__rseq_offset").value
    except ValueError:
        return
    if size != 0:
        SEQUENCES.extend((RSEQ, _thread.get_ident() + offset, RSEQ_BYTES, 0, RSEQ_SIGNATURE))


def register_sequences():
    if SEQUENCES:
        libc.syscall(*SEQUENCES)


def steps(control, fork_keeper, results):
    """Serves the agent; continues in each child as its script. Yields what is called without a
    Python frame."""
    try:
        settle()
        script, trial = try_out(check_fork), check_fork
        if script is None:
            script, trial = try_out(stop_at_end), stop_at_end
        if script is None:
            trial = None
            control.send(READY)
            request = wait_for_spares(control, fork_keeper)
            script = become(request, SHADOWED)
    except BaseException:
        os._exit(1)
    if MAIN_STATE is not None:
        state = new_thread_state()
        yield partial(ctypes.pythonapi.PyThreadState_Swap, state)
        MAIN_STATE.value = state.value
    yield partial(run_file, script[0], script[1], 1, None)
    if trial:
        trial()
    code = exit_code(results[-1])
    yield partial(ctypes.pythonapi.Py_Exit, code)


def try_out(trial):
    """Runs a script in a child: this Python may be one that we do not know. Returns the script in the
    child, and nothing in the zygote if that has ended well."""
    scanner = start_scanner() if trial is stop_at_end else None
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    path = sys.modules["__future__"].__file__
    ask_for(ours, path)
    pid = os.fork()
    if pid == 0:
        # Its directory is where the modules come from.
        _, path = become(theirs.detach(), ())
        return short_script(), path
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        find_pages(scanner, pid)
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
    for end in (ours, theirs):
        end.close()
    threads = len(os.listdir("/proc/self/task"))
    if status != 0 or threads > 1 + HAS_OWN_THREAD:
        raise Unfit("scripts would not end well")
    return None


def ask_for(spare, path):
    """Sends a spare a script, as the agent does."""
    null = os.open(os.devnull, os.O_RDWR)
    rights = struct.pack("3i", null, null, null)
    request = NUMBERS.pack(2, 1) + os.fsencode("/\0python3\0%s\0HOME=/nonexistent\0" % path)
    spare.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    os.close(null)


def short_script():
    reader, writer = os.pipe()
    os.write(writer, b"print(1)\n")
    os.close(writer)
    return libc.fdopen(reader, b"rb")


def check_fork():
    """Exits in a child and, if that went well, here."""
    pid = os.fork()
    if pid != 0 and os.waitpid(pid, 0)[1] != 0:
        os._exit(1)


def stop_at_end():
    """Lets the zygote look at all that a script has done, before its process is gone."""
    LastWord.before = partial(os.kill, os.getpid(), signal.SIGSTOP)


def wait_for_spares(control, fork_keeper):
    """Forks a spare per message, below a keeper; returns in the spare, with its socket."""
    api, fork = ctypes.pythonapi, ctypes.cast(libc.fork, ctypes.c_void_p)
    pages, count = NEEDED_PAGES.buffer_info()
    while True:
        data, descriptors = receive(control, 1, 2)
        if not data:
            os._exit(0)
        request, told = descriptors
        api.PyOS_BeforeFork()
        pid = fork_keeper(told, fork, pages, count // 3)
        if pid == 0:
            api.PyOS_AfterFork_Child()
            # Only the keeper holds it, so that the agent learns of its end; and whoever frees this
            # socket must not close what a script has opened under its number.
            os.close(told)
            os.close(control.detach())
            begin_threading()
            register_sequences()
            return request
        api.PyOS_AfterFork_Parent()
        os.close(request)
        os.close(told)
        if pid < 0:
            os._exit(1)


def become(request, shadowed):
    """Waits for a script and becomes the process that runs it."""
    request = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, request)
    if seed_numpy is not None:
        seed_numpy()
    gc.enable()
    data, descriptors = receive(request, REQUEST_BYTES_MAX, 3)
    if not data:
        os._exit(0)
    try:
        script = dress(data, descriptors, shadowed)
        if _signal.sigpending():
            raise Unfit("somebody sent us a signal before there was a script")
    except BaseException:
        request.send(PLAIN)
        os._exit(0)
    request.send(RUNNING)
    undress(request, script[0])
    return libc.fdopen(script[0], b"rb"), script[1]


def set_main():
    """Replaces our `__main__` by one in which nothing has run."""
    main = sys.modules["__main__"] = type(sys)("__main__")
    vars(main).clear()
    vars(main).update(MAIN)
    if "__annotations__" in MAIN:
        vars(main)["__annotations__"] = {}


def numpy_seeder():
    """Seeds numpy's global generator as it would seed itself. Its state is written as a whole, because
    its own function touches a hundred pages."""
    random = sys.modules.get("numpy.random")
    if random is None:
        return None
    try:
        generator = random.mtrand._rand._bit_generator
        if type(generator).__name__ != "MT19937":
            return random.seed
        state = generator.ctypes.state_address
        return lambda: ctypes.memmove(state, os.urandom(MT19937_BYTES), MT19937_BYTES)
    except AttributeError:
        return random.seed


def find_user_site():
    """Finds out what follows `HOME/.local`, or nothing if it is computed in another way."""
    site = sys.modules.get("site")
    if site is not None and hasattr(site, "_get_path") and sys.platform == "linux":
        USER_SITE.append(site._get_path(""))


def renew_finders():
    """What was found when the zygote looked may have changed."""
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None:
            del sys.path_importer_cache[path]
        elif "-packages" in path:
            finder.invalidate_caches()


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
    room = _socket.CMSG_SPACE(4 * descriptors_max)
    data, control, _, _ = connection.recvmsg(bytes_max, room, _socket.MSG_CMSG_CLOEXEC)
    descriptors = []
    for _, _, part in control:
        descriptors += struct.unpack("%di" % (len(part) // 4), part)
    return data, descriptors


def main():
    results = []
    # Each step is called by C, so that nothing of ours is below a script on its stack.
    calls = map(partial.__call__, steps(*prepare(KEEPER), results))
    serve = partial(deque, map(results.append, calls), 0)
    if not HAS_OWN_THREAD:
        serve()
    _thread.stack_size(STACK_BYTES)
    _thread.start_new_thread(serve, ())
    _thread.stack_size(0)
    while True:
        signal.pause()


main()
