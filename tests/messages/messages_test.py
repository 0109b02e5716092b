"""Messages about a wrong command line, a machine that is too small, a run that is killed: each names the remedy."""
import json
import os
import re
import resource

from commands import run

ADVICE = "`strata plan` shows"


def test_unknown_command(shell):
    shell.expect(2, ["unknown command 'trian' of strata; did you mean train?"], "trian", shell.config)
    shell.expect(2, ["unknown command 'pakc' of strata data; did you mean pack?"], "data", "pakc")


def test_swapped_export(shell):
    shell.expect(0, [], "train", shell.config, "--set", "checkpoint.path=saved", "--quiet")
    said = shell.expect(2, ["the checkpoint comes first: strata checkpoint export saved weights"], "checkpoint", "export", "weights", "saved")
    said += shell.expect(2, ["holds checkpoints of a run"], "train", shell.config, "--export", "saved")
    assert "remove" not in said, f"advises to remove checkpoints: {said}"
    shell.expect(0, [], "checkpoint", "export", "saved", "weights")


def test_plugin_by_path(shell):
    """A checkpoint names a plugin, not where the run found it; what the config itself names is the user's."""
    plugin = str(shell.plugins / "libstrata_model_gpt_neox.so")
    shell.expect(0, [], "train", shell.config, "--set", "checkpoint.path=named", "--set", f"model.plugin={plugin}", "--quiet")
    with open(shell.folder / "named/step-2/checkpoint.json") as file:
        saved = file.read()
    lines = re.findall(".*plugin.*", saved)
    assert plugin not in saved and '"plugin_path"' not in saved and '"model.plugin": "gpt_neox"' in saved, f"the checkpoint says where a library lies: {lines}"
    shell.expect(0, [], "checkpoint", "export", "named", "exported")
    shell.expect(0, [], "train", shell.config, "--set", "checkpoint.path=named", "--set", "train.steps=3", "--set", f"model.plugin={plugin}",
                "--resume", "--quiet")


def test_memory_without_unit(shell):
    shell.expect(2, ["--memory is '12', which is 12 bytes", "12GB"], "plan", shell.config, "--memory", "12")


def test_out_of_memory(shell):
    shell.expect(3, ["out of memory: ", "were requested at once", ADVICE], "train", shell.config, "--set", "train.micro_batch=1000000000",
                "--set", "train.global_batch=auto")


def test_few_files(shell):
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))}
    shell.expect(3, ["open files", "`ulimit -n` is 12"], "train", shell.config, "--nproc", "2", **few)


def test_many_ranks(shell):
    ranks = str(17 * len(os.sched_getaffinity(0)))
    batch = ["--set", "train.micro_batch=1", "--set", "train.global_batch=auto"]
    for command in (["train", shell.config, *batch], ["launch"], ["bench", "communicator/shm"]):
        shell.expect(2, [f"--nproc is {ranks}", "16 per core", "--oversubscribe"], *command, "--nproc", ranks, *(["true"] if command == ["launch"] else []))
    shell.expect(0, [], "launch", "--nproc", ranks, "--oversubscribe", "true")


def test_killed(shell):
    said = shell.expect(137, ["rank 1 of 2 failed (killed by signal 9", "memory", ADVICE], "launch", "--nproc", "2", "sh", "-c",
                       "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 9")
    assert "limit" in said or "are free on this host" in said, f"says nothing of how much memory there is: {said}"


def test_once(shell):
    """A failure of all ranks is said once."""
    said = shell.expect(2, ["Its last output is above"], "train", shell.config, "--nproc", "2", "--export", "nowhere/deep")
    assert said.count("nowhere/deep") == 1, f"says it {said.count('nowhere/deep')} times: {said}"


def test_local_rank(shell):
    here = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    shell.expect(0, [], "train", shell.config, "--quiet", environment=here)


def test_plan_difference(shell):
    said = shell.expect(0, ["at least ", "of the total are in no category"], "plan", shell.config, "--set", "train.micro_batch=64", "--set", "train.global_batch=auto")
    assert "total" in said


def test_doctor(shell):
    said = run([shell.strata, "doctor"], env=shell.environment).stdout
    limit = "/sys/fs/cgroup/memory.max"
    limited = os.path.exists(limit) and open(limit).read().strip() != "max"
    assert "memory available" in said and (not limited or "container's memory" in said)
    columns = {len(name) for name in re.findall(r"^(  \S(?:.*?\S)?  +)\S", said, re.M)}
    assert len(columns) == 1, "the second column begins at one place:\n" + said
    for name in ("cores", "open files", "locked memory", "io_uring", "launcher's variables", "libtorch", "configs"):
        assert re.search(f"^  {name}  ", said, re.M), said


def test_doctor_json(shell):
    said = json.loads(run([shell.strata, "doctor", "--format", "json"], env=shell.environment | {"RANK": "3"}).stdout)
    assert said["can_train"] and {"name": "device", "text": "cpu"} in [dict(line, text=line["text"].split()[0]) for line in said["plugins that can"]]
    machine = {line["name"]: line["text"] for line in said["machine"]}
    assert "RANK=3" in machine["launcher's variables"].split(), machine


def test_version(shell):
    said = run([shell.strata, "--version"], env=shell.environment).stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+(, commit [0-9a-f]{7,}(-changed)?)?, \w+, libtorch \d+\.\d+\.\d+\S*, plugin ABI \d+\.\d+\n", said), said
