"""Builds projects with a compiler and trains with what was built."""
import json
import os

from commands import call, run, told

# Plugin, and settings under which a run uses it.
EXAMPLES = {"round_robin": ["partitioner.plugin=round_robin"],
            "mantissa10": ["precision.plugin=mantissa10"],
            "breadth_first": ["scheduler.plugin=breadth_first", "parallel.pipeline=2"],
            "inverse_root": ["learning_rate.plugin=inverse_root", "learning_rate.cooldown=2"],
            "npy": ["data.plugin=npy", "data.path={work}/train.npy"]}


class Bench:
    def __init__(self, work, tokens, environment):
        self.work, self.environment = work, environment
        ids = tokens.read_bytes()
        header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(ids) // 2},), }}"
        (work / "train.npy").write_bytes(b"\x93NUMPY\1\0\x76\0" + header.encode().ljust(117) + b"\n" + ids)
        (work / "train.json").write_text(json.dumps({
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 32, "gpt_neox": {"hidden_size": 32, "layers": 3, "heads": 2, "vocabulary": 257}},
            "data": {"path": str(tokens)}, "train": {"steps": 5, "micro_batch": 2, "global_batch": 8, "seed": 3}, "learning_rate": {"base": 1e-2}}))

    def build(self, source, name, prefix, compiler, *settings):
        build = self.work / name
        call(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}",
              f"-DCMAKE_CXX_COMPILER={compiler}", *settings], env=self.environment)
        call(["cmake", "--build", build, "--parallel", "1"], env=self.environment, timeout=7200)
        return build

    def losses(self, strata, plugins, settings):
        """Of a run on 2 ranks that finds `plugins`; they go down."""
        summary = self.work / "summary.json"
        summary.unlink(missing_ok=True)
        command = [strata, "train", self.work / "train.json", "--nproc", "2", "--quiet", "--summary", summary]
        for setting in settings:
            command += ["--set", setting.format(work=self.work)]
        done = run(command, env={**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "2"})
        assert done.returncode == 0, told(done)
        losses = json.loads(summary.read_text())["losses"]
        assert losses and losses[-1] < losses[0]
        return losses


def library_in(build):
    return next(build.glob("libstrata_*.so"))
