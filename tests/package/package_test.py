"""The packages that `cpack` makes of a build, looked into and used, without installing them.

They stay in the build's package_test/packages. The control fields say what the files need; no file names a place of this machine; the
tarball, unpacked in a folder with a blank, finds libtorch where it is documented to lie, says in one line what brings it where it is not,
knows its plugins and builds one.
"""
import json
import pathlib
import re
import shutil

import pytest
from commands import call, check_refused, run, told
from words import program_words

PRIVATE = re.compile(r"lib(boost_|yaml-cpp|spdlog|fmt|tomlplusplus)")
LIBTORCH = re.compile(r"lib(torch|c10|torch_cpu|torch_cuda|c10_cuda)\.so$|libcudart\.so\.")
# What the packages that Depends names bring, by the names that libraries ask for.
SYSTEM = {"libc6": ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"),
          "libgcc-s1": ("libgcc_s.so.1",), "libgomp1": ("libgomp.so.1",), "libstdc++6": ("libstdc++.so.6",)}
# The newest symbol version of each package's release.
RELEASES = {"libstdc++6": ("GLIBCXX_", {"12": "3.4.30"})}


def version(text):
    return tuple(int(part) for part in text.split("."))


def files_below(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class Packages:
    """Made, and the two for Debian unpacked."""

    def __init__(self, build, cpack, kept, folder):
        shutil.rmtree(kept, ignore_errors=True)
        quickly = ["-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"]  # xz takes half a minute, and changes nothing that is looked at
        call([cpack, "--config", build / "CPackConfig.cmake", *quickly, "-B", kept], cwd=build, timeout=600)
        shutil.rmtree(kept / "_CPack_Packages", ignore_errors=True)
        found = {name: list(kept.glob(pattern)) for name, pattern in
                 (("strata", "strata_*.deb"), ("strata-sdk", "strata-sdk_*.deb"), ("tarball", "strata-*.tar.gz"))}
        assert all(len(files) == 1 for files in found.values()), f"cpack makes {found}"
        self.files = {name: files[0] for name, files in found.items()}
        self.trees, self.fields = {}, {}
        for name in ("strata", "strata-sdk"):
            lines = call(["dpkg-deb", "-f", self.files[name]]).splitlines()
            self.fields[name] = dict(line.split(": ", 1) for line in lines if not line.startswith(" ") and ": " in line)
            self.trees[name] = folder / name
            call(["dpkg-deb", "-x", self.files[name], self.trees[name]])


@pytest.fixture(scope="module")
def packages(build, setting_of_build, folder):
    return Packages(build, setting_of_build("CMAKE_CPACK_COMMAND") or "cpack", build / "package_test/packages", folder)


@pytest.fixture(scope="module")
def tarball(packages, folder):
    """The tarball's folder, unpacked where there is a blank in the path."""
    place = folder / "unpacked here"
    place.mkdir()
    call(["tar", "-xzf", packages.files["tarball"], "-C", place])
    top = list(place.iterdir())
    assert [one.name for one in top] == [packages.files["tarball"].name.removesuffix(".tar.gz")]
    return top[0]


@pytest.fixture(scope="module")
def clean_environment(compile_environment):
    return {key: value for key, value in compile_environment.items() if not key.startswith("STRATA_") and key != "LD_LIBRARY_PATH"}


@pytest.fixture(scope="module")
def with_torch(clean_environment, torch, torch_version, folder):
    """An environment in which bootstrap.sh has unpacked libtorch."""
    place = folder / f"cache/strata/torch-{torch_version}"
    place.mkdir(parents=True)
    (place / "torch").symlink_to(torch)
    if (torch.parent / "nvidia").exists():
        (place / "nvidia").symlink_to(torch.parent / "nvidia")
    return {**clean_environment, "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture(scope="module")
def torch_version(repository):
    return (repository / "cmake/torch_version").read_text().strip()


@pytest.mark.parametrize("name", ["strata", "strata-sdk"])
def test_control(packages, name):
    fields = packages.fields[name]
    architecture = call(["dpkg", "--print-architecture"]).strip()
    wanted = {"Package": re.escape(name), "Version": r"\d+\.\d+\.\d+", "Architecture": re.escape(architecture), "Maintainer": ".+",
              "Installed-Size": r"[1-9]\d*", "Description": ".{20,}", "Section": ".+"}
    assert not {key: fields.get(key) for key, rule in wanted.items() if not re.fullmatch(rule, fields.get(key, ""))}
    assert name == "strata" or f"strata (= {packages.fields['strata']['Version']})" in fields["Depends"]


def test_depends_equals_the_needs_of_files(packages):
    """Every library that an ELF file of `tree` asks for is in the tree, is libtorch's, or comes with a package of Depends, which is new enough."""
    tree, depends = packages.trees["strata"], packages.fields["strata"]["Depends"]
    inside = {path.name for path in files_below(tree)} | {path.name for path in tree.rglob("*.so*")}
    versions = {match[1]: match[3] or "0" for match in re.finditer(r"([a-z0-9+.-]+)(?: \((>=|=) ([^)]*)\))?", depends)}
    provided = {library for package in versions for library in SYSTEM.get(package, ())}
    used, newest = set(), {}
    for path in filter(is_elf, files_below(tree)):
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", call(["readelf", "-d", path])):
            used.add(library)
            known = library in inside or library in provided or LIBTORCH.match(library) or "cuda" in path.name or "nccl" in path.name
            assert known, f"{path.name} needs {library}, which Depends does not bring: {depends}"
        for prefix, number in re.findall(r"Name: (GLIBC_|GLIBCXX_)([\d.]+)", call(["readelf", "-V", path])):
            newest[prefix] = max(newest.get(prefix, (0,)), version(number))
    for package in versions:
        assert used & set(SYSTEM[package]), f"Depends names {package}, which no file needs"
    assert newest["GLIBC_"] <= version(versions["libc6"])
    prefix, releases = RELEASES["libstdc++6"]
    assert newest[prefix] <= version(releases[versions["libstdc++6"]]), f"a file needs {prefix}{newest[prefix]}"


def check_places(tree, places):
    """No file holds a folder of this machine: neither as text nor in a program."""
    patterns = {str(place).encode(): re.compile(rb"(?:^|[^}\w./~+-]|-[IL])" + re.escape(str(place).encode()) + rb"(?:/|[^\w.+-]|$)")
                for place in places}
    for path in files_below(tree):
        content = path.read_bytes()
        for place, pattern in patterns.items():
            found = place in content and pattern.search(content)  # the pattern by itself takes seconds
            assert not found, f"{path.relative_to(tree)} holds a place of this machine: {content[found.start():found.start() + 160]!r}"


def test_no_file_holds_a_path_of_this_machine(packages, tarball, repository, build, torch, folder):
    home = pathlib.Path.home()
    places = [repository, build, torch.resolve(), folder, *([home] if len(home.parts) > 1 else [])]
    for tree in (*packages.trees.values(), tarball):
        check_places(tree, places)


def test_contents(packages):
    lists = {name: {path.relative_to(tree) for path in files_below(tree)} for name, tree in packages.trees.items()}
    programs = {package: [f"usr/libexec/strata/strata_{word}" for word in program_words(package)] for package in ("strata", "strata-sdk")}
    for name, wanted in (("strata", [*programs["strata"], "usr/bin/strata", "usr/libexec/strata/strata",
                                     "usr/libexec/strata/bootstrap.sh", "usr/lib/libstrata.so",
                                     "usr/lib/libstrata_interface.so", "usr/share/strata/configs/defaults.yaml", "usr/share/strata/LICENSE"]),
                         ("strata-sdk", ["usr/include/strata/plugin.hpp", "usr/lib/cmake/Strata/StrataConfig.cmake", "usr/lib/libstrata_toolbox.a",
                                         *programs["strata-sdk"], "usr/libexec/strata/strata_conformance", "usr/libexec/strata/strata_new_plugin"])):
        missing = [path for path in wanted if pathlib.Path(path) not in lists[name]]
        assert not missing, f"{name} has no {missing}"
    assert not lists["strata"] & lists["strata-sdk"], "in both packages"
    for name, files in lists.items():
        strange = [str(path) for path in files if path.parts[0] != "usr" or path.name == "torch_dir" or "tests" in path.parts]
        assert not strange, f"{name} holds {strange}"
    loose = [str(path) for path in lists["strata"] if ".so" in path.name and PRIVATE.match(path.name) and path.parent != pathlib.Path("usr/lib/strata")]
    assert not loose, "private copies of libraries lie where the system finds them"
    assert not any(path.suffix == ".hpp" for path in lists["strata"]), "headers are the SDK's"
    assert not any(path.suffix == ".so" for path in lists["strata-sdk"]), "libraries are the runtime's"


def test_the_source_of_libtorch_is_named(tarball, clean_environment, torch, torch_version, tmp_path):
    if pathlib.Path(f"/opt/strata/torch-{torch_version}").exists():
        pytest.skip("/opt/strata has a libtorch: what is said without one is not tested")
    (tmp_path / "home").mkdir()
    nowhere = {**clean_environment, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home/cache")}
    command = tarball / "libexec/strata/bootstrap.sh"
    check_refused(run([tarball / "bin/strata", "plugins", "list"], env=nowhere), f"{command} --for run", status=3)
    plan = run([command, "--for", "run", "--check"], env=nowhere)
    assert plan.returncode == 1 and f"libtorch {torch_version}" in plan.stdout and "g++" not in plan.stdout, told(plan)
    call([command, "--for", "run", "--check"], env={**nowhere, "STRATA_TORCH_DIR": str(torch)})


def test_plugins_of_the_tarball(tarball, with_torch):
    listed = json.loads(call([tarball / "bin/strata", "plugins", "list", "--format", "json"], env=with_torch))
    files = {str(path) for path in (tarball / "lib/strata/plugins").glob("*.so")}
    assert files and {entry["file"] for entry in listed} == files and not any(entry["problem"] for entry in listed)


def test_tarball_builds_a_plugin(tarball, with_torch, repository, tmp_path):
    project, build = tmp_path / "round_robin", tmp_path / "round_robin-build"
    shutil.copytree(repository / "examples/plugins/round_robin", project)
    call(["cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={tarball}", "-DCMAKE_BUILD_TYPE=Release", "-G", "Ninja"], env=with_torch)
    call(["cmake", "--build", build, "--parallel", "1"], env=with_torch, timeout=600)
    call([tarball / "bin/strata", "plugins", "show", next(build.glob("libstrata_*.so")), "--format", "csv"], env=with_torch)
