"""Weights of a model folder: each tensor that holds a number that is not finite is named before the first step; a parameter that a file holds under
two names must have one value; spellings of files are those that transformers takes. Members: the tensors of each model's folder."""
import json
import os
import resource
import struct

import pytest
from commands import check_refused, run
from model_folder import ModelFolders, read_tensors, small_models, write_tensors

BAD = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
PREFIXES = {"gpt2": "transformer.", "gpt_neox": "gpt_neox.", "llama": "model.", "mistral": "model.", "qwen2": "model."}
EMBEDDINGS = {"gpt2": "transformer.wte.weight", "gpt_neox": "gpt_neox.embed_in.weight", "llama": "model.embed_tokens.weight"}
HEADS = {"gpt2": "lm_head.weight", "gpt_neox": "embed_out.weight", "llama": "lm_head.weight"}


@pytest.fixture(scope="module")
def folders(in_threads, folder, tokens):
    return ModelFolders(in_threads, folder, tokens)


def with_value(value, name, element):
    def change(tensors):
        dtype, shape, data = tensors[name]
        return {**tensors, name: (dtype, shape, data[:4 * element] + struct.pack("<f", value) + data[4 * element + 4:])}
    return change


@pytest.mark.parametrize("name", small_models())
def test_a_tensor_that_is_not_finite(folders, name):
    tensors, _ = read_tensors(os.path.join(folders.base(name), "model.safetensors"))
    roles = {"".join(letter for letter in tensor if not letter.isdigit()): tensor for tensor in tensors}  # the last of each
    for number, tensor in enumerate(roles.values()):
        text, value = list(BAD.items())[number % len(BAD)]
        element = len(tensors[tensor][2]) // 4 - 1
        result, _ = folders.from_folder(name, folders.variant(name, tensors=with_value(value, tensor, element)))
        assert result.status == 2 and f"tensor '{tensor}' holds NaN or infinity ({text} at element" in result.output, result.output


@pytest.mark.parametrize("command", [["eval"], pytest.param(["sample", "--prompt-tokens", "1,2", "--tokens", "2"], marks=pytest.mark.full)], ids=lambda command: command[0])
def test_commands_refuse_them(folders, engine, strata, tokens, command):
    bad = folders.variant("gpt_neox", tensors=with_value(BAD["nan"], "gpt_neox.final_layer_norm.weight", 3))
    config = engine.write_config("bad.json", {**folders.config("gpt_neox", init=bad), "validation": {"path": str(tokens), "samples": 2}})
    done = run([strata, command[0], config, *(["--quiet"] if command[0] != "sample" else []), *command[1:]], env=engine.environment)
    check_refused(done, "model.safetensors", "gpt_neox.final_layer_norm.weight", "nan at element 3")


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt_neox", marks=pytest.mark.full)])
def test_a_model_that_is_not_the_files_is_refused_before_memory_is_taken(folders, engine, strata, name):
    """A config.json without sizes has those of its owner's defaults, which are billions of parameters for llama."""
    with open(os.path.join(folders.base(name), "config.json")) as file:
        sizes = {"hidden_size": 8192, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 32768} if name == "gpt_neox" else {}
        kept = {"model_type": json.load(file)["model_type"], **sizes}
    large = folders.variant(name)
    with open(os.path.join(large, "config.json"), "w") as file:
        json.dump(kept, file)
    config = engine.write_config("large.json", folders.config(name, init=large))
    limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    done = run([strata, "train", config, "--quiet"], env=engine.environment, preexec_fn=limited)
    check_refused(done, "check that the model's options agree with the folder's config.json")


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_head_of_its_own_beside_a_tied_embedding(folders, name):
    embedding, head = EMBEDDINGS[name], HEADS[name]
    expected = folders.from_folder(name, folders.variant(name, {"tie_word_embeddings": True}, lambda tensors: {key: value for key, value in tensors.items() if key != head}))[0]
    assert expected.status == 0, expected.output
    equal = folders.variant(name, {"tie_word_embeddings": True}, lambda tensors: {**tensors, head: tensors[embedding]})
    assert folders.from_folder(name, equal)[0].losses == expected.losses
    only_head = folders.variant(name, {"tie_word_embeddings": True}, lambda tensors: {**{key: value for key, value in tensors.items() if key != embedding}, head: tensors[embedding]})
    assert folders.from_folder(name, only_head)[0].losses == expected.losses
    other = folders.variant(name, {"tie_word_embeddings": True}, lambda tensors: {**tensors, head: (*tensors[embedding][:2], tensors[embedding][2][::-1])})
    result = folders.from_folder(name, other)[0]
    assert result.status == 2 and all(word in result.output for word in (embedding, head, "tie_word_embeddings")), result.output


@pytest.mark.parametrize("name", small_models())
def test_names_without_the_prefix(folders, name):
    prefix = PREFIXES[name]
    bare = folders.variant(name, tensors=lambda tensors: {key.removeprefix(prefix): value for key, value in tensors.items()})
    assert folders.from_folder(name, bare)[0].losses == folders.from_folder(name, folders.base(name))[0].losses


def test_notes_that_are_null_and_shards_in_a_folder(folders):
    expected = folders.from_folder("llama", folders.base("llama"))[0].losses
    folder = folders.variant("llama")
    whole = os.path.join(folder, "model.safetensors")
    tensors, _ = read_tensors(whole)
    write_tensors(whole, tensors, notes=None)
    assert folders.from_folder("llama", folder)[0].losses == expected
    os.makedirs(os.path.join(folder, "shards"))
    os.rename(whole, os.path.join(folder, "shards", "1.safetensors"))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"weight_map": dict.fromkeys(tensors, "shards/1.safetensors")}, file)
    assert folders.from_folder("llama", folder)[0].losses == expected


def test_a_folder_that_is_not_the_models(folders):
    result, _ = folders.from_folder("gpt2", folders.base("llama"))
    assert result.status == 2 and 'model_type is "llama"; this model is gpt2' in result.output, result.output
    result, _ = folders.run(folders.config("llama", preset="nope"))  # --model llama:nope
    assert result.status == 2 and "preset is 'nope'" in result.output and "there is no folder of weights (model.init) of that name" in result.output, result.output
