"""Commands of `strata` in forks of programs that are loaded once (tests/loaded/loaded_program.cpp), as loading libtorch takes longer than most
commands do: the same code, and the same processes beside each other. `run` is subprocess.run; what it cannot fork it starts:
- another program than `strata` and counted_train, of the build folder and of the tree that is installed there; `strata bench`, which measures time
- where the loader or libtorch would find other variables than in the test's own environment, or options such as preexec_fn are given
A test that is about the start of a process itself calls subprocess. STRATA_LOADED=0 starts every command."""
import array
import atexit
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading

import commands
from place import build_folder
from words import program_words

BESIDE = program_words("strata")
READ_WHEN_LOADED = ("LD_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLIBC_", "ASAN_", "STRATA_TORCH_DIR", "XDG_CACHE_HOME", "HOME")
MOST_BYTES = 100 << 10  # of arguments and variables
programs = None  # LoadedPrograms, where commands are forked


class Program:
    """One that waits for commands."""

    def __init__(self, words, library, environment, folder):
        self.process = subprocess.Popen(words, env={**environment, "LD_PRELOAD": library, "STRATA_LOADED": folder}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.libraries = self.process.stdout.readline().rstrip("\n")  # LD_LIBRARY_PATH, and that it listens
        self.path = os.readlink(f"/proc/{self.process.pid}/exe")
        self.address = os.path.join(folder, os.path.basename(self.path))
        assert os.path.exists(self.address), f"{words} does not wait for commands: exit status {self.process.wait(20)}"

    def start(self, words, environment, folder, descriptors):
        """The connection that is the process."""
        found = {"LD_LIBRARY_PATH": self.libraries} if self.libraries else {}
        variables = [f"{name}={value}" for name, value in {**environment, **found}.items()]
        header = struct.pack("=3i32i", len(words), len(variables), len(descriptors), *range(len(descriptors)), *[0] * (32 - len(descriptors)))
        texts = b"".join(os.fsencode(text) + b"\0" for text in [*words, *variables, folder])
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        connection.sendmsg([header + texts], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
        return connection

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


class LoadedPrograms:
    def __init__(self, build):
        self.library, self.lock = str(build / "lib/libloaded_program.so"), threading.Lock()
        self.strata = [str(build / "bin/strata"), str(build / "installed/moved here/bin/strata")]
        self.names = [*self.strata, str(build / "bin/counted_train")]
        self.folders, self.started = {}, {}
        self.here = self.of_loading(os.environ)
        atexit.register(self.close)

    def of_loading(self, environment):
        return {name: value for name, value in environment.items() if name.startswith(READ_WHEN_LOADED)}

    def takes(self, words, environment, options):
        return (words[0] in self.names and words[1:2] != ["bench"] and not options and self.of_loading(environment) == self.here and
                sum(map(len, words)) + sum(len(name) + len(value) for name, value in environment.items()) < MOST_BYTES)

    def program(self, beginning, environment):
        """Of the first words of a command, for an environment's number of threads."""
        threads = {name: value for name, value in environment.items() if name.startswith("OMP_")}
        place = (beginning[0], *sorted(threads.items()))
        if place not in self.folders:
            self.folders[place] = tempfile.mkdtemp(prefix="strata_loaded", dir="/tmp")  # a socket's path is short
        if (place, *beginning) not in self.started:
            others = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
            self.started[place, *beginning] = Program(beginning, self.library, {**others, **threads}, self.folders[place])
        return self.started[place, *beginning]

    def start(self, words, environment, folder, descriptors):
        with self.lock:
            if words[0] not in self.strata or words[1:2] == [] or words[1] not in BESIDE:
                program = self.program(words[:1], environment)
            else:
                program = self.program(words[:2], environment)
                if words[1] in ("compare", "verify"):  # which start runs
                    self.program(words[:1], environment)
                words = [program.path, *words[2:]]  # as bin/strata starts it
        return program.start(words, environment, folder, descriptors)

    def close(self):
        for program in self.started.values():
            program.close()
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def begin():
    """From now on."""
    global programs
    if build_folder().exists() and "STRATA" not in os.environ and os.environ.get("STRATA_LOADED") != "0":
        programs = LoadedPrograms(build_folder())
        assert os.path.exists(programs.library), f"{programs.library} does not exist: build the target loaded_program, or set STRATA_LOADED=0"


def run(words, *, env=None, cwd=None, stdin=None, stdout=None, stderr=None, capture_output=False, text=False, timeout=None, **others):
    """subprocess.run."""
    words = [os.fspath(word) for word in words]
    environment = os.environ if env is None else env
    if not programs or not programs.takes(words, environment, others):
        return subprocess.run(words, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, capture_output=capture_output, text=text, timeout=timeout, **others)
    if capture_output:
        stdout = stderr = subprocess.PIPE
    files = []  # to close

    def opened(stream, number):
        if stream is None:
            return number
        if stream == subprocess.STDOUT:
            return descriptors[1]
        if stream not in (subprocess.PIPE, subprocess.DEVNULL):
            return stream if isinstance(stream, int) else stream.fileno()
        files.append(os.memfd_create("output") if stream == subprocess.PIPE else os.open(os.devnull, os.O_RDWR))
        return files[-1]

    def written(stream, file):
        if stream != subprocess.PIPE:
            return None
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(file), "r" if text else "rb") as reader:
            return reader.read()

    descriptors = []
    for number, stream in enumerate((stdin, stdout, stderr)):
        descriptors.append(opened(stream, number))
    try:
        with programs.start(words, environment, os.path.abspath(cwd or "."), descriptors) as connection:
            connection.settimeout(timeout)
            try:
                answer = connection.recv(4)
            except TimeoutError:
                text = False
                raise subprocess.TimeoutExpired(words, timeout, written(stdout, descriptors[1]), written(stderr, descriptors[2])) from None
        assert answer, f"the program that is loaded did not carry out {words}"
        status = os.waitstatus_to_exitcode(struct.unpack("i", answer)[0])
        done = subprocess.CompletedProcess(words, status, written(stdout, descriptors[1]), written(stderr, descriptors[2]))
    finally:
        for file in files:
            os.close(file)
    for output in (done.stdout, done.stderr):
        commands.check_printable(output)
    return done
