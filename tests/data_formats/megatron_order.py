"""The order of Megatron-LM's GPT data set (megatron/core/datasets/gpt_dataset.py, Core 0.20), written in NumPy: which
tokens each sample of a run holds. Written from its description, plainly and slowly."""
import numpy


def samples_in_order(sequences, seq_len, wanted, seed):
    """`sequences`: arrays of ids; `wanted`: samples of the run, or None for one epoch. Yields (sample, its tokens)."""
    lengths = [len(sequence) for sequence in sequences]
    epoch_tokens = sum(lengths)
    epochs = 1
    while wanted is not None and epochs * epoch_tokens < wanted * seq_len + 1:
        epochs += 1

    # The last epoch stays apart when less than four fifths of it is wanted.
    complete = ((epochs - 1) * epoch_tokens - 1) // seq_len
    apart = epochs > 1 and wanted - complete < int(0.80 * ((epoch_tokens - 1) // seq_len))

    random = numpy.random.RandomState(seed)

    def shuffled(numbers, dtype):
        numbers = numpy.array(numbers, dtype)
        random.shuffle(numbers)
        return numbers.tolist()

    one_epoch = list(range(len(sequences)))
    if apart:
        order = shuffled(one_epoch * (epochs - 1), numpy.int32) + shuffled(one_epoch, numpy.int32)
    else:
        order = shuffled(one_epoch * epochs, numpy.int32)

    row = numpy.concatenate([numpy.asarray(sequences[number], numpy.int64) for number in order])
    samples = (len(row) - 1) // seq_len
    if apart:
        shuffle = shuffled(range(complete), numpy.uint32) + shuffled(range(complete, samples), numpy.uint32)
    else:
        shuffle = shuffled(range(samples), numpy.uint32)
    for sample in shuffle:
        yield sample, row[sample * seq_len:(sample + 1) * seq_len + 1].tolist()
