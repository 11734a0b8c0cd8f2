# Which pages of memory a script needs, and how a spare gets them while it waits for one.
#
# After a fork, the first write to a page copies it, and the first look at a mapped file maps it: each
# one is a page fault. A script that does little is nothing but those. The zygote looks at the memory
# of a script that it tries out, and its spares ask the kernel for the same pages, all at once.
POPULATE_READ, POPULATE_WRITE = 22, 23
PRESENT, OF_FILE, OWN = 1 << 63, 1 << 61, 1 << 56

# Larger mappings are somebody's reserve, and each page of one is an entry to look at.
MAPPING_BYTES_MAX = 64 << 20
RANGES_MAX = 1024
RANGE_BYTES = 24
PID_BYTES = 16

# The kernel maps so many pages of a file when one of them is needed (its default of 64 KiB).
PAGES_AROUND = 16


def start_scanner():
    """Forks a process that tells about another one. It has to be there first: it shares what that one
    has not written to, so what we write to is no page that the other has for itself."""
    asked, ask = os.pipe()
    answer, answers = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ask)
        asker = os.read(asked, PID_BYTES)
        if asker:
            os.write(answers, array("l", scan(int(asker))))
        os._exit(0)
    os.close(asked)
    os.close(answers)
    return pid, ask, answer


def find_pages(scanner, pid):
    """Finds the pages that a child of ours has by now, and that a new one has not."""
    scanner, ask, answer = scanner
    os.write(ask, b"%d" % pid)
    NEEDED_PAGES.frombytes(os.read(answer, RANGES_MAX * RANGE_BYTES))
    os.close(ask)
    os.close(answer)
    os.waitpid(scanner, 0)


def scan(pid):
    ranges = []
    try:
        with open("/proc/self/maps") as maps, open("/proc/%d/pagemap" % pid, "rb", 0) as pages:
            for mapping in maps:
                add_pages(ranges, mapping.split(), pages)
    except (OSError, ValueError):
        # A kernel without them, or one that does not show them.
        pass
    return [number for each in ranges[:RANGES_MAX] for number in each]


def add_pages(ranges, mapping, pages):
    first, last = (int(each, 16) for each in mapping[0].split("-"))
    if mapping[1][3] != "p" or mapping[-1].startswith("[v") or last - first > MAPPING_BYTES_MAX:
        return
    size = mmap.PAGESIZE
    pages.seek(first // size * 8)
    begin, known = first, None
    entries = memoryview(pages.read((last - first) // size * 8)).cast("Q")
    for place, entry in enumerate(entries):
        what = kind_of(entry)
        if what != known or what == POPULATE_READ and (first // size + place) % PAGES_AROUND == 0:
            add_range(ranges, begin, first + place * size, known)
            begin, known = first + place * size, what
    add_range(ranges, begin, last, known)


def kind_of(entry):
    if not entry & PRESENT:
        return None
    if entry & OF_FILE:
        return POPULATE_READ
    return POPULATE_WRITE if entry & OWN else None


def add_range(ranges, begin, end, what):
    if what == POPULATE_READ:
        end = begin + mmap.PAGESIZE
    if what is not None and begin < end:
        ranges.append((begin, end - begin, what))


