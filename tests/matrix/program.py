"""The program's answers about features and their conflicts, and about the chunks that a schedule runs."""
import functools

from engine import set_arguments


class Program:
    """`config`: the run of which single choices are asked about."""

    def __init__(self, engine, config):
        self.engine, self.config = engine, config

    def conflicts(self):
        return self.engine.call("config", "conflicts", "--format", "json")

    def features(self, settings):
        rows = self.engine.call("config", "conflicts", self.config, "--nproc", 2, "--format", "json", *set_arguments(settings))
        return {row[place] for row in rows for place in ("first", "second") if row[place + "_found"]}

    @functools.cache
    def chunks(self, scheduler):
        """The numbers of chunks per stage that it runs, of those in the matrix."""
        return {chunks for chunks in (1, 2, 3) if self._schedule(scheduler, "--chunks", chunks).returncode == 0}

    def _schedule(self, scheduler, *arguments):
        return self.engine.run("schedule", "show", scheduler.split("/")[1], "--stages", 2, "--micro-batches", 8, *arguments)
