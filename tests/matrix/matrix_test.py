"""The matrix: combinations of all plugins that are installed and of the example projects', each against one process with the simplest choices.

Plugins and their options are taken from `strata plugins show --all`, so a plugin added is a plugin tested. By default, a
sample in which every pair of plugins that can work occurs and every value of an option that is a choice (--pairs: every pair of these
too; --most: the first of them, which hold the most pairs); every pair that cannot work is refused, and every
rule refuses once. With --whole: partitioner x precision x scheduler x offload x
accumulation x stages x ranks, whole; plugins' options, optimizers, checkpointing, tuning, tied embeddings, chunks and step policies take turns. With
--pipelines the same of partitioner x precision x scheduler x stages x chunks x ranks, on a model of 12 layers and with 8 micro-batches.
With any of these: every partitioner on 2 and 3 ranks in fp32 with sgd. What a run must equal: matrix.py. Each run is a `strata train`; with
--threads, its ranks are threads of a program that makes many runs, which takes a tenth of the time and leaves out the communicators.

  pytest tests/matrix/matrix_test.py --combination 'partitioner=zero3 ranks=2'       # one, with what it is compared with
  pytest tests/matrix/matrix_test.py --collect-only -q                               # which there are
  pytest tests/matrix/matrix_test.py --full -k verified                              # the same combinations by `strata verify`
"""
import os
import tempfile

import pytest
from engine import Engine, built_plugins
from matrix import STEPS, Matrix
from place import build_folder
from samples import Product, Sample, every_partitioner

ROUND = 100  # combinations that are run before the first of them is checked


class Chosen:
    """The matrix, and the combinations to train and to be refused."""

    def __init__(self, config):
        option = config.getoption
        installed = build_folder() / "installed"
        given = [folder for folder in os.environ.get("STRATA_PLUGIN_PATH", "").split(":") if folder]
        self.work = tempfile.TemporaryDirectory(prefix="strata_matrix_")
        engine = Engine(installed / "moved here/bin/strata", built_plugins(str(installed)) + given, self.work.name)
        steps = option("--steps") or STEPS
        trainer = build_folder() / "bin/matrix_trainer" if option("--threads") else None
        self.matrix = Matrix(engine, steps, option("--processes"), trainer, option("--pipelines"))
        space, seed = self.matrix.space, option("--seed")
        if option("--combination"):
            chosen = [space.parse(option("--combination"))]
        elif option("--whole") or option("--pipelines"):
            axes = Product.PIPELINES if option("--pipelines") else Product.FAMILIES
            product = [(one, space.refusal(one)) for one in dict.fromkeys(Product(space, seed, self.matrix.plain, axes).chosen)]
            refused = {(sentence, one["scheduler"], one["partitioner"]): one for one, sentence in product if sentence is not None}
            chosen = [one for one, sentence in product if sentence is None] + [*refused.values(), *Sample(space, seed, False).refused]
        else:
            sample = Sample(space, seed, option("--pairs"), option("--most"))
            chosen = sample.legal + sample.refused
        legal = sorted((one for one in chosen if space.refusal(one) is None), key=lambda one: (self.matrix.reference(one).id, self.matrix.plain(one).id))
        self.refused = [one for one in chosen if space.refusal(one) is not None]
        self.legal = legal if option("--combination") else list(dict.fromkeys(every_partitioner(space) + legal))
        self.precisions = [] if option("--combination") else [space.simplest().replaced(precision=choice) for choice in space.axes["precision"][1:]]
        self.planned = set()

    def train(self, combination):
        """Trains the round that this one is in, if it was not: two runs at a time, and what combinations are compared with once."""
        if combination in self.planned:
            return
        first = self.legal.index(combination) // ROUND * ROUND
        round_of = self.legal[first:first + ROUND]
        self.matrix.run_all([need for one in round_of for need in self.matrix.needed(one)], to_plan=round_of)
        self.planned.update(round_of)


def pytest_generate_tests(metafunc):
    config = metafunc.config
    for name in ("trained", "refused", "precision"):
        if name in metafunc.fixturenames:
            if not hasattr(config, "chosen_combinations"):
                config.chosen_combinations = Chosen(config)
            chosen = {"trained": "legal", "refused": "refused", "precision": "precisions"}[name]
            combinations = getattr(config.chosen_combinations, chosen)  # may be none, for which pytest would call a function of ids too
            metafunc.parametrize(name, combinations, ids=[one.id for one in combinations])


@pytest.fixture(scope="module")
def chosen(request):
    yield request.config.chosen_combinations
    request.config.chosen_combinations.work.cleanup()


def said(chosen, problems, combination):
    """What is wrong, and the commands that ran."""
    matrix = chosen.matrix
    runs = [one for one in dict.fromkeys([combination, matrix.plain(combination)]) if one in matrix.results]
    return "\n".join([*problems, *(f"run:   {matrix.results[one].command}" for one in runs),
                      f"check: pytest tests/matrix/matrix_test.py{' --threads' if matrix.trainers else ''} --steps {matrix.steps} --combination '{combination.id}'"])


def test_trains(chosen, trained):
    chosen.train(trained)
    problems = chosen.matrix.check(trained)
    print(f"{chosen.matrix.results[trained].seconds:.2f} s, of its bounds {chosen.matrix.nearest(trained)}")
    assert not problems, said(chosen, problems, trained)


@pytest.mark.full
def test_is_verified(chosen, trained):
    """`strata verify` of it finds nothing wrong. Groups that train by themselves have no plain run, so it refuses them."""
    problems = chosen.matrix.check_verified(trained)
    assert not problems, "\n".join(problems)


def test_is_refused(chosen, refused):
    chosen.matrix.run_all([refused], to_plan=[])
    problems = chosen.matrix.check_refused(refused)
    assert not problems, said(chosen, problems, refused)


def test_precision(chosen, precision):
    """Its reference against the simplest precision's."""
    chosen.matrix.run_all([precision, chosen.matrix.space.simplest()], to_plan=[])
    problems = chosen.matrix.check_precision(precision["precision"])
    assert not problems, said(chosen, problems, precision)
