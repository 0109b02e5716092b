"""What a tokenizer.json asks for and Strata does not do is refused, with the key, and nothing is written."""
import json
import os

import pytest
from commands import check_refused, run

pytest.importorskip("tokenizers")
from families import FAMILIES  # noqa: E402


@pytest.fixture(scope="module")
def files(folder):
    return {name: FAMILIES[name](["some text"], folder / f"{name}.json") for name in ("gpt2", "llama3")}


def split(data):
    return data["pre_tokenizer"]["pretokenizers"][0]


CHANGES = {
    "other model": ("gpt2", lambda data: data["model"].update(type="Unigram"), "model.type"),
    "byte_fallback": ("gpt2", lambda data: data["model"].update(byte_fallback=True), "model.byte_fallback"),
    "dropout": ("gpt2", lambda data: data["model"].update(dropout=0.1), "model.dropout"),
    "unknown": ("gpt2", lambda data: data["model"].update(unk_token="<unk>"), "model.unk_token"),
    "suffix": ("gpt2", lambda data: data["model"].update(end_of_word_suffix="</w>"), "model.end_of_word_suffix"),
    "new key": ("gpt2", lambda data: data["model"].update(backwards=True), "model.backwards"),
    "no bytes": ("gpt2", lambda data: data["model"]["vocab"].pop("!"), "model.vocab.!"),
    "equal ids": ("gpt2", lambda data: data["model"]["vocab"].update(new=1), "another token has the same id"),
    "merge of nothing": ("gpt2", lambda data: data["model"]["merges"].append("no token"), "model.merges["),
    "normalizer": ("gpt2", lambda data: data.update(normalizer={"type": "Lowercase"}), "normalizer"),
    "pre-tokenizer": ("gpt2", lambda data: data.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer"),
    "no words": ("gpt2", lambda data: data["pre_tokenizer"].update(use_regex=False), "use_regex"),
    "expression": ("llama3", lambda data: split(data)["pattern"].update(Regex="\\w+"), "pattern.Regex"),
    "behavior": ("llama3", lambda data: split(data).update(behavior="Removed"), "behavior"),
    "invert": ("llama3", lambda data: split(data).update(invert=True), "invert"),
    "post-processor": ("gpt2", lambda data: data.update(post_processor={"type": "BertProcessing"}), "post_processor"),
    "decoder": ("gpt2", lambda data: data.update(decoder=None), "decoder"),
    "truncation": ("gpt2", lambda data: data.update(truncation={"max_length": 5}), "truncation"),
    "strip": ("gpt2", lambda data: data["added_tokens"][0].update(lstrip=True), "added_tokens[0].lstrip"),
    "single word": ("gpt2", lambda data: data["added_tokens"][0].update(single_word=True), "added_tokens[0].single_word"),
    "id": ("gpt2", lambda data: data["added_tokens"][0].update(id=9999), "added_tokens[0].id"),
    "version": ("gpt2", lambda data: data.update(version="2.0"), "version"),
    "no end": ("gpt2", lambda data: data.update(added_tokens=[]), "--document-end"),
}


@pytest.fixture
def pack(strata, plugins, tmp_path):
    def packed(tokenizer, *words):
        (tmp_path / "text").write_text("some text")
        environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins)}
        done = run([strata, "data", "pack", tmp_path / "text", "-o", tmp_path / "packed.bin", "--tokenizer", tokenizer, *words], env=environment)
        assert (tmp_path / "packed.bin").exists() == (done.returncode == 0)
        return done
    return packed


@pytest.mark.parametrize("family, change, key", CHANGES.values(), ids=CHANGES)
def test_refused(files, pack, tmp_path, family, change, key):
    data = json.loads(files[family].read_text())
    change(data)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(data))
    check_refused(pack(path), "changed.json", key)


@pytest.mark.parametrize("text, part", [("{", "not valid JSON"), ("[]", "'model'"), ('{"model": 5, "version": "1.0"}', "model is 5")])
def test_no_tokenizer(pack, tmp_path, text, part):
    (tmp_path / "wrong.json").write_text(text)
    check_refused(pack(tmp_path / "wrong.json"), "wrong.json", part)
    check_refused(pack(tmp_path / "missing.json"), "missing.json", "cannot be opened")


def test_width(files, pack, tmp_path):
    """A vocabulary beyond 16 bits is not cut."""
    data = json.loads(files["gpt2"].read_text())
    size = len(data["model"]["vocab"])
    extra = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    data["added_tokens"] += [{"id": index, "content": f"<|{index}|>", **extra} for index in range(size + 1, 65536)]
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(data))
    assert pack(path).returncode == 0
    (tmp_path / "packed.bin").unlink()
    data["added_tokens"].append({"id": 65536, "content": "<|65536|>", **extra})
    path.write_text(json.dumps(data))
    check_refused(pack(path), "65536", "u32")
    check_refused(pack(path, "--width", "u16"), "65536", "u32")
    assert pack(path, "--width", "u32").returncode == 0
    (tmp_path / "packed.bin").unlink()
    check_refused(pack(files["gpt2"], "--document-end", 60000), "60000")
