"""Every option of every model plugin beside a folder of weights: another value than the folder's changes something or is refused by name, and its
own value is taken. Members: the schemas of the model plugins."""
import functools
import tempfile

import pytest
from engine import Engine
from model_folder import ModelFolders, small_models
from place import build_folder, program

# The first by default, and all for `variant`.
FOLDERS = {"gpt2": ["gpt2"], "gpt_neox": ["gpt_neox"], "llama": ["llama", "mistral", "qwen2"]}
LEFT_OPEN = ("0", "0.0", "auto", "none")  # defaults that leave a size to the folder


@functools.cache
def schemas():
    """Plugin -> its options, of the build that is tested."""
    with tempfile.TemporaryDirectory() as work:
        found = Engine(program(), [build_folder() / "lib/strata/plugins"], work).plugins()
    kinds_and_options = {plugin["plugin"]: plugin["options"] for plugin in found}
    return {name.removeprefix("model/"): options for name, options in kinds_and_options.items() if name.startswith("model/")}


def other_values(option):
    """Two for each option at least, of which one is not the folder's."""
    kind, default = option["type"], option["default"]
    if kind == "choice":
        return [choice for choice in option["choices"] if choice not in LEFT_OPEN]
    if kind == "boolean":
        return ["true", "false"]
    if kind == "integer":
        return [str(int(default) + 1), str(int(default) + 6)]
    assert kind == "number", f"the test has no values of type {kind}"
    value = float(default)
    return [str(value / 2 + 0.25), str(value / 2 + 0.125)] if value < 1 else [str(value + 1), str(value + 2)]


def computed(result, plan):
    """What an option can change: also of what only spares memory the gradients differ, by their rounding."""
    return result.losses, plan, result.steps[0]["gradients"]


MEMBERS = [pytest.param(folder, option, id=f"{plugin} {option['name']} beside {folder}",
                        marks=[] if folder == plugin or option["name"] == "variant" else pytest.mark.full)
           for plugin, options in schemas().items() for option in options for folder in FOLDERS[plugin]]


@pytest.fixture(scope="module")
def folders(in_threads, folder, tokens):
    return ModelFolders(in_threads, folder, tokens)


@pytest.fixture(scope="module")
def unchanged(folders):
    """Name of a folder -> what a run from it without options computes."""
    return functools.cache(lambda name: computed(*folders.from_folder(name, folders.base(name), digests=True)))


@pytest.mark.parametrize("name, option", MEMBERS)
def test_another_value(folders, unchanged, name, option):
    plugin = small_models()[name][0]
    path = f"model.{plugin}.{option['name']}"
    taken = []
    for value in other_values(option):
        result, plan = folders.from_folder(name, folders.base(name), [f"{path}={value}"], digests=True)
        if result.status != 0:
            assert result.status == 2 and option["name"] in result.output, result.output
        elif computed(result, plan) == unchanged(name):
            taken.append(value)
    assert len(taken) <= 1, f"{path} beside a folder changed nothing with {taken}"


@pytest.mark.parametrize("name", small_models())
def test_its_own_values(folders, unchanged, name):
    """Those that made the folder are no contradiction."""
    plugin, sizes = small_models()[name]
    result, _ = folders.from_folder(name, folders.base(name), [f"model.{plugin}.{key}={value}" for key, value in sizes.items()])
    assert result.status == 0, result.output
    assert result.losses == unchanged(name)[0]


@pytest.mark.parametrize("settings, key", [
    (("rotary_factor=2",), "rotary_factor"), (("rotary_original_positions=64",), "rotary_original_positions"),
    (("rotary_scaling=linear", "rotary_original_positions=64"), "rotary_original_positions"),
    (("layers=1000000000000",), "layers"), (("hidden_size=1000000000000",), "hidden_size"), (("vocabulary=4000000000000000000",), "vocabulary")])
def test_without_a_folder(folders, settings, key):
    """Options that no scaling takes, and sizes of no model."""
    plugin, sizes = small_models()["llama"]
    result, _ = folders.run(folders.config(plugin, **sizes), [f"model.llama.{setting}" for setting in settings])
    assert result.status == 2 and key in result.output, result.output


def test_every_plugin_has_a_folder():
    assert schemas().keys() == FOLDERS.keys()
