#!/usr/bin/env python3
"""One training run of a peer, on the CPU in fp32: torch in one process, DeepSpeed's ZeRO or pipeline, or FSDP2; see run.py and pipeline.py, which start it.

The model is transformers' GPT-NeoX from a folder of weights, without dropout. Step s takes samples [s x G, (s + 1) x G) of the tokens,
G = ranks x accumulation x micro-batch; micro-batch a of rank r is the (a x ranks + r)-th of them (a pipeline's ranks count as one). The loss is the mean cross entropy, the optimizer AdamW, and the
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
    def step(batches):
        losses = []
        for batch in batches:
            loss = net(*batch)
            (loss / len(batches)).backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return sum(losses) / len(losses)
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


def deepspeed_config(arguments, zero):
    for slot, device in (("offload_optimizer", arguments.offload_optimizer), ("offload_param", arguments.offload_parameters)):
        if device != "none":
            zero[slot] = {"device": device, "pin_memory": False, **({"nvme_path": arguments.nvme_path} if device == "nvme" else {})}
    return {
        "bf16": {"enabled": arguments.bf16},
        "train_micro_batch_size_per_gpu": arguments.micro_batch, "gradient_accumulation_steps": arguments.accumulation,
        "gradient_clipping": CLIP, "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": {"lr": arguments.rate, "betas": BETAS, "eps": EPSILON, "weight_decay": WEIGHT_DECAY}},
        "zero_optimization": zero}


def deepspeed(net, arguments):
    import deepspeed
    config = deepspeed_config(arguments, {
        "stage": arguments.stage, "overlap_comm": arguments.overlap, "reduce_bucket_size": arguments.bucket,
        "allgather_bucket_size": arguments.bucket, "stage3_prefetch_bucket_size": arguments.bucket,
        "stage3_max_live_parameters": 2 * arguments.bucket, "stage3_max_reuse_distance": 2 * arguments.bucket})
    engine = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config=config)[0]

    def step(batches):
        losses = []
        for batch in batches:
            loss = engine(*batch)
            engine.backward(loss)
            engine.step()  # updates after the last micro-batch only
            losses.append(loss.item())
        return sum(losses) / len(losses)
    return step


class Block(torch.nn.Module):
    """A layer of GPT-NeoX that takes nothing but the hidden states."""
    def __init__(self, layer, rotary):
        super().__init__()
        self.layer, self.rotary = layer, rotary

    def forward(self, hidden):
        positions = torch.arange(hidden.shape[1]).unsqueeze(0)
        return self.layer(hidden, attention_mask=None, position_ids=positions, use_cache=False,
                          position_embeddings=self.rotary(hidden, position_ids=positions))


def deepspeed_pipeline(net, arguments):
    import deepspeed
    from deepspeed.pipe import PipelineModule
    neox = net.model.gpt_neox
    layers = [neox.embed_in, *(Block(layer, neox.rotary_emb) for layer in neox.layers), neox.final_layer_norm,
              net.model.get_output_embeddings()]
    cut = PipelineModule(layers=layers, num_stages=torch.distributed.get_world_size(), partition_method=arguments.partition,
                         loss_fn=lambda logits, targets: torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1)))
    engine = deepspeed.initialize(model=cut.train(), model_parameters=list(cut.parameters()), config=deepspeed_config(arguments, {"stage": arguments.stage}))[0]
    return lambda batches: float(engine.train_batch(data_iter=iter(batches)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["torch", "deepspeed", "deepspeed-pipeline", "fsdp2"])
    parser.add_argument("--weights", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a rank, or of a pipeline, in a step")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--bucket", type=int, default=500_000_000, help="DeepSpeed: elements of a bucket")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--partition", default="parameters", help="DeepSpeed's pipeline: how layers are cut; parameters or uniform")
    for what in ("optimizer", "parameters"):
        parser.add_argument(f"--offload-{what}", choices=["none", "cpu", "nvme"], default="none", help="DeepSpeed: where it rests")
    parser.add_argument("--nvme-path", help="DeepSpeed: folder for what rests on nvme")
    parser.add_argument("--bf16", action="store_true", help="DeepSpeed: in bf16, with fp32 master weights")
    parser.add_argument("--reshard", action="store_true", help="FSDP2: give gathered parameters back after forward, as ZeRO-3")
    parser.add_argument("--turns", help="two named pipes, TURNS,ARRIVALS: a step begins when a byte came; see turns.py")
    arguments = parser.parse_args()
    pipes = [os.open(name, mode) for name, mode in zip(arguments.turns.split(","), (os.O_RDONLY, os.O_WRONLY))] if arguments.turns else []

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if arguments.peer.startswith("deepspeed"):
        import logging
        import deepspeed as module
        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    imported = status("VmRSS")
    rank, ranks = 0, 1
    if arguments.peer.startswith("deepspeed"):
        module.init_distributed(dist_backend="gloo")
    elif arguments.peer == "fsdp2":
        torch.distributed.init_process_group("gloo")
    if arguments.peer != "torch":
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = Loss(transformers.GPTNeoXForCausalLM.from_pretrained(arguments.weights, dtype=torch.float32, attn_implementation="sdpa")).train()
    make = {"torch": lambda: torch_step(net, adamw(net.parameters(), arguments.rate)), "fsdp2": lambda: fsdp2(net, arguments),
            "deepspeed": lambda: deepspeed(net, arguments), "deepspeed-pipeline": lambda: deepspeed_pipeline(net, arguments)}
    step = make[arguments.peer]()

    feeders, feeder = (1, 0) if arguments.peer == "deepspeed-pipeline" else (ranks, rank)
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
        batches = []
        for micro_batch in range(arguments.accumulation):
            first = ((index * arguments.accumulation + micro_batch) * feeders + feeder) * batch
            samples = torch.from_numpy(numpy.stack([tokens[i * length:(i + 1) * length + 1].astype(numpy.int64) for i in range(first, first + batch)]))
            batches.append((samples[:, :-1].contiguous(), samples[:, 1:].contiguous()))
        losses.append(step(batches))
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
