#!/usr/bin/env python3
"""The products of matrices in one training step, and nothing else: what no trainer that computes them can be faster than.

Each of the ranks, one thread each, multiplies for one sample of 256 tokens what a GPT-NeoX of the preset does in a forward and a backward
in bf16: for each weight x W^T, dy W and dy^T x, with torch's matmul (oneDNN on processors), in the order of a step. Attention's products,
norms, activations, the loss, communication and the update are left out. Printed is the time of the step that was fastest on the slowest
rank. Beside a goal such as "4 times a peer's speed" it says whether the processor can reach that at all.

  FOLDER/bin/python3 tests/benchmarks/peers/products.py --models pythia-160m
"""
import argparse
import multiprocessing
import os
import time

SIZES = {"pythia-70m": (512, 6), "pythia-160m": (768, 12), "pythia-410m": (1024, 24)}  # width, layers
VOCABULARY, TOKENS = 50304, 256


def weights(model):
    width, layers = SIZES[model]
    return [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)] * layers + [(VOCABULARY, width)]


def seconds(model, steps, dtype, barrier):
    import torch
    torch.set_num_threads(1)
    made = [(torch.randn(outputs, inputs).to(dtype), torch.randn(TOKENS, inputs).to(dtype), torch.randn(TOKENS, outputs).to(dtype))
            for outputs, inputs in weights(model)]
    taken = []
    for _ in range(steps):
        barrier.wait()
        begin = time.perf_counter()
        for weight, x, _ in made:
            x @ weight.T
        for weight, x, dy in reversed(made):
            dy @ weight
            dy.T @ x
        taken.append(time.perf_counter() - begin)
    return min(taken)


def rank(results, *arguments):
    results.put(seconds(*arguments))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(SIZES), default=sorted(SIZES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    print(f"| {arguments.dtype}, {arguments.ranks} ranks, {TOKENS} tokens a rank | GFLOP a rank | fastest step s | GFLOP/s a rank |\n|---|---|---|---|")
    for model in arguments.models:
        results, barrier = multiprocessing.Queue(), multiprocessing.Barrier(arguments.ranks)
        processes = [multiprocessing.Process(target=rank, args=(results, model, arguments.steps, getattr(torch, arguments.dtype), barrier))
                     for _ in range(arguments.ranks)]
        for process in processes:
            process.start()
        slowest = max(results.get() for _ in processes)
        for process in processes:
            process.join()
        work = sum(6 * outputs * inputs for outputs, inputs in weights(model)) * TOKENS / 1e9
        print(f"| {model} | {work:.0f} | {slowest:.3f} | {work / slowest:.0f} |")


if __name__ == "__main__":
    main()
