"""A pseudo-terminal for a test, which is skipped where the machine has none, such as a container without /dev/pts."""
import os

import pytest


def open_terminal():
    """Returns the descriptors of both ends: ours, and the one for the program under test."""
    try:
        return os.openpty()
    except OSError as error:
        pytest.skip(f"this machine has no pseudo-terminals: {error}")
