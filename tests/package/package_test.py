#!/usr/bin/env python3
"""The packages that `cpack` makes of a build, looked into and used, without installing them.

package.py --build BUILD --source SOURCE --torch DIR --cpack COMMAND --work WORK

Leaves strata_*.deb, strata-sdk_*.deb and the tarball in WORK/packages. The control fields say what the files need; no file names a place
of this machine; the tarball, unpacked in a folder with a blank, finds libtorch where it is documented to lie, says in one line what brings
it where it is not, knows its plugins and builds one.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

PRIVATE = re.compile(r"lib(boost_|yaml-cpp|spdlog|fmt|tomlplusplus)")
LIBTORCH = re.compile(r"lib(torch|c10|torch_cpu|torch_cuda|c10_cuda)\.so$|libcudart\.so\.")
# What the packages that Depends names bring, by the names that libraries ask for.
SYSTEM = {"libc6": ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"),
          "libgcc-s1": ("libgcc_s.so.1",), "libgomp1": ("libgomp.so.1",), "libstdc++6": ("libstdc++.so.6",)}
# The newest symbol version of each package's release.
RELEASES = {"libstdc++6": ("GLIBCXX_", {"12": "3.4.30"})}


def fail(text):
    sys.exit(f"FAILED: {text}")


def call(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        fail(f"exit status {done.returncode} of {shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def version(text):
    return tuple(int(part) for part in text.split("."))


def files_below(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def make_packages(arguments, folder):
    call([arguments.cpack, "--config", arguments.build / "CPackConfig.cmake", "-B", folder], cwd=arguments.build)
    shutil.rmtree(folder / "_CPack_Packages", ignore_errors=True)
    found = {name: list(folder.glob(pattern)) for name, pattern in
             (("strata", "strata_*.deb"), ("strata-sdk", "strata-sdk_*.deb"), ("tarball", "strata-*.tar.gz"))}
    if any(len(files) != 1 for files in found.values()):
        fail(f"cpack makes {found}")
    return {name: files[0] for name, files in found.items()}


def check_control(name, package):
    fields = {}
    for line in call(["dpkg-deb", "-f", package]).splitlines():
        if not line.startswith(" "):
            key, _, value = line.partition(": ")
            fields[key] = value
    architecture = call(["dpkg", "--print-architecture"]).strip()
    wanted = {"Package": re.escape(name), "Version": r"\d+\.\d+\.\d+", "Architecture": re.escape(architecture), "Maintainer": ".+",
              "Installed-Size": r"[1-9]\d*", "Description": ".{20,}", "Section": ".+"}
    wrong = {key: fields.get(key) for key, rule in wanted.items() if not re.fullmatch(rule, fields.get(key, ""))}
    if wrong:
        fail(f"{package.name}: control fields {wrong}")
    return fields


def check_needs(tree, depends):
    """Every library that an ELF file of `tree` asks for is in the tree, is libtorch's, or comes with a package of Depends, which is new enough."""
    inside = {path.name for path in files_below(tree)} | {path.name for path in tree.rglob("*.so*")}
    packages = {match[1]: match[3] or "0" for match in re.finditer(r"([a-z0-9+.-]+)(?: \((>=|=) ([^)]*)\))?", depends)}
    provided = {library for package in packages for library in SYSTEM.get(package, ())}
    used, newest = set(), {}
    for path in filter(is_elf, files_below(tree)):
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", call(["readelf", "-d", path])):
            used.add(library)
            if library not in inside and library not in provided and not LIBTORCH.match(library) and "cuda" not in path.name and "nccl" not in path.name:
                fail(f"{path.name} needs {library}, which Depends does not bring: {depends}")
        for prefix, number in re.findall(r"Name: (GLIBC_|GLIBCXX_)([\d.]+)", call(["readelf", "-V", path])):
            newest[prefix] = max(newest.get(prefix, (0,)), version(number))
    for package in packages:
        if not used & set(SYSTEM[package]):
            fail(f"Depends names {package}, which no file needs")
    if newest["GLIBC_"] > version(packages["libc6"]):
        fail(f"a file needs glibc {newest['GLIBC_']}, and Depends asks for {packages['libc6']}")
    prefix, releases = RELEASES["libstdc++6"]
    if newest[prefix] > version(releases[packages["libstdc++6"]]):
        fail(f"a file needs {prefix}{newest[prefix]}, which libstdc++6 {packages['libstdc++6']} has not")


def check_places(tree, places):
    """No file holds a folder of this machine: neither as text nor in a program."""
    patterns = [re.compile(rb"(?:^|[^}\w./~+-]|-[IL])" + re.escape(str(place).encode()) + rb"(?:/|[^\w.+-]|$)") for place in places]
    for path in files_below(tree):
        content = path.read_bytes()
        for pattern in patterns:
            found = pattern.search(content)
            if found:
                fail(f"{path.relative_to(tree)} holds a place of this machine: {content[found.start():found.start() + 160]!r}")


