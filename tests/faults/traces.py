"""What a run leaves on the machine: processes, temporary files, shared memory."""
import ctypes
import os
import time

MARK = "STRATA_TEST_MARK"  # in the environment of every process of a test, whoever its parent is by now


def marked_processes(mark):
    """Process numbers whose environment carries the mark; those that have ended and wait for their parent are none."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            pass
    return found


def adopt_orphans():
    """From now on a process whose parent ends becomes this program's child, and is found among its descendants whatever it does."""
    PR_SET_CHILD_SUBREAPER = 36
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants():
    """Process numbers; without those that have ended and wait for their parent."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(name))
    found, to_do = [], [os.getpid()]
    while to_do:
        own = children.get(to_do.pop(), [])
        found, to_do = found + own, to_do + own
    return found


def memory_files(process):
    """Files without a name that the process has open or mapped: memory that goes with the last process that holds it."""
    folder, found = f"/proc/{process}", set()
    try:
        with open(f"{folder}/maps") as file:
            found |= {line.split(maxsplit=5)[5].strip() for line in file if " /memfd:" in line}
        for name in os.listdir(f"{folder}/fd"):
            link = os.readlink(f"{folder}/fd/{name}")
            found |= {link} if link.startswith("/memfd:") else set()
    except OSError:
        pass  # it has ended
    return sorted(found)


def temporaries(folder):
    """Paths below `folder` that a run uses while it writes."""
    return [os.path.join(place, name) for place, folders, files in os.walk(folder) for name in folders + files
            if ".tmp" in name]


def shared_memory():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


class Traces:
    """Looks before a test and after it. To be made in a program that adopts orphans."""

    def __init__(self, mark, folder):
        self.mark, self.folder, self.before = mark, folder, shared_memory()

    def processes(self):
        return sorted({*marked_processes(self.mark), *descendants()})

    def left(self, patience=5):
        """What is wrong, in words, as a list. Processes that were killed have a moment to go."""
        deadline = time.monotonic() + patience
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = self.processes()
        wrong = [f"process {process} is left" for process in left]
        wrong += [f"shared memory {name} of process {process} is left" for process in left for name in memory_files(process)]
        wrong += [f"{path} is left" for path in temporaries(self.folder)]
        wrong += [f"shared memory {name} is left" for name in shared_memory() - self.before]
        return wrong
