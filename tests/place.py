"""Where the build under test is. STRATA_BUILD names its folder, STRATA another program; else build/release."""
import json
import os
import pathlib
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def build_folder():
    return pathlib.Path(os.environ.get("STRATA_BUILD", REPOSITORY / "build/release")).resolve()


def program():
    return os.path.abspath(os.environ.get("STRATA", build_folder() / "bin/strata"))


def usable_plugins():
    """KIND/NAME of each plugin that was built and can be loaded."""
    environment = {**os.environ, "STRATA_PLUGIN_PATH": str(build_folder() / "lib/strata/plugins")}
    listed = subprocess.run([program(), "plugins", "list", "--format", "json"], env=environment, capture_output=True, text=True, check=True, timeout=60)
    return [entry["plugin"] for entry in json.loads(listed.stdout) if entry["plugin"] and not entry["problem"] and not entry["shadowed_by"]]
