#!/usr/bin/env python3
"""The parts of tests/gpu.sh, which says what they are. Nothing beyond Python's standard library."""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import elf     # noqa: E402
import engine  # noqa: E402
from report import Machine, MemoryWatch, Results, first_failure, last_words  # noqa: E402

PARTS = ["unit", "parity", "bench", "kernels", "sanitizer"]
# Dense bf16, in TFLOP/s, by the makers' data sheets; the first name that the device's own contains.
PEAKS = {"H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "GH200": 989, "B200": 2250, "A100": 312, "A10G": 70, "A10": 125,
         "L40S": 362, "L4": 121}
PRIVATE = ("libboost_", "libyaml-cpp", "libspdlog", "libfmt", "libtomlplusplus")
# How far losses may lie from the processor's, relatively: of the first step, and of any of twenty.
TOLERANCE = {"fp32": (2e-5, 5e-4), "bf16": (3e-3, 2e-2)}
STEPS = 20


class Checks:
    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, pathlib.Path(work)
        self.tree = pathlib.Path(arguments.tree).resolve()
        self.tests = self.tree / "libexec/strata/tests"
        self.machine, self.results = Machine(), Results()
        self.deadline = time.monotonic() + 60 * arguments.minutes
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2))}
        # bin/strata finds libtorch by STRATA_TORCH_DIR; the tests' programs are linked to it and must be told.
        paths = [str(self.machine.torch / "lib"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        self.environment = {**threads, "LD_LIBRARY_PATH": ":".join(path for path in paths if path), "STRATA_REQUIRE_GPU": "1"}
        self.engine = engine.Engine(self.tree / "bin/strata", [], self.work, threads)
        self.tokens = self.work / "tokens.bin"
        engine.write_tokens(self.tokens, 600000)  # more than any run reads
        self.commands = 0

    # --- running -------------------------------------------------------------------------------------------------------------------

    def left(self, most):
        """Seconds that a command may take: none when the time is over."""
        return min(most, self.deadline - time.monotonic())

    def run(self, name, command, most):
        """Output and status of a command; the output is kept. None when there was no time left."""
        if self.left(most) < 5:
            return None
        try:
            done = subprocess.run([str(word) for word in command], env={**os.environ, **self.environment}, text=True, timeout=self.left(most),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            text = late.stdout or b""
            status, output = -1, (text if isinstance(text, str) else text.decode(errors="replace")) + "\nended: it took too long\n"
        self.keep(name, output)
        return status, output

    def keep(self, name, output):
        if self.arguments.output:
            folder = pathlib.Path(self.arguments.output)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / (name.replace(" ", "_").replace("/", "_") + ".log")).write_text(output)

    def train(self, name, config, settings=(), ranks=1, most=120):
        """The summary of a run, or None with the table's line written."""
        if self.left(most) < 5:
            self.results.add(name[0], name[1], False, f"not run: {self.arguments.minutes} minutes were over")
            return None
        result = self.engine.train(config, ranks, settings, timeout=self.left(most))
        self.keep(" ".join(name), f"{result.command}\n{result.output}")
        if result.status != 0:
            self.results.add(name[0], name[1], False, f"exit status {result.status}: {last_words(result.output)}; again by: {result.command}")
            return None
        return result.summary

    # --- before anything runs ------------------------------------------------------------------------------------------------------

    def programs(self):
        """Every program and library of ours in the tree."""
        files = [self.tree / "bin/strata", self.tree / "libexec/strata/strata", *sorted((self.tree / "lib").glob("libstrata*.so")),
                 *sorted((self.tree / "lib/strata/plugins").glob("*.so"))]
        return files + [file for file in sorted(self.tests.iterdir()) if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]

    def check_tree(self):
        problems, count = [], 0
        for file in self.programs():
            done = subprocess.run(["ldd", str(file)], env={**os.environ, **self.environment}, capture_output=True, text=True)
            count += 1
            for line in done.stdout.splitlines():
                library, _, place = (part.strip() for part in line.partition("=>"))
                # What libtorch_cuda needs may be absent on a machine without a GPU.
                excused = self.arguments.dry_run and file.name.endswith("_nccl.so")
                if "not found" in place and not excused:
                    problems.append(f"{file.name} lacks {library}")
                if library.startswith(PRIVATE) and place and not place.startswith(str(self.tree) + "/"):
                    problems.append(f"{file.name} takes {library} from {place.split(' ')[0]} and not from the tree")
            if done.returncode != 0:
                problems.append(f"ldd {file.name}: {done.stderr.strip()}")
        self.results.add("tree", "libraries resolve", not problems, "; ".join(problems) or f"{count} programs and libraries")

    def check_kernels(self):
        library = self.tree / "lib/strata/plugins/libstrata_device_cuda.so"
        code = elf.gpu_code(library)
        if not code:  # built where there is no CUDA compiler
            self.results.add("tree", "GPU code", None if self.arguments.dry_run else False, "device/cuda was built without a CUDA compiler")
            return
        missing = {"sm_80", "sm_90", "compute_90"} - code
        self.results.add("tree", "GPU code", not missing, f"holds {', '.join(sorted(code))}" + (f"; lacks {', '.join(sorted(missing))}" if missing else ""))

    def check_program(self):
        try:
            known = {plugin["plugin"] for plugin in self.engine.plugins()}
            missing = {"device/cuda", "communicator/nccl", "communicator/gloo"} - known
            problem = f"knows no {', '.join(sorted(missing))}" if missing else None
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        self.results.add("tree", "bin/strata starts with this libtorch", problem is None, problem or f"and knows {len(known)} plugins")

    def check_plan(self, part, what, config, settings, ranks):
        """In a dry run: that the config is accepted, and the command."""
        self.commands += 1
        print("  " + shlex.join([str(self.tree / "bin/strata"), "train", str(config), *(["--nproc", str(ranks)] if ranks > 1 else []),
                                 *engine.set_arguments(settings)]))
        try:
            self.engine.plan(config, ranks, settings)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.results.add(part, what, False, str(error))

    # --- unit ----------------------------------------------------------------------------------------------------------------------

    def unit(self):
        for name, most in (("test_device", 120), ("cuda_kernels_on_host_test", 120), ("cuda_operators_test", 300)):
            command = [self.tests / name]
            if self.arguments.dry_run:
                self.commands += 1
                print("  " + shlex.join(map(str, command)))
                if not command[0].exists():
                    self.results.add("unit", name, False, f"{command[0]} is not there")
                continue
            done = self.run(name, command, most)
            lines = [line for line in (done[1] if done else "").splitlines() if line.startswith(("All tests passed", "test cases:", "assertions:"))]
            good = done is not None and done[0] == 0
            self.results.add("unit", name, good, "; ".join(lines) if good else first_failure(done))
            for line in (done[1] if good else "").splitlines():
                if "not checked" in line:  # a case that this GPU has too little memory for
                    self.results.add("unit", f"{name}: a case", None, line.strip())

    # --- parity --------------------------------------------------------------------------------------------------------------------

    def parity_config(self):
        return self.engine.write_config("parity.json", {
            "device": "cuda", "model": {"plugin": "gpt_neox", "preset": "pythia-14m", "seq_len": 128}, "data": {"path": str(self.tokens)},
            "train": {"steps": STEPS, "micro_batch": 4, "global_batch": 8}, "learning_rate": {"base": 1e-3, "warmup": 5},
            "communicator": {"timeout_s": 60}})

    @staticmethod
    def parity_cases():
        """(name, ranks, settings)."""
        shared = ["communicator.plugin=gloo", "device.cuda.ranks_per_gpu=2"]
        for partitioner in ("ddp", "zero3"):
            yield f"{partitioner}, 1 rank", 1, [f"partitioner.plugin={partitioner}", "communicator.plugin=nccl"]
            yield f"{partitioner}, 2 ranks on one GPU over gloo", 2, [f"partitioner.plugin={partitioner}", *shared]

    def parity(self):
        config = self.parity_config()
        for precision in ("fp32", "bf16"):
            both = [f"precision.plugin={precision}"]
            reference = self.reference(config, both, f"{precision}, on the processor")
            cases = [(name, ranks, [*both, *settings]) for name, ranks, settings in self.parity_cases()]
            if precision == "bf16":
                offload = ["offload.optimizer.plugin=cpu", "partitioner.plugin=zero3", *both]
                cases += [("optimizer offloaded, recomputed, 1 rank", 1, ["activations.checkpoint=all", *offload]),
                          ("optimizer offloaded, 2 ranks over gloo", 2, [*offload, "communicator.plugin=gloo", "device.cuda.ranks_per_gpu=2"]),
                          ("parameters too, 1 rank", 1, ["offload.parameters.plugin=cpu", *offload])]
                disk = ["partitioner.plugin=zero3", f"offload.optimizer={{plugin: nvme, path: {self.work}}}", *both]
                cases += [("optimizer on a disk, 1 rank", 1, disk),
                          ("optimizer and activations on a disk, parameters on the host, recomputed, 1 rank", 1,
                           ["activations.checkpoint=all", "offload.parameters.plugin=cpu", f"offload.activations={{plugin: nvme, path: {self.work}}}", *disk])]
                self.parity_of("bf16", config, [("delayed updates, optimizer offloaded, 1 rank", 1, ["step_policy=delayed", *offload])],
                               self.reference(config, [*both, "step_policy=delayed"], "bf16, delayed updates, on the processor"))
            else:
                cases += [("2 pipeline stages on one GPU over gloo", 2,
                           ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2", "train.accumulation=4",
                            "communicator.plugin=gloo", "device.cuda.ranks_per_gpu=2", *both])]
            self.parity_of(precision, config, cases, reference)

    def parity_of(self, precision, config, cases, reference):
        for name, ranks, settings in cases:
            what = f"{precision}, {name}"
            if self.arguments.dry_run:
                self.check_plan("parity", what, config, settings, ranks)
            elif reference:
                self.compare(what, precision, reference, self.train(("parity", what), config, settings, ranks))

    def reference(self, config, settings, what):
        """The processor's losses."""
        settings = [*settings, "device=cpu", "communicator.plugin=gloo"]
        if self.arguments.dry_run:
            self.check_plan("parity", what, config, settings, 1)
            return None
        summary = self.train(("parity", what), config, settings, most=180)
        return summary["losses"] if summary else None

    def compare(self, what, precision, reference, summary):
        if summary is None:
            return
        losses = summary["losses"]
        apart = [abs(a - b) / abs(b) for a, b in zip(losses, reference)]
        first, most = TOLERANCE[precision]
        good = len(losses) == len(reference) and apart[0] <= first and max(apart) <= most and losses[-1] < losses[0]
        self.results.add("parity", what, good, f"losses {losses[0]:.4f} -> {losses[-1]:.4f}, the processor's {reference[0]:.4f} -> "
                         f"{reference[-1]:.4f}; apart {apart[0]:.1e} at first (at most {first:.0e}), {max(apart):.1e} at most ({most:.0e})")

    # --- bench ---------------------------------------------------------------------------------------------------------------------

    def peak(self):
        if self.arguments.peak:
            return self.arguments.peak
        name = self.machine.gpu[0] if self.machine.gpu else ""
        return next((peak for known, peak in PEAKS.items() if known in name), None)

    def bench(self):
        for preset, micro_batch in (("pythia-160m", 16), ("pythia-1.4b", 8)):
            config = self.engine.write_config(f"{preset}.json", {
                "device": "cuda", "model": {"plugin": "gpt_neox", "preset": preset, "seq_len": 2048}, "data": {"path": str(self.tokens)},
                "train": {"steps": 16, "micro_batch": micro_batch}, "learning_rate": {"base": 1e-4}, "precision": "bf16"})
            if self.arguments.dry_run:
                self.check_plan("bench", preset, config, [], 1)
                continue
            plan = self.engine.call("plan", config, "--format", "json")
            with MemoryWatch() as watch:
                summary = self.train(("bench", preset), config, most=200)
            if summary:
                self.report_bench(f"{preset}, bf16, {micro_batch} x 2048", plan, summary, watch.peak)

    def report_bench(self, what, plan, summary, seen):
        steady = sorted(summary["step_seconds"][4:])
        step = steady[len(steady) // 2]
        flops, peak = plan["model_flops_per_step"] / step / 1e12, self.peak()
        finite = all(loss is not None for loss in summary["losses"])
        self.results.add("bench", what, finite, f"{plan['tokens_per_step'] / step:.0f} tokens/s, {step * 1000:.1f} ms a step, {flops:.0f} TFLOP/s of the model" + (
            f", MFU {100 * flops / peak:.1f} % of {peak:g}" if peak else "; MFU unknown: give --peak with the device's dense bf16 peak"))
        difference = engine.ledger_difference(summary, plan["ranks"])
        held = summary["memory"][0]["peak_bytes"].get("device", {})
        planned = plan["ranks"][0]
        figures = ", ".join(f"{category} {bytes_ / 2**30:.2f}" for category, bytes_ in held.items())
        self.results.add("bench", f"{what}: memory", difference is None, difference or
                         f"GiB as planned: {figures}; all tensors by the plan {planned['total'] / 2**30:.2f}, in use by nvidia-smi {seen / 2**30:.2f}")

    # --- kernels -------------------------------------------------------------------------------------------------------------------

    def kernels(self):
        command = [self.tests / "cuda_bench", "400"]
        if self.arguments.dry_run:
            self.commands += 1
            print("  " + shlex.join(map(str, command)))
            if not command[0].exists():
                self.results.add("kernels", "cuda_bench", False, f"{command[0]} is not there")
            return
        done = self.run("kernels", command, 120)
        if done is None or done[0] != 0:
            self.results.add("kernels", "cuda_bench", False, first_failure(done))
            return
        for line in done[1].splitlines():
            if line.startswith("{"):
                one = json.loads(line)
                self.results.add("kernels", one["what"], True, f"{one['seconds'] * 1e3:.3f} ms, {one['gb_per_s']:.0f} GB/s, {100 * one['of_floor']:.1f} % of a copy's bandwidth")

    # --- sanitizer -----------------------------------------------------------------------------------------------------------------

    def sanitizer(self):
        for tool in ("memcheck", "racecheck"):
            command = [self.machine.sanitizer or "compute-sanitizer", "--tool", tool, "--error-exitcode", "99", self.tests / "cuda_operators_test", "[sanitized]"]
            if self.arguments.dry_run:
                self.commands += 1
                print("  " + shlex.join(map(str, command)))
                continue
            if not self.machine.sanitizer:
                self.results.add("sanitizer", tool, None, "compute-sanitizer is not on this machine")
                continue
            done = self.run(tool, command, 200)
            output = done[1] if done else ""
            if "Device not supported" in output:
                self.results.add("sanitizer", tool, None, "compute-sanitizer does not support this device")
                continue
            summary = [line for line in output.splitlines() if "SUMMARY" in line]
            good = done is not None and done[0] == 0 and bool(summary)
            self.results.add("sanitizer", tool, good, summary[-1].strip("= ") if summary else first_failure(done))

    # -------------------------------------------------------------------------------------------------------------------------------

    def all(self):
        self.machine.show()
        self.check_tree()
        self.check_kernels()
        self.check_program()
        if not self.machine.gpu and not self.arguments.dry_run:
            self.results.add("machine", "GPU", False, "nvidia-smi shows none; --dry-run checks what can be checked without one")
        else:
            for part in self.arguments.only:
                print(f"\n{part}", flush=True)
                try:
                    getattr(self, part)()
                except Exception as error:  # one part's end must not hide the others
                    self.results.add(part, "the part itself", False, f"{type(error).__name__}: {error}")
        if self.arguments.dry_run:
            print(f"\n{self.commands} commands would run. Nothing was run on a GPU.")
        if self.arguments.output:
            self.keep("table", self.results.table() + "\n")
            (pathlib.Path(self.arguments.output) / "results.json").write_text(json.dumps({"gpu": self.machine.gpu, "torch": self.machine.torch_version(), "lines": self.results.lines}, indent=1))
        print("\n" + self.results.table())
        failed = self.results.failed()
        print(f"\n{len(failed)} of {len(self.results.lines)} failed" if failed else f"\nall {len(self.results.lines)} went well")
        return 1 if failed else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--peak", type=float)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    unknown = [part for part in arguments.only if part not in PARTS]
    if unknown:
        parser.error(f"--only: there is no part {', '.join(unknown)}; parts are {', '.join(PARTS)}")
    return arguments


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="strata-gpu-") as work:
        return Checks(arguments, work).all()


if __name__ == "__main__":
    sys.exit(main())
