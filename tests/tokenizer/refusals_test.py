"""Features of a tokenizer.json that Strata does not have are refused, with the key, and nothing is written."""
import json

import pytest
from file_trials import FileTrials

pytest.importorskip("tokenizers")
from families import FAMILIES  # noqa: E402


@pytest.fixture(scope="module")
def files(folder):
    return {name: FAMILIES[name](["some text"], folder / f"{name}.json") for name in ("gpt2", "llama3")}


def split(data):
    return data["pre_tokenizer"]["pretokenizers"][0]


def added(data):
    return data["added_tokens"][0]


CHANGES = {
    "other model": ("gpt2", lambda data: data["model"].update(type="Unigram"), "model.type"),
    "byte_fallback": ("gpt2", lambda data: (data["model"].update(byte_fallback=True), data["model"]["vocab"].update({"<0x21>": data["model"]["vocab"].pop("!")})),
                      "model.byte_fallback"),
    "dropout": ("gpt2", lambda data: data["model"].update(dropout=0.1), "model.dropout"),
    "unknown": ("gpt2", lambda data: (data["model"].update(unk_token="<unk>"), data["model"]["vocab"].pop("!")), "model.unk_token"),
    "suffix": ("gpt2", lambda data: data["model"].update(end_of_word_suffix="</w>"), "model.end_of_word_suffix"),
    "new key": ("gpt2", lambda data: data["model"].update(backwards=True), "model.backwards"),
    "equal ids": ("gpt2", lambda data: data["model"]["vocab"].update(new=1), "another token has the same id"),
    "merge of nothing": ("gpt2", lambda data: data["model"]["merges"].append("no token"), "model.merges["),
    "normalizer": ("gpt2", lambda data: data.update(normalizer={"type": "Lowercase"}), "normalizer.type"),
    "normalizer in a sequence": ("gpt2", lambda data: data.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}),
                                 "normalizer.normalizers[1].type"),
    "pre-tokenizer": ("gpt2", lambda data: data.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer"),
    "no words": ("gpt2", lambda data: data["pre_tokenizer"].update(use_regex=False), "use_regex"),
    "expression": ("llama3", lambda data: split(data)["pattern"].update(Regex="\\w+"), "pattern.Regex"),
    "behavior": ("llama3", lambda data: split(data).update(behavior="Removed"), "behavior"),
    "post-processor": ("gpt2", lambda data: data.update(post_processor={"type": "BertProcessing"}), "post_processor.cls"),
    "decoder": ("gpt2", lambda data: data.update(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder.type"),
    "truncation": ("gpt2", lambda data: data.update(truncation=5), "truncation"),
    "long": ("gpt2", lambda data: added(data).update(content="x" * 2000), "added_tokens[0].content"),
    "id": ("gpt2", lambda data: added(data).update(id=9999), "added_tokens[0].id"),
    "version": ("gpt2", lambda data: data.update(version="2.0"), "version"),
    "no end": ("gpt2", lambda data: data.update(added_tokens=[]), "--document-end"),
}


@pytest.fixture(scope="module")
def trials():
    trials = FileTrials()
    yield trials
    trials.close()


@pytest.fixture
def pack(trials, tmp_path):
    def packed(tokenizer, **options):
        (tmp_path / "text").write_text("some text")
        answer = trials.pack(tmp_path / "text", output=tmp_path / "packed.bin", tokenizer=tokenizer, **options)
        assert (tmp_path / "packed.bin").exists() == ("out" in answer), answer
        return answer
    return packed


def check_refused(answer, *words):
    assert all(word in answer["refused"] for word in words), answer


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


def test_folder(files, pack, tmp_path):
    """A folder stands for the tokenizer.json in it."""
    check_refused(pack(tmp_path), str(tmp_path), "is a folder without a tokenizer.json")
    (tmp_path / "tokenizer.json").write_text(files["gpt2"].read_text())
    assert "out" in pack(tmp_path)


def test_told(files, pack, tmp_path):
    """What is not obeyed, and what is left out of the text, is said."""
    data = json.loads(files["gpt2"].read_text())
    data["truncation"] = {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    data["model"]["vocab"].pop("s")
    data["model"]["merges"] = [merge for merge in data["model"]["merges"] if "s" not in merge]
    data["added_tokens"] = []
    (tmp_path / "told.json").write_text(json.dumps(data))
    said = pack(tmp_path / "told.json", document_end="none")["err"]
    assert "warning: " in said and "truncation is {" in said and "1 bytes of the texts" in said, said
    assert len((tmp_path / "packed.bin").read_bytes()) == 4  # ome, text


def test_width(files, pack, tmp_path):
    """A vocabulary beyond 16 bits is not cut."""
    data = json.loads(files["gpt2"].read_text())
    size = len(data["model"]["vocab"])
    extra = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    data["added_tokens"] += [{"id": index, "content": f"<|{index}|>", **extra} for index in range(size + 1, 65536)]
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(data))
    assert "out" in pack(path)
    (tmp_path / "packed.bin").unlink()
    data["added_tokens"].append({"id": 65536, "content": "<|65536|>", **extra})
    path.write_text(json.dumps(data))
    check_refused(pack(path), "65536", "u32")
    check_refused(pack(path, width="u16"), "65536", "u32")
    assert "out" in pack(path, width="u32")
    (tmp_path / "packed.bin").unlink()
    check_refused(pack(files["gpt2"], document_end="60000"), "60000")
