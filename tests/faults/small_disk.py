"""A file system with little space, mounted for as long as it is needed, and how a program comes to where it may mount."""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77


def go_where_mounts_are_allowed():
    """Starts this program again where it may mount and nobody else sees it: as root, or as the root of a user namespace. Ends it with
    SKIPPED where neither may."""
    within = "STRATA_TEST_MOUNTS"
    if within in os.environ:
        return
    refused = "there is no program unshare"
    for namespaces in (["--mount"], ["--user", "--map-root-user", "--mount"]) if shutil.which("unshare") else ():
        with tempfile.TemporaryDirectory() as folder:
            tried = subprocess.run(["unshare", *namespaces, "mount", "-t", "tmpfs", "strata_faults", folder], capture_output=True, text=True)
        if tried.returncode == 0:
            os.execvpe("unshare", ["unshare", *namespaces, sys.executable, *sys.argv], {**os.environ, within: "1"})
        refused = tried.stderr.strip()
    print(f"skipped: nothing can be mounted here, as root or in a user namespace: {refused}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def small_disk(folder, size, size_later):
    """At `folder`, with `size` bytes free. Gives a function after which `size_later` are."""
    os.makedirs(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_later}", "strata_faults", folder], check=True)
    ballast = os.path.join(folder, "ballast")  # a user namespace's root may not mount again with another size
    try:
        with open(ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_later - size)
        yield lambda: os.remove(ballast)
    finally:
        subprocess.run(["umount", folder], check=True)
