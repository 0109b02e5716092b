"""The words of `strata` that are programs of their own, from the one list of them."""
import re

from place import REPOSITORY

LIST = REPOSITORY / "core/tools/launcher/words.hpp"


def program_words(package):
    """Those that a package installs."""
    return tuple(re.findall(rf'^  PROGRAM\((\w+), "{package}"', LIST.read_text(), re.MULTILINE))
