"""Defects that show only in a combination: each plugin passes `strata plugins check` alone, and `strata verify --seconds 120` finds
the combination around a plain config, or `strata verify` of the combination does (`beside`). Each is a library with that one
defect; those without one are right in all that is drawn.
"""
import dataclasses
import json
import re

import pytest
from engine import Engine, set_arguments

FULL = pytest.mark.full


@dataclasses.dataclass
class Defect:
    kind: str
    needs: str             # what is in what verify changes of the config
    settings: tuple = ()   # of the config, beside the plugin
    said: str = ""         # where the run ends with an error
    near: tuple = ()       # what is right beside the defect, for one that has been found by its own combination only
    beside: tuple = ()     # and that combination


TENSOR, PIPELINE = r"parallel\.tensor=[2-4]", r"parallel\.pipeline=[2-4]"
SPLITS = r"scheduler\.plugin=(zero_bubble|dualpipe)"
SPLIT = ("scheduler=zero_bubble_h1",)
DEFECTS = {
    "layers_from_zero": Defect("partitioner", PIPELINE),
    "mean_of_deferred": Defect("partitioner", SPLITS),
    "described_elements": Defect("partitioner", TENSOR),
    "described_width": Defect("precision", TENSOR),
    "weight_by_address": Defect("precision", r"partitioner\.plugin=(zero3|hybrid)", ("partitioner=zero2",)),
    "weight_after_release": Defect("precision", SPLITS, said="in add_weight_gradient()"),
    "factor_by_address": Defect("precision", r"activations\.checkpoint=|parallel\.sequence=true"),
    "direction_of_measure": Defect("optimizer", r"partitioner\.plugin=(ddp|hybrid)|parallel\.tensor=[2-4]", said="measure"),
    "row_of_padding": Defect("optimizer", TENSOR, said="index"),
    "regions_of_all": Defect("offload", r"offload\.(parameters|activations)\.plugin=\S*regions_of_all", said="is not reserved"),
    "tied_head_twice": Defect("model", PIPELINE, ("model.tie_embeddings=true",)),
    "slope_of_last_forward": Defect("model", rf"{PIPELINE}|scheduler\.plugin="),
    "one_gradient_buffer": Defect("model", SPLITS, near=("scheduler=1f1b",), beside=SPLIT),
}
IN_DEFAULT_RUN = ("slope_of_last_forward",)


@pytest.fixture(scope="module")
def planted(strata, plugins, build, folder):
    return Engine(strata, [plugins, build / "verify_defects"], folder)


@pytest.fixture(scope="module")
def library(build):
    """A function: the path of a library, by kind and defect."""
    return lambda kind, defect: build / f"verify_combined/libstrata_{kind}_combined_{kind}_{defect}.so"


def verify(engine, repository, kind, path, settings, seconds, words=()):
    """The config is plain but for the plugin, and, as others are not drawn, a model that ranks can share."""
    slot = "offload.optimizer" if kind == "offload" else kind
    all_settings = [*([] if kind == "model" else ["model.plugin=cut_model"]), f"{slot}.plugin={path}", *settings]
    return engine.run("verify", repository / "configs/quickstart.yaml", "--quiet", *set_arguments(all_settings), "--format", "json",
                      "--seconds", seconds, *words, timeout=600)


def few(defects):
    return [pytest.param(defect, marks=[] if defect in IN_DEFAULT_RUN else FULL) for defect in defects]


def test_each_library_has_a_row(build):
    names = {path.name for path in (build / "verify_combined").glob("*.so") if not path.name.endswith("_none.so")}
    assert names == {f"libstrata_{row.kind}_combined_{row.kind}_{defect}.so" for defect, row in DEFECTS.items()}
    assert len(names) >= 12


@FULL
@pytest.mark.parametrize("defect", [defect for defect, row in DEFECTS.items() if row.beside])
def test_is_found_in_its_combination(planted, repository, library, defect):
    row, path = DEFECTS[defect], library(DEFECTS[defect].kind, defect)
    for beside, status in ((row.near, 0), (row.beside, 3 if row.said else 1)):
        done = verify(planted, repository, row.kind, path, ("parallel.pipeline=2", *beside), 0)
        assert done.returncode == status and (status != 3 or row.said in done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize("defect", few(defect for defect, row in DEFECTS.items() if not row.beside))
def test_is_found(planted, repository, library, defect, seed):
    row = DEFECTS[defect]
    done = verify(planted, repository, row.kind, library(row.kind, defect), row.settings, 120, ["--seed", seed])
    assert done.returncode == (3 if row.said else 1), done.stdout + done.stderr
    if row.said:
        assert "a similar run fails" in done.stderr and row.said in done.stderr, done.stderr
        assert re.search(row.needs, done.stderr), done.stderr
    else:
        said = json.loads(done.stdout)
        assert said["runs_near"] > 0 and any(re.search(row.needs, change) for change in said["changes"]), said


@FULL
@pytest.mark.parametrize("defect", DEFECTS)
def test_is_right_alone(planted, library, defect):
    done = planted.run("plugins", "check", library(DEFECTS[defect].kind, defect), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@FULL
@pytest.mark.parametrize("kind", sorted({row.kind for row in DEFECTS.values()}))
def test_is_right_without_a_defect(planted, repository, library, kind):
    done = verify(planted, repository, kind, library(kind, "none"), (), 60)
    assert done.returncode == 0 and json.loads(done.stdout)["runs_near"] > 0, done.stdout + done.stderr
