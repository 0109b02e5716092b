"""Runs programs for tests: with a time limit, and with all they said in the report of a failure."""
import os
import re
import shlex
import subprocess

import loaded_programs

CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")  # but line breaks and tabs


def check_printable(output):
    """What a program printed is UTF-8 without a character that a terminal obeys."""
    output = output.encode() if isinstance(output, str) else output or b""
    found = CONTROL.search(output)
    assert not found, f"prints the control character {found[0]!r}: {output[max(0, found.start() - 200):found.end() + 200]!r}"
    output.decode()


def check_every_output():
    """From now on, whatever a test captures of a program's output must be printable."""
    communicate = subprocess.Popen.communicate

    def checked(process, *arguments, **options):
        outputs = communicate(process, *arguments, **options)
        for output in outputs:
            check_printable(output)
        return outputs

    subprocess.Popen.communicate = checked


def run(command, timeout=120, **options):
    """The ended command: `returncode`, `stdout`, `stderr`. An AssertionError with its output when it takes longer than `timeout` seconds."""
    words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in command]
    outputs = {} if "stdout" in options or "stderr" in options else {"capture_output": True}
    try:
        return loaded_programs.run(words, text=True, timeout=timeout, **outputs, **options)
    except subprocess.TimeoutExpired as late:
        said = b"".join(text for text in (late.stdout, late.stderr) if text).decode(errors="replace")
        raise AssertionError(f"still running after {timeout} s: {shlex.join(words)}\n{said}") from None


def told(done):
    """A command, how it ended and what it said."""
    return f"exit status {done.returncode} of {shlex.join(done.args)}\n{done.stdout or ''}{done.stderr or ''}"


def call(command, **options):
    """Standard output of a command that must succeed."""
    done = run(command, **options)
    assert done.returncode == 0, told(done)
    return done.stdout


def check_refused(done, *words, status=2):
    """Ended with `status` and one line on standard error that holds all words."""
    assert done.returncode == status, told(done)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, told(done)
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"does not say {missing}: {told(done)}"
