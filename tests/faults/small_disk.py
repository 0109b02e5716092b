"""File systems with little space, mounted for as long as they are needed, and how a program comes to where it may mount."""
import contextlib
import ctypes
import os
import subprocess

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000


def go_where_mounts_are_allowed():
    """Moves this process to mounts that nobody else sees: as root, or as the root of a user namespace of its own. Why neither is allowed, or
    nothing."""
    user, group, libc = os.getuid(), os.getgid(), ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            return os.strerror(ctypes.get_errno())
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True)
    return private.stderr.strip() if private.returncode != 0 else None


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


@contextlib.contextmanager
def disk_that_may_freeze(folder, size):
    """At `folder`, of `size` bytes. Gives a function after which it answers nothing, whoever waits for it in the kernel. Throws
    CalledProcessError where there is no loop device or no right to mount one."""
    os.makedirs(folder)
    image = f"{folder}.image"
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        yield lambda: subprocess.run(["fsfreeze", "--freeze", folder], check=True)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", folder], check=False)
        subprocess.run(["umount", "--lazy", folder], check=True)
        os.remove(image)
