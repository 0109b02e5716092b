#!/usr/bin/env python3
"""One training run of a peer, on the CPU in fp32: torch in one process, DeepSpeed's ZeRO or FSDP2; see run.py, which starts it.

The model is transformers' GPT-NeoX from a folder of weights, without dropout. Step s takes samples [s x G, (s + 1) x G) of the tokens,
G = ranks x micro-batch; rank r has the r-th micro-batch of them. The loss is the mean cross entropy, the optimizer AdamW, and the
gradient's norm is clipped to 1, as in `strata train` with its defaults. The last line on stdout of rank 0 is a JSON object: losses,
step_seconds, and of each rank net_bytes: its peak resident memory in the steps, less that when all modules were imported."""
import argparse
import json
import os
import time

import numpy
import torch
import transformers  # noqa: F401  what is imported is no part of a run's memory

CLIP, BETAS, EPSILON, WEIGHT_DECAY = 1.0, (0.9, 0.999), 1e-8, 0.01


def status(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))


class Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, targets):
        logits = self.model(input_ids=inputs, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


def adamw(parameters, rate):
    return torch.optim.AdamW(parameters, lr=rate, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True)


def torch_step(net, optimizer):
    def step(batch):
        loss = net(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    return step


def fsdp2(net, arguments):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    options = {"mesh": init_device_mesh("cpu", (torch.distributed.get_world_size(),)), "reshard_after_forward": arguments.reshard}
    for layer in net.model.gpt_neox.layers:
        fully_shard(layer, **options)
    fully_shard(net, **options)
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no average
    return torch_step(net, adamw(net.parameters(), arguments.rate))


def deepspeed(net, arguments):
    import deepspeed
    config = {
        "train_micro_batch_size_per_gpu": arguments.micro_batch, "gradient_clipping": CLIP, "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": {"lr": arguments.rate, "betas": BETAS, "eps": EPSILON, "weight_decay": WEIGHT_DECAY}},
        "zero_optimization": {
            "stage": arguments.stage, "overlap_comm": arguments.overlap, "reduce_bucket_size": arguments.bucket,
            "allgather_bucket_size": arguments.bucket, "stage3_prefetch_bucket_size": arguments.bucket,
            "stage3_max_live_parameters": 2 * arguments.bucket, "stage3_max_reuse_distance": 2 * arguments.bucket}}
    engine = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config=config)[0]

    def step(batch):
        loss = engine(*batch)
        engine.backward(loss)
        engine.step()
        return loss.item()
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["torch", "deepspeed", "fsdp2"])
    parser.add_argument("--weights", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--bucket", type=int, default=500_000_000, help="DeepSpeed: elements of a bucket")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--reshard", action="store_true", help="FSDP2: give gathered parameters back after forward, as ZeRO-3")
    parser.add_argument("--turns", help="two named pipes, TURNS,ARRIVALS: a step begins when a byte came; see turns.py")
    arguments = parser.parse_args()
    pipes = [os.open(name, mode) for name, mode in zip(arguments.turns.split(","), (os.O_RDONLY, os.O_WRONLY))] if arguments.turns else []

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if arguments.peer == "deepspeed":
        import logging
        import deepspeed as module
        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    imported = status("VmRSS")
    rank, ranks = 0, 1
    if arguments.peer == "deepspeed":
        module.init_distributed(dist_backend="gloo")
    elif arguments.peer == "fsdp2":
        torch.distributed.init_process_group("gloo")
    if arguments.peer != "torch":
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = Loss(transformers.GPTNeoXForCausalLM.from_pretrained(arguments.weights, dtype=torch.float32, attn_implementation="sdpa")).train()
    make = {"torch": lambda: torch_step(net, adamw(net.parameters(), arguments.rate)), "fsdp2": lambda: fsdp2(net, arguments),
            "deepspeed": lambda: deepspeed(net, arguments)}
    step = make[arguments.peer]()

    tokens = numpy.memmap(arguments.tokens, dtype="<u2", mode="r")
    length, batch = arguments.seq_len, arguments.micro_batch
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins here: the whole model that was cut into shards is not of the steps
    losses, seconds = [], []
    for index in range(arguments.steps):
        if pipes:
            os.write(pipes[1], b".")
            if not os.read(pipes[0], 1):
                os._exit(1)  # the bench has ended
        began = time.perf_counter()
        first = (index * ranks + rank) * batch
        samples = torch.from_numpy(numpy.stack([tokens[i * length:(i + 1) * length + 1].astype(numpy.int64) for i in range(first, first + batch)]))
        losses.append(step((samples[:, :-1].contiguous(), samples[:, 1:].contiguous())))
        seconds.append(time.perf_counter() - began)
    mine = {"losses": losses, "step_seconds": seconds, "net_bytes": status("VmHWM") - imported}
    everyone = [mine]
    if ranks > 1:
        everyone = [None] * ranks
        torch.distributed.all_gather_object(everyone, mine)
    if rank == 0:
        print(json.dumps({"losses": [sum(one) / ranks for one in zip(*(each["losses"] for each in everyone))], "step_seconds": seconds,
                          "net_bytes": [each["net_bytes"] for each in everyone]}), flush=True)
    if ranks > 1:
        torch.distributed.barrier()
        os._exit(0)  # DeepSpeed's threads sometimes abort a process that ends by itself


if __name__ == "__main__":
    main()
