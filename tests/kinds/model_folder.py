"""Tiny model folders, and runs that begin from them: for the tests of model folders and of weights."""
import json
import os
import shutil
import struct

from engine import TINY_MODELS

SEQUENCE = 16


def small_models():
    """name -> the model plugin, its settings: one for each config.json that Strata writes without a source."""
    models = {name: (name, sizes) for name, sizes in TINY_MODELS.items()}
    for variant in ("mistral", "qwen2"):
        models[variant] = ("llama", {**TINY_MODELS["llama"], "variant": variant})
    return models


def read_tensors(path):
    """name -> dtype, shape, bytes; and the file's notes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    notes = header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}, notes


def write_tensors(path, tensors, notes=None):
    header, at = {"__metadata__": notes}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


class ModelFolders:
    """Folders as Strata exports them, their variants, and runs of one step at rate 0 in a trainer of many runs."""

    def __init__(self, trainers, work, tokens):
        self.trainers, self.work, self.tokens, self.count, self.made = trainers, os.fspath(work), os.fspath(tokens), 0, {}

    def config(self, plugin, **rest):
        return {"device": "cpu", "model": {"plugin": plugin, "seq_len": SEQUENCE, **rest}, "data": {"path": self.tokens},
                "train": {"steps": 1, "global_batch": 2}, "learning_rate": {"base": 0}}

    def new_folder(self):
        self.count += 1
        return os.path.join(self.work, f"folder{self.count}")

    def run(self, config, settings=(), keep=None, digests=False):
        """A Result, whose export is kept in the folder `keep`, and what a dry run says."""
        return self.trainers.train(self.trainers.engine.write_config("model_folder.json", config), 1, settings, digests=digests, keep=keep)

    def base(self, name):
        """The folder of small_models()[name] with random weights."""
        if name not in self.made:
            plugin, sizes = small_models()[name]
            folder = self.new_folder()
            result, _ = self.run(self.config(plugin, **sizes), keep=folder)
            assert result.status == 0, result.output
            self.made[name] = folder
        return self.made[name]

    def variant(self, name, config=None, tensors=None, files=None):
        """A copy of the folder with other keys in config.json (None: left out), other tensors and more files."""
        folder = self.new_folder()
        shutil.copytree(self.base(name), folder)
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            keys = json.load(file)
        keys.update(config or {})
        with open(path, "w") as file:
            json.dump(keys, file)
        if tensors:
            weights = os.path.join(folder, "model.safetensors")
            write_tensors(weights, tensors(read_tensors(weights)[0]), {"format": "pt"})
        for file_name, text in (files or {}).items():
            os.makedirs(os.path.dirname(os.path.join(folder, file_name)), exist_ok=True)
            with open(os.path.join(folder, file_name), "w") as file:
                file.write(text)
        return folder

    def from_folder(self, name, folder, settings=(), keep=None, digests=False):
        return self.run(self.config(small_models()[name][0], init=folder), settings, keep, digests)
