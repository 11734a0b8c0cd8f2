# How a spare becomes the process of its script: whatever a new interpreter gets from its parent, and
# finds out for itself.
def dress(data, descriptors, shadowed):
    """Takes over all that a new process gets from its parent."""
    argc, envc = NUMBERS.unpack_from(data)
    strings = data[8:].split(b"\0")
    cwd, argv, env = strings[0], strings[1 : 1 + argc], strings[1 + argc : 1 + argc + envc]
    os.setsid()
    os.chdir(cwd)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    env = set_environment(env)
    path = argv[1]
    argv = [str(part, ENCODING, ERRORS) for part in argv]
    script, about = open_script(argv[1])
    directory = directory_of(argv[1], about)
    check_shadows(directory, shadowed)
    add_user_site(env)
    add_python_path()
    sys.path.insert(0, directory)
    sys.argv[:] = argv[1:]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = argv
    if "logging" in KEPT:
        KEPT["logging"]._startTime = time.time()
    if sys.version_info >= (3, 9) and not path.startswith(b"/"):
        path = os.getcwdb() + b"/" + path
    return script, path


def directory_of(name, about):
    """What the interpreter puts before all other places to import from."""
    directory, _, _ = name.rpartition("/")
    if directory == os.getcwd() and os.lstat(name).st_ino == about.st_ino:
        return directory
    return os.path.dirname(os.path.realpath(name))


def set_environment(env):
    posix = sys.modules["posix"]
    new = dict(part.split(b"=", 1) for part in env)
    for name in posix.environ:
        if name not in new:
            posix.unsetenv(name)
    for name, value in new.items():
        posix.putenv(name, value)
    for known in (posix.environ, os.environ._data):
        known.clear()
        known.update(new)
    time.tzset()
    return new


def open_script(name):
    script = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    about = os.fstat(script)
    if about.st_mode & FILE_TYPE != REGULAR or not name.endswith(".py"):
        raise Unfit("a directory, an archive or bytecode")
    tail = os.pread(script, ZIP_TAIL_BYTES, max(0, about.st_size - ZIP_TAIL_BYTES))
    if b"PK\5\6" in tail:
        raise Unfit("an archive")
    return script, about


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
    for entry in entries:
        if entry != os.path.abspath(entry) or entry in sys.path or entries.count(entry) > 1:
            raise Unfit("an entry that site would change")
        try:
            check_shadows(entry, LOADED)
        except FileNotFoundError:
            pass
    sys.path[:0] = entries


def add_user_site(env):
    """Adds the directory of `pip install --user`, which exists only below a home directory."""
    site = sys.modules.get("site")
    if site is None or not site.ENABLE_USER_SITE:
        return
    site.USER_BASE = site.USER_SITE = None
    home = env.get(b"HOME", b"")
    if USER_SITE and b"PYTHONUSERBASE" not in env and home[:1] == b"/" and home[-1:] != b"/":
        site.USER_BASE = str(home, ENCODING, ERRORS) + "/.local"
        site.USER_SITE = path = site.USER_BASE + USER_SITE[0]
    else:
        path = site.getusersitepackages()
    try:
        entries = os.listdir(path)
    except OSError:
        return
    if any(entry.endswith(".pth") or entry.startswith("usercustomize") for entry in entries):
        raise Unfit("code that runs when an interpreter starts")
    check_shadows(path, {NUMPY}.intersection(sys.modules))
    others = site.getsitepackages()
    places = [place for place, each in enumerate(sys.path) if each in others]
    sys.path.insert(places[0] if places else len(sys.path), path)


def undress(request, script):
    """Gives up what protected us from scripts: from here on we are one."""
    request.detach()
    os.closerange(3, script)
    os.closerange(script + 1, DESCRIPTORS_MAX)
    libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)
    try:
        adjust = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(adjust, OOM_SCORE_ADJ)
        os.close(adjust)
    except OSError:
        # The kernel may refuse it, and it is no more than a preference.
        pass
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


