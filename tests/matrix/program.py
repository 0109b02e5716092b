"""The program's answers about features and their conflicts, about single choices, and about schedules."""
import functools
import json
import re

from engine import set_arguments


class Schedule:
    """The orders of a schedule's stages, or the sentence with which it is refused."""

    def __init__(self, done):
        self.refusal = re.search(r": scheduler/\w+: (.*)", done.stderr)[1] if done.returncode != 0 else None
        self.drawn = json.loads(done.stdout) if done.returncode == 0 else None

    def order_of_tie(self):
        """In which order each stage adds to the gradient of a parameter that the first and the last chunk use. None: it is refused."""
        if self.refusal is not None:
            return None
        last = self.drawn["stages"] * self.drawn["chunks_per_stage"] - 1
        orders = []
        for stage in self.drawn["per_stage"]:
            made = [re.fullmatch(r"[BW](\d+)\.(\d+)", action["action"]) for action in stage["actions"]]  # W: of weights alone
            added = [(int(one[1]), int(one[2])) for one in made if one]
            orders.append([(use, micro_batch) for chunk, micro_batch in added for use, its in (("last", last), ("first", 0)) if chunk == its])
        return [order for order in orders if order]


class Program:
    """`config`: the run of which single choices are asked about."""

    def __init__(self, engine, config):
        self.engine, self.config = engine, config

    @functools.cache
    def conflicts(self):
        return self.engine.call("config", "conflicts", "--format", "json")

    def features(self, settings):
        rows = self.engine.call("config", "conflicts", self.config, "--nproc", 2, "--format", "json", *set_arguments(settings))
        return {row[place] for row in rows for place in ("first", "second") if row[place + "_found"]}

    @functools.cache
    def refusal(self, ranks, settings):
        """What a plan of this run ends with; empty where it works."""
        return self.engine.run("plan", self.config, "--nproc", ranks, *set_arguments(settings)).stderr

    @functools.cache
    def schedule(self, settings, stages, micro_batches, chunks=None):
        """Of the scheduler that the settings choose, with their options."""
        name = settings[0].split("=")[1]
        given = [] if chunks is None else ["--chunks", chunks]
        return Schedule(self.engine.run("schedule", "show", name, "--stages", stages, "--micro-batches", micro_batches, "--format", "json", *given,
                                        *set_arguments(settings[1:])))

    @functools.cache
    def chunks(self, scheduler):
        """The numbers of chunks per stage that it runs, of those in the matrix."""
        plain = (f"scheduler.plugin={scheduler.split('/')[1]}",)
        return {chunks for chunks in (1, 2, 3) if self.schedule(plain, 2, 8, chunks).refusal is None}