def check_contents(trees):
    lists = {name: {path.relative_to(tree) for path in files_below(tree)} for name, tree in trees.items()}
    for name, wanted in (("strata", ["usr/bin/strata", "usr/libexec/strata/strata", "usr/libexec/strata/bootstrap.sh", "usr/lib/libstrata.so",
                                     "usr/lib/libstrata_interface.so", "usr/share/strata/configs/defaults.yaml", "usr/share/strata/LICENSE"]),
                         ("strata-sdk", ["usr/include/strata/plugin.hpp", "usr/lib/cmake/Strata/StrataConfig.cmake", "usr/lib/libstrata_toolbox.a"])):
        missing = [path for path in wanted if pathlib.Path(path) not in lists[name]]
        if missing:
            fail(f"{name} has no {missing}")
    if lists["strata"] & lists["strata-sdk"]:
        fail(f"in both packages: {lists['strata'] & lists['strata-sdk']}")
    for name, files in lists.items():
        strange = [str(path) for path in files if path.parts[0] != "usr" or path.name == "torch_dir" or "tests" in path.parts]
        if strange:
            fail(f"{name} holds {strange}")
    loose = [str(path) for path in lists["strata"] if ".so" in path.name and PRIVATE.match(path.name) and path.parent != pathlib.Path("usr/lib/strata")]
    if loose:
        fail(f"private copies of libraries lie where the system finds them: {loose}")
    if any(path.suffix == ".hpp" for path in lists["strata"]) or any(path.suffix == ".so" for path in lists["strata-sdk"]):
        fail("headers are the SDK's, libraries the runtime's")


class Tarball:
    def __init__(self, file, arguments, work):
        self.work, self.source, self.torch = work, arguments.source, arguments.torch
        folder = work / "unpacked here"
        folder.mkdir()
        call(["tar", "-xzf", file, "-C", folder])
        top = list(folder.iterdir())
        if len(top) != 1 or top[0].name != file.name.removesuffix(".tar.gz"):
            fail(f"the tarball holds {top}")
        self.prefix = top[0]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("STRATA_") and key != "LD_LIBRARY_PATH"}
        (work / "home").mkdir()
        self.nowhere = {**clean, "HOME": str(work / "home"), "XDG_CACHE_HOME": str(work / "home/cache")}
        # bootstrap.sh unpacks into such a folder.
        place = work / "cache/strata/torch-2.11.0"
        place.mkdir(parents=True)
        (place / "torch").symlink_to(self.torch)
        if (self.torch.parent / "nvidia").exists():
            (place / "nvidia").symlink_to(self.torch.parent / "nvidia")
        self.environment = {**clean, "XDG_CACHE_HOME": str(work / "cache")}

    def run(self, *arguments):
        return call([self.prefix / "bin/strata", *arguments], env=self.environment)

    def says_what_brings_libtorch(self):
        if pathlib.Path("/opt/strata/torch-2.11.0").exists():
            print("/opt/strata has a libtorch: what is said without one is not tested")
            return
        done = subprocess.run([self.prefix / "bin/strata", "plugins", "list"], env=self.nowhere, capture_output=True, text=True)
        command = self.prefix / "libexec/strata/bootstrap.sh"
        if done.returncode != 3 or done.stderr.count("\n") != 1 or f"{command} --for run" not in done.stderr:
            fail(f"without libtorch: exit status {done.returncode}, {done.stderr}")
        plan = subprocess.run([command, "--for", "run", "--check"], env=self.nowhere, capture_output=True, text=True)
        if plan.returncode != 1 or "libtorch 2.11.0" not in plan.stdout or "g++" in plan.stdout:
            fail(f"{command} --for run --check: exit status {plan.returncode}, {plan.stdout}{plan.stderr}")
        have = call([command, "--for", "run", "--check"], env={**self.nowhere, "STRATA_TORCH_DIR": str(self.torch)})
        print(f"without libtorch: {done.stderr.strip()}\nwith it: {have.strip()}")

    def lists_its_plugins(self):
        listed = json.loads(self.run("plugins", "list", "--format", "json"))
        files = {str(path) for path in (self.prefix / "lib/strata/plugins").glob("*.so")}
        if not files or {entry["file"] for entry in listed} != files or any(entry["problem"] for entry in listed):
            fail(f"{len(files)} plugins are in the tarball, `strata plugins list` says {json.dumps(listed, indent=1)}")
        print(f"the tarball, unpacked: {len(files)} plugins")

    def builds_a_plugin(self):
        project, build = self.work / "round_robin", self.work / "round_robin-build"
        shutil.copytree(self.source / "examples/plugins/round_robin", project)
        call(["cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release", "-G", "Ninja"], env=self.environment)
        call(["cmake", "--build", build, "--parallel", "1"], env=self.environment)
        library = next(build.glob("libstrata_*.so"))
        print("the tarball's SDK builds a plugin:", self.run("plugins", "show", library, "--format", "csv").splitlines()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("build", "source", "torch", "cpack", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    packages = make_packages(arguments, work / "packages")
    trees = {}
    for name in ("strata", "strata-sdk"):
        fields = check_control(name, packages[name])
        trees[name] = work / name
        call(["dpkg-deb", "-x", packages[name], trees[name]])
        if name == "strata":
            check_needs(trees[name], fields["Depends"])
            ours = fields["Version"]
        elif f"strata (= {ours})" not in fields["Depends"]:
            fail(f"strata-sdk depends on {fields['Depends']}")
    check_contents(trees)
    home = pathlib.Path.home()
    places = [arguments.source.resolve(), arguments.build.resolve(), arguments.torch.resolve(), work, *([home] if len(home.parts) > 1 else [])]
    for tree in trees.values():
        check_places(tree, places)
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in packages.values())
    print(f"{sizes}: fields and contents are as they should be")
    tarball = Tarball(packages["tarball"], arguments, work)
    check_places(tarball.prefix, places)
    tarball.says_what_brings_libtorch()
    tarball.lists_its_plugins()
    tarball.builds_a_plugin()


if __name__ == "__main__":
    main()
