"""Runs in which one call of libc fails once, or one process is killed in it: see faults/failing_calls.cpp. The calls are counted in a run before, so
that a new one is covered at once."""
import ctypes
import dataclasses
import os
import struct

from place import build_folder

LIBRARY = build_folder() / "lib/libfailing_calls.so"


@dataclasses.dataclass(frozen=True)
class Call:
    role: int    # 0: the process that starts the ranks; R + 1: rank R
    name: str
    number: int  # from 0

    def __str__(self):
        return f"{'launcher' if self.role == 0 else f'rank {self.role - 1}'}, {self.name} #{self.number}"

    @staticmethod
    def listed(line):
        """The call and the path of a line of FAILING_LIST."""
        call, path = line.split(" ", 1)
        role, name, number = call.split(",")
        return Call(int(role), name, int(number)), path


class Counter:
    """The file in which all processes count."""

    def __init__(self, folder):
        library = ctypes.CDLL(str(LIBRARY))
        library.failing_calls_layout.restype = ctypes.c_char_p
        roles, size, *self.names = library.failing_calls_layout().decode().split()
        self.roles, self.size, self.path = int(roles), int(size), os.path.join(folder, "counts")

    def begin(self, call=None, error=None, kills=False):
        """The environment of a run that counts from 0, and fails in `call`, with the errno `error`."""
        with open(self.path, "wb") as file:
            file.write(bytes(self.size))
        environment = {"LD_PRELOAD": str(LIBRARY), "FAILING_COUNTS": self.path}
        if call:
            environment["FAILING_CALL"] = f"{call.role},{call.name},{call.number}"
        if error:
            environment["FAILING_ERROR"] = str(int(error))
        if kills:
            environment["FAILING_KILLS"] = "1"
        return environment

    def counts(self):
        """How often each role made each call: {(role, name): number}; and whether the one call was reached."""
        with open(self.path, "rb") as file:
            numbers = struct.unpack(f"<{self.size // 4}I", file.read())
        found = {(role, name): numbers[role * len(self.names) + index] for role in range(self.roles) for index, name in enumerate(self.names)}
        return {key: count for key, count in found.items() if count}, bool(numbers[-1])


def spread(count, most):
    """At most `most` numbers below `count`, the first and the last among them."""
    return sorted({round(part * (count - 1) / max(most - 1, 1)) for part in range(most)}) if count > most else list(range(count))


def cases(counts, most):
    """Of each call of each role at most `most`."""
    return [Call(role, name, number) for (role, name), count in counts.items() for number in spread(count, most)]
