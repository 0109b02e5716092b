#!/usr/bin/env python3
"""What `strata plan` says.

plan.py --strata PATH --plugins FOLDER [--work DIR]

1. The table of the ZeRO paper, from dry runs of the real partitioners.
2. A plan of many ranks takes seconds, and the ranks it leaves out need no more than those it shows.
3. With --memory: what fits, and the micro-batch that is the largest, by plans of that one and the next.
4. Wrong input: one line that names what was found.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import Engine, set_arguments, write_tokens  # noqa: E402

RANKS = (1, 4, 16, 64, 256, 1024)
STAGES = ("zero1", "zero2", "zero3")
# Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv:1910.02054, Table 1: GB of model
# state on a device, by degree of data parallelism, for P_os, P_os+g and P_os+g+p. As printed there, digits and all.
TABLE = {
    "7.5e9": (("120", "120", "120"), ("52.5", "41.3", "30"), ("35.6", "21.6", "7.5"), ("31.4", "16.6", "1.88"), ("30.4", "15.4", "0.47"),
              ("30.1", "15.1", "0.12")),
    "128e9": (("2048", "2048", "2048"), ("896", "704", "512"), ("608", "368", "128"), ("536", "284", "32"), ("518", "263", "8"),
              ("513", "257", "2")),
    "1e12": (("16000", "16000", "16000"), ("7000", "5500", "4000"), ("4750", "2875", "1000"), ("4187", "2218", "250"),
             ("4046", "2054", "62.5"), ("4011", "2013", "15.6")),
}
BOUND = 0.01


def exact(parameters, ranks, partitioner):
    """Bytes by the paper's section 5: 2 + 2 + 12 a parameter, each part divided where the stage divides it."""
    parts = {"ddp": (1, 1, 1), "zero1": (1, 1, ranks), "zero2": (1, ranks, ranks), "zero3": (ranks, ranks, ranks)}[partitioner]
    return parameters * sum(bytes_ / part for bytes_, part in zip((2, 2, 12), parts))


def half_digit(printed):
    """Half of the last digit of a number as it is printed: 0.12 stands for 0.115 to 0.125."""
    return 0.5 * 10 ** -len(printed.partition(".")[2])


