"""Commands that a benchmark carries out."""
import os, pathlib, subprocess, sys


def failed(command, done):
    script = pathlib.Path(sys.argv[0]).name
    sys.exit(f"{script}: exit status {done.returncode} of {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def carried_out(command, **environment):
    """The ended process, with one thread a rank and these variables."""
    return subprocess.run([str(word) for word in command], env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True)


def call(command, **environment):
    """What it prints; the script ends where it fails."""
    done = carried_out(command, **environment)
    if done.returncode != 0:
        failed(command, done)
    return done.stdout
