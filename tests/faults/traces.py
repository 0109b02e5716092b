"""What a run leaves on the machine: processes, temporary files, shared memory."""
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


def temporaries(folder):
    """Paths below `folder` that a run uses while it writes."""
    return [os.path.join(place, name) for place, folders, files in os.walk(folder) for name in folders + files
            if ".tmp" in name]


def shared_memory():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


class Traces:
    """Looks before a test and after it."""

    def __init__(self, mark, folder):
        self.mark, self.folder, self.before = mark, folder, shared_memory()

    def left(self):
        """What is wrong, in words, as a list. Processes that were killed have a moment to go."""
        deadline = time.monotonic() + 5
        while marked_processes(self.mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        wrong = [f"process {process} is left" for process in marked_processes(self.mark)]
        wrong += [f"{path} is left" for path in temporaries(self.folder)]
        wrong += [f"shared memory {name} is left" for name in shared_memory() - self.before]
        return wrong
