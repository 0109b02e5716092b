#!/usr/bin/env python3
"""`strata data pack --tokenizer` compared with Hugging Face's tokenizers on this machine, one thread each, in turns; the tokens are
compared too.

The library's time is that of encode_batch_fast() over documents in memory, a thousand at a time. Strata's is that of the whole command, which also starts, reads
the tokenizer, parses JSON lines and writes the tokens. Runs in the Python that `cmake/bootstrap.sh --for interop` makes:

  ~/.cache/strata/interop/bin/python tests/benchmarks/tokenizer.py --build build/release
  ~/.cache/strata/interop/bin/python tests/benchmarks/tokenizer.py --build build/release --tokenizer Llama-3.1-8B/tokenizer.json --text corpus.jsonl
"""
import argparse, json, os, pathlib, statistics, sys, tempfile, time

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")   # before the library is loaded
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("", "tokenizer")]

import numpy
import tokenizers
from command import call
from table import interval, interval_name, markdown


def read_documents(path):
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def made_here(arguments, folder):
    """Mixed text and the tests' families with a vocabulary as large as GPT-2's."""
    import families
    from texts import Writer
    families.VOCABULARY = 50000
    documents = list(Writer(1).documents(arguments.megabytes * 10**6))
    chosen = {name: families.FAMILIES[name] for name in ("gpt2", "neox", "llama3", "qwen2")}
    return documents, {name: make(documents[:len(documents) // 4], folder / f"{name}.json") for name, make in chosen.items()}


def rounds_of(strata, path, documents, lines, packed, rounds):
    """Seconds of both in each round."""
    library, environment = tokenizers.Tokenizer.from_file(str(path)), {"STRATA_PLUGIN_PATH": ""}
    command = [strata, "data", "pack", lines, "-o", packed, "--tokenizer", path, "--threads", 1, "--width", "u32", "--document-end", "none", "--force"]

    def of_library():
        seconds, ids = 0.0, []
        for first in range(0, len(documents), 1000):
            begin = time.perf_counter()
            encoded = library.encode_batch_fast(documents[first:first + 1000])
            seconds += time.perf_counter() - begin
            ids += [numpy.array(one.ids, "u4") for one in encoded] if not compared else []
        return seconds, ids

    def of_strata():
        begin = time.perf_counter()
        call(command, **environment)
        return time.perf_counter() - begin, None

    times, compared = [], False
    for number in range(rounds + 1):
        results = {work: work() for work in ([of_library, of_strata] if number % 2 else [of_strata, of_library])}
        if number == 0:   # a round to warm up, whose tokens are compared
            compared = True
            if not numpy.array_equal(numpy.concatenate(results[of_library][1]), numpy.fromfile(packed, "u4")):
                sys.exit(f"tokenizer.py: the tokens of {path} differ")
            continue
        times.append((results[of_library][0], results[of_strata][0]))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, nargs="+", help="tokenizer.json files (default: four trained here)")
    parser.add_argument("--text", type=pathlib.Path, help="a .jsonl file (default: mixed text)")
    parser.add_argument("--megabytes", type=int, default=50, help="of mixed text")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strata-tokenizer-") as name:
        folder = pathlib.Path(name)
        documents, paths = made_here(arguments, folder)
        if arguments.text:
            documents = read_documents(arguments.text)
        if arguments.tokenizer:
            paths = {str(path): path for path in arguments.tokenizer}
        lines = folder / "documents.jsonl"
        lines.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents), encoding="utf-8")
        megabytes = sum(len(text.encode()) for text in documents) / 1e6
        rows = []
        for family, path in paths.items():
            times = rounds_of(arguments.build.resolve() / "bin/strata", path, documents, lines, folder / "packed.bin", arguments.rounds)
            ratios = [theirs / own for theirs, own in times]
            low, high = interval(ratios)
            speeds = [megabytes / statistics.median(column) for column in zip(*times)]
            rows.append([family, *(f"{speed:.1f}" for speed in speeds), f"**{statistics.median(ratios):.2f}**", f"{low:.2f} .. {high:.2f}", str(len(ratios))])
    print(markdown([f"{megabytes:.0f} MB, one thread", f"tokenizers {tokenizers.__version__} MB/s", "strata MB/s", "times as fast",
                    interval_name(arguments.rounds), "rounds"], rows))


if __name__ == "__main__":
    main()
