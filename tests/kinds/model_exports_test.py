"""Nothing that came in with a model folder is lost going out: the keys of its config.json that the model does not decide, and its other files, by
`train --export` and by `checkpoint export`. Members: the models that Strata exports, and the files of folders as they are published."""
import json
import os
import shutil

import pytest
from commands import call, run
from engine import read_weights
from model_folder import ModelFolders, read_tensors, small_models

FILES = {"generation_config.json": '{"eos_token_id": [3, 4], "temperature": 0.6}', "tokenizer.json": "{}", "tokenizer_config.json": "{}",
         "special_tokens_map.json": "{}", "added_tokens.json": "{}", "vocab.json": "{}", "merges.txt": "", "tokenizer.model": "\x00\x01", "vocab.txt": "a\n",
         "qwen.tiktoken": "YQ== 0\n", "chat_template.jinja": "{{ messages }}", "chat_template.json": "{}", "additional_chat_templates/tool_use.jinja": "{{ tools }}",
         "spiece.model": "x", "LICENSE": "of the model", "preprocessor_config.json": "{}"}
LEFT = {"README.md": "of other weights", "pytorch_model.bin": "x", "model.gguf": "x", "training_args.bin": "x", "trainer_state.json": "{}", ".gitattributes": "x"}
KEYS = {"bos_token_id": 250, "eos_token_id": [251, 252], "pad_token_id": 253, "transformers_version": "4.40.0", "architectures": ["Own"], "use_cache": False,
        "torch_dtype": "bfloat16", "dtype": "bfloat16", "task_specific_params": {"a": [1, None, 1e-5]}, "key of a note": "text", "_name_or_path": "somewhere"}
OF_MODEL = {"mistral": {"sliding_window": 64, "max_position_embeddings": 4096}, "qwen2": {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 3},
            "llama": {"sliding_window": 8, "rope_theta": 10000.0, "rope_parameters": None, "rope_scaling": None, "hidden_act": "swish", "max_position_embeddings": 2048},
            "gpt2": {"activation_function": "gelu_pytorch_tanh", "n_ctx": 1024, "summary_type": "cls_index"}, "gpt_neox": {"hidden_act": "gelu_fast"}}
TYPES = ("dtype", "torch_dtype")


@pytest.fixture(scope="module")
def folders(in_threads, folder, tokens):
    return ModelFolders(in_threads, folder, tokens)


def read_config(folder):
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file)


def check_went_through(before, after, dtype):
    was, now = read_config(before), read_config(after)
    assert {key: now.pop(key) for key in TYPES} == dict.fromkeys(TYPES, dtype)
    assert now == {key: value for key, value in was.items() if key not in TYPES}
    for name, text in FILES.items():
        with open(os.path.join(after, name)) as file:
            assert file.read() == text, name
    assert not [name for name in LEFT if os.path.exists(os.path.join(after, name))]


@pytest.mark.parametrize("name", small_models())
def test_a_folder_comes_out_as_it_went_in(folders, name):
    source = folders.variant(name, {**KEYS, **OF_MODEL[name]}, files={**FILES, **LEFT})
    out = folders.new_folder()
    result, _ = folders.from_folder(name, source, keep=out)
    assert result.status == 0, result.output
    check_went_through(source, out, "float32")
    assert read_weights(out) == read_weights(source)
    again, _ = folders.from_folder(name, out)
    assert again.losses == result.losses


@pytest.mark.parametrize("name", small_models())
def test_without_a_source_no_token_is_made_up(folders, name):
    config = read_config(folders.base(name))
    assert {key: value for key, value in config.items() if key.endswith("_token_id")} == {"bos_token_id": None, "eos_token_id": None}


def test_a_checkpoint_exports_the_same(folders, engine, strata):
    source = folders.variant("qwen2", {**KEYS, **OF_MODEL["qwen2"]}, files={**FILES, **LEFT})
    config = engine.write_config("saved.json", {**folders.config("llama", init=source), "checkpoint": {"path": "saved"}})
    command = [strata, "train", config, "--quiet", "--export", "out", "--export-dtype", "source"]
    call(command, env=engine.environment, cwd=folders.work)
    check_went_through(source, os.path.join(folders.work, "out"), "bfloat16")
    tensors, _ = read_tensors(os.path.join(folders.work, "out", "model.safetensors"))
    assert {dtype for dtype, _, _ in tensors.values()} == {"BF16"}
    export = [strata, "checkpoint", "export", "saved"]
    call([*export, "exported", "--dtype", "source"], env=engine.environment, cwd=folders.work)
    check_went_through(source, os.path.join(folders.work, "exported"), "bfloat16")
    assert read_tensors(os.path.join(folders.work, "exported", "model.safetensors"))[0] == tensors

    shutil.move(source, source + "moved")
    done = run([*export, "without"], env=engine.environment, cwd=folders.work)
    assert done.returncode == 0 and "no longer exists" in done.stderr and "tokenizer" in done.stderr, done.stderr
    without = os.path.join(folders.work, "without")
    assert read_config(without) == {**read_config(source + "moved"), **dict.fromkeys(TYPES, "float32")}
    assert sorted(os.listdir(without)) == ["config.json", "model.safetensors"]
