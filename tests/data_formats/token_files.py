"""Writes token files with NumPy, from the description of each format and from none of Strata's code."""
import json

import numpy

LLMC = {numpy.uint16: (20240520, 1), numpy.uint32: (20240801, 7)}  # magic number, version
MEGATRON = {numpy.uint8: 1, numpy.int8: 2, numpy.int16: 3, numpy.int32: 4, numpy.int64: 5, numpy.uint16: 8}


def write_nanogpt(path, tokens, dtype):
    numpy.asarray(tokens, dtype).tofile(path)


def write_llmc(path, tokens, dtype):
    header = numpy.zeros(256, numpy.int32)
    header[:2] = LLMC[dtype]
    header[2] = len(tokens)
    path.write_bytes(header.tobytes() + numpy.asarray(tokens, dtype).tobytes())


def write_megatron(prefix, documents, dtype, modes=False):
    """`documents`: a list of lists of sequences, each of them an array of ids."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = numpy.array([len(sequence) for sequence in sequences], "<i4")
    offsets = numpy.zeros(len(sequences), "<i8")
    offsets[1:] = numpy.cumsum(lengths, dtype="<i8")[:-1] * numpy.dtype(dtype).itemsize
    boundaries = numpy.cumsum([0] + [len(document) for document in documents], dtype="<i8")
    counts = numpy.array([len(sequences), len(boundaries)], "<u8")
    parts = [b"MMIDIDX\0\0", numpy.array(1, "<u8"), numpy.array(MEGATRON[dtype], "u1"), counts, lengths, offsets, boundaries]
    if modes:
        parts.append(numpy.zeros(len(sequences), "i1"))
    with open(f"{prefix}.idx", "wb") as index:
        for part in parts:
            index.write(part if isinstance(part, bytes) else part.tobytes())
    with open(f"{prefix}.bin", "wb") as tokens:
        for sequence in sequences:
            tokens.write(numpy.asarray(sequence, dtype).tobytes())


def write_jsonl(path, texts, key):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for number, text in enumerate(texts):  # both of JSON's ways to write a letter that is not ASCII
            file.write(json.dumps({"id": number, key: text}, ensure_ascii=number % 2 == 0) + "\n")
