"""That the tests here see what a run leaves."""
import subprocess
import sys

from traces import Traces


def test_sees_what_is_left(machine):
    """An orphan that shows no mark, has shared memory without a name, and ends when its input does."""
    program = "import os, sys; os.fork() and os._exit(0); held = os.memfd_create('strata'); print(flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", program], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    parent.stdout.readline()
    parent.wait()
    left = Traces(machine.mark, machine.work).left(patience=0)
    parent.stdin.close()
    parent.stdout.close()
    assert len(left) == 2 and "process" in left[0] and "shared memory /memfd:strata" in left[1], left