class Plan:
    def __init__(self, options):
        self.engine = Engine(options.strata, [options.plugins], options.work)
        self.passed = self.failed = 0
        tokens = os.path.join(self.engine.work, "tokens.bin")
        write_tokens(tokens)
        self.config = self.engine.write_config("plan.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "preset": "pythia-14m", "seq_len": 64}, "data": {"path": tokens},
            "train": {"steps": 1, "micro_batch": 2}, "learning_rate": {"base": 1e-3}})

    def note(self, text, problems):
        self.passed, self.failed = self.passed + (not problems), self.failed + bool(problems)
        print(f"{'FAILED' if problems else 'passed'}: {text}")
        for problem in problems:
            print(f"  {problem}")
        sys.stdout.flush()

    def run(self, *arguments):
        """Exit status, standard output, standard error."""
        done = subprocess.run([self.engine.strata, "plan", *arguments], env=self.engine.environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def rows(self, *arguments):
        table = self.engine.call("plan", "--table", "--format", "json", *arguments)
        return table, {(row["params"], row["ranks"], row["partitioner"]): row for row in table["rows"]}

    def check_paper(self):
        problems, worst = [], 0.0
        begin = time.monotonic()
        table, rows = self.rows("--params", ",".join(TABLE), "--ranks", ",".join(map(str, RANKS)), "--partitioners", ",".join(("ddp",) + STAGES))
        seconds = time.monotonic() - begin
        for shape in table["shapes"]:
            if abs(shape["parameters"] / shape["params"] - 1) > BOUND:
                problems.append(f"{shape} is further than 1 % from what was asked")
        for size, lines in TABLE.items():
            parameters = round(float(size))
            for ranks, printed in zip(RANKS, lines):
                for partitioner in ("ddp",) + STAGES:
                    row = rows[parameters, ranks, partitioner]
                    error = row["bytes"] / exact(parameters, ranks, partitioner) - 1
                    worst = max(worst, abs(error))
                    if abs(error) > BOUND:
                        problems.append(f"{partitioner}, {size} on {ranks}: {row['bytes']} bytes, off by {error:+.4f} from 2 + 2 + 12 a parameter")
                    if row["bytes"] != row["parameter_bytes"] + row["gradient_bytes"] + row["optimizer_bytes"]:
                        problems.append(f"{row}: the parts are not the sum")
                for partitioner, text in zip(STAGES, printed):
                    # 1 % of the printed figure; 0.12 was rounded by more than that, so there what would be printed.
                    held = rows[parameters, ranks, partitioner]["bytes"] / 1e9
                    if abs(held - float(text)) > max(BOUND * float(text), half_digit(text) if float(text) < 1 else 0.0):
                        problems.append(f"{partitioner}, {size} on {ranks}: {held:.4f} GB, and the paper prints {text}")
        if len(rows) != len(TABLE) * len(RANKS) * 4:
            problems.append(f"{len(rows)} rows")
        if seconds > 60:
            problems.append(f"it took {seconds:.0f} s")
        self.note(f"Table 1 of the ZeRO paper: {len(rows)} rows in {seconds:.1f} s, at most {100 * worst:.3f} % off", problems)

    def check_bookkeeping(self):
        """Bytes a parameter on 64 ranks. The 16-bit copy of an fp32 gradient is kept whole by ddp only."""
        problems = []
        expected = {"ddp": 2 + 2 + 16, "zero1": 2 + 4 + 12 / 64, "zero2": 2 + 16 / 64, "zero3": 18 / 64}
        _, rows = self.rows("--params", "7.5e9", "--ranks", "64", "--partitioners", ",".join(expected), "--bookkeeping", "fp32_gradients")
        for (_, _, partitioner), row in rows.items():
            each = row["bytes"] / row["parameters"]
            if abs(each / expected[partitioner] - 1) > 0.001:
                problems.append(f"{partitioner} holds {each:.4f} bytes a parameter, not {expected[partitioner]:.4f}")
        self.note("fp32 gradients", problems)

    def check_models(self):
        """A preset, the same by a config.json, the same by a config; a small model that is shaped."""
        problems = []
        file = os.path.join(self.engine.work, "config.json")
        with open(file, "w") as out:
            json.dump({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 128, "num_hidden_layers": 6,
                       "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 50304, "max_position_embeddings": 2048,
                       "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
                       "use_parallel_residual": True, "tie_word_embeddings": False, "initializer_range": 0.02}, out)
        table, _ = self.rows("--model", f"gpt_neox:pythia-14m,gpt_neox:{file}", "--ranks", "2", "--partitioners", "zero3")
        rows = table["rows"] + self.rows(self.config, "--ranks", "2", "--partitioners", "zero3", "--bookkeeping", "zero_paper")[0]["rows"]
        if {row["parameters"] for row in rows} != {14067712} or len({row["bytes"] for row in rows}) != 1 or len(rows) != 3:
            problems.append(f"a model by preset, config.json and config differs: {rows}")
        own = self.rows(self.config, "--ranks", "2")[0]["rows"][0]
        if own["partitioner"] != "ddp" or own["bytes"] != 16 * 14067712:
            problems.append(f"a config's own partitioner and precision, ddp in fp32, are 4 + 4 + 8 bytes a parameter: {own}")
        for size in (14e6, 1e8, 1.3e9, 175e9):
            shape = self.rows("--params", str(size), "--ranks", "1", "--partitioners", "ddp")[0]["shapes"][0]
            if abs(shape["parameters"] / size - 1) > BOUND:
                problems.append(f"{size}: {shape}")
        self.note("models by preset, config.json, config and size", problems)

    def check_many_ranks(self):
        problems = []
        begin = time.monotonic()
        plan = self.engine.call("plan", self.config, "--ranks", "1024", "--format", "json", *set_arguments(["partitioner=zero3", "parallel.pipeline=2"]))
        seconds = time.monotonic() - begin
        if [rank["rank"] for rank in plan["ranks"]] != [0, 511, 512, 1023] or plan["world_size"] != 1024:
            problems.append(f"ranks {[rank['rank'] for rank in plan['ranks']]} of {plan['world_size']} are planned")
        if seconds > 20:
            problems.append(f"it took {seconds:.0f} s")
        text = self.run(self.config, "--ranks", "1024")[1]
        if "2 of 1024 ranks are shown" not in text:
            problems.append(f"nothing says which ranks are shown: {text}")
        # 13 ranks divide nothing evenly.
        for settings in (["partitioner=zero1"], ["partitioner=zero3"]):
            ranks = self.engine.plan(self.config, 13, settings)
            if len(ranks) != 13 or max(rank["needed"] for rank in ranks) != ranks[0]["needed"]:
                problems.append(f"{settings}: a rank needs more than the first: {[rank['needed'] for rank in ranks]}")
        self.note(f"1024 ranks in {seconds:.1f} s", problems)

    def check_gathers(self):
        problems = []
        for settings, head, block in ((["partitioner=ddp"], 0, 0), (["partitioner=zero2"], 1, 1), (["partitioner=zero3"], 1, 2),
                                      (["partitioner=zero3", "partitioner.max_reuse_distance=0"], 2, 2)):
            plan = self.engine.plan(self.config, 2, settings)[0]
            times = [layer["times"] for layer in plan["gathers"]]
            calls = plan["sent"].get("all_gather", {"calls": 0})["calls"]
            if times[-1] != head or times[1] != block or sum(times) != calls:
                problems.append(f"{settings}: {times}, and {calls} calls")
        self.note("gathers of each layer", problems)

    def check_memory(self):
        problems = []
        settings = set_arguments(["partitioner=zero3", "precision=bf16"])
        for ranks, budget in ((1, 900_000_000), (2, 2_000_000_000)):
            status, out, _ = self.run(self.config, "--ranks", str(ranks), "--memory", str(budget), "--format", "json", *settings)
            memory = json.loads(out)["memory"]
            largest = memory["largest_micro_batch"]
            needed = [max(rank["needed"] for rank in self.engine.plan(self.config, ranks, ["partitioner=zero3", "precision=bf16",
                                                                                            f"train.micro_batch={size}"]))
                      for size in (largest, largest + 1)]
            if status != 0 or not memory["fits"] or not needed[0] <= budget < needed[1]:
                problems.append(f"{ranks} ranks, {budget} bytes: {memory}, status {status}; {largest} samples need {needed[0]}, one more {needed[1]}")
        status, out, _ = self.run(self.config, "--memory", "100MB", *settings)
        if status != 1 or "does not fit into" not in out or "fits: none" not in out:
            problems.append(f"100MB: status {status}: {out}")
        status, out, _ = self.run(self.config, "--memory", "900MB", *settings, "--set", "train.micro_batch=4096")
        if status != 1 or "does not fit into" not in out or "largest micro-batch that fits: " not in out or "fits: none" in out:
            problems.append(f"a micro-batch of 4096 in 900MB: status {status}: {out}")
        self.note("memory", problems)

    def check_formats(self):
        problems = []
        for format_, arguments in (("table", []), ("markdown", []), ("csv", [])):
            for what in ([self.config, "--ranks", "2"], ["--table", "--params", "1e9", "--ranks", "1,8", "--partitioners", "ddp,zero3"]):
                status, out, err = self.run(*what, "--format", format_, *arguments)
                if status != 0 or err or (format_ == "csv" and len({line.count(",") for line in out.splitlines()}) != 1):
                    problems.append(f"{what} as {format_}: status {status}: {out}{err}")
        self.note("formats", problems)

    def check_refused(self):
        table = ["--table", "--params", "1e9", "--partitioners", "ddp"]
        for arguments, words in (
                ([], "no config given"),
                ([self.config, "--ranks", "0"], "--ranks"),
                ([self.config, "--ranks", "2,4"], "--ranks"),
                ([self.config, "--ranks", "many"], "many"),
                ([self.config, "--ranks", "1048577"], "1048577"),
                ([self.config, "--ranks", "3", "--set", "parallel.pipeline=2"], "pipeline 2"),
                ([self.config, "--memory", "plenty"], "plenty"),
                ([self.config, "--memory", "0"], "--memory"),
                ([self.config, "--params", "1e9"], "--table"),
                (["--model", "gpt_neox:pythia-14m,gpt_neox:pythia-70m", self.config], "--model"),
                (["--table"], "no model given"),
                ([*table, "--memory", "32GB"], "--memory"),
                (["--table", "--params", "7.5B"], "7.5B"),
                (["--table", "--params", "1000"], "1 %"),
                (["--table", "--params", "-5"], "-5"),
                (["--table", "--params", "1e30"], "1e30"),
                (["--table", "--params", "1e9", "--partitioners", "zero4"], "zero4"),
                (["--table", "--params", "1e9", "--partitioners", ""], "--partitioners"),
                (["--table", "--params", "1e9", "--set", "model.layers=3"], "model.layers"),
                (["--table", "--params", "1e9", "--bookkeeping", "zero_papers"], "zero_paper"),
                (["--table", "--model", "gpt_neox:pythia-15m"], "pythia-14m"),
                (["--table", "--model", "gpt_neox:/nowhere/config.json"], "/nowhere/config.json"),
                (["--table", "--model", "gpt_neox:/"], "/"),
                (["--table", "--model", "bert:large"], "bert"),
                (["--table", "--params", "1e9", "--ranks", "0"], "--ranks"),
                (["--table", "--params", "1e9", "--ranks", "8", "--partitioners", "hybrid", "--set", "partitioner.hybrid.shard_size=3"], "3"),
        ):
            status, out, err = self.run(*arguments)
            lines = [line for line in err.splitlines() if line]
            good = status not in (0, 1) and len(lines) == 1 and words in err and not out
            self.note(f"refused: {' '.join(arguments).replace(self.engine.work, '.')}: {err.strip()}", [] if good else [f"status {status}: {out}{err}"])

    def check_full_disk(self):
        for arguments in (["plan", self.config], ["--help"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([self.engine.strata, *arguments], env=self.engine.environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
            good = done.returncode == 3 and done.stderr.count("\n") == 1 and "standard output" in done.stderr
            self.note(f"standard output on a full disk, {arguments[0]}: {done.stderr.strip()}", [] if good else [f"status {done.returncode}: {done.stderr}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--plugins", required=True, help="the folder of the plugins")
    parser.add_argument("--work", help="where runs write; a temporary folder when not given")
    options = parser.parse_args()
    options.work = options.work or tempfile.mkdtemp(prefix="strata_plan_")
    plan = Plan(options)
    for check in (plan.check_paper, plan.check_bookkeeping, plan.check_models, plan.check_many_ranks, plan.check_gathers, plan.check_memory,
                  plan.check_formats, plan.check_refused, plan.check_full_disk):
        check()
    print(f"{plan.passed} passed, {plan.failed} failed")
    return 1 if plan.failed else 0


if __name__ == "__main__":
    sys.exit(main())
