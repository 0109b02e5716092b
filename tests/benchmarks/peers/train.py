#!/usr/bin/env python3
"""One training run of a peer, on the CPU: torch in one process, its tensor parallelism, FSDP2, DeepSpeed's ZeRO or pipeline; see run.py,
pipeline.py and tensor.py, which start it.

The model is transformers' from a folder of weights, without dropout. Step s takes samples [s x G, (s + 1) x G) of the tokens,
G = ranks x accumulation x micro-batch; micro-batch a of rank r is the (a x ranks + r)-th of them (ranks that share a model count as one). The loss is the mean cross entropy, the optimizer AdamW, and the
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
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def adamw(parameters, rate):
    return torch.optim.AdamW(parameters, lr=rate, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True)


def torch_step(net, optimizer, update=None):
    def plain_update():
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step(batches):
        losses = []
        for batch in batches:
            loss = net(*batch)
            (loss / len(batches)).backward()
            losses.append(loss.item())
        (update or plain_update)()
        return sum(losses) / len(losses)
    return step


def local(tensor):
    return tensor.to_local() if isinstance(tensor, torch.distributed.tensor.DTensor) else tensor


def with_masters(net, arguments):
    """A step that updates each rank's parts of the parameters, by fp32 copies of them where they are in bf16."""
    parameters = list(net.parameters())
    masters = [local(parameter.detach()).float() for parameter in parameters]
    cut = [isinstance(parameter, torch.distributed.tensor.DTensor) for parameter in parameters]
    optimizer = adamw(masters, arguments.rate)

    def update():
        for parameter, master in zip(parameters, masters):
            gradient = parameter.grad
            if isinstance(parameter, torch.distributed.tensor.DTensor):
                gradient = gradient.redistribute(placements=parameter.placements)  # that of the embedding is whole
            master.grad = local(gradient).float()
        squares = torch.stack(torch._foreach_norm([master.grad for master in masters])).square()
        of_parts = squares[torch.tensor(cut)].sum()
        if any(cut):
            torch.distributed.all_reduce(of_parts)
        norm = (of_parts + squares[~torch.tensor(cut)].sum()).sqrt()
        torch._foreach_mul_([master.grad for master in masters], (CLIP / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
        if arguments.bf16:
            torch._foreach_copy_([local(parameter.detach()) for parameter in parameters], masters)
        for parameter in parameters:
            parameter.grad = None
    return torch_step(net, optimizer, update)


def tensor_parallel(net, arguments):
    """Llama's layers shared by all ranks, as torch's documentation shares them; the loss is computed in parts, too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
    plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()), "lm_head": ColwiseParallel(use_local_output=False)}
    for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        plan[f"model.layers.*.{part}"] = ColwiseParallel()
    for part in ("self_attn.o_proj", "mlp.down_proj"):
        plan[f"model.layers.*.{part}"] = RowwiseParallel()
    parallelize_module(net.model, init_device_mesh("cpu", (torch.distributed.get_world_size(),)), plan)
    step = with_masters(net, arguments)

    def in_parts(batches):
        with loss_parallel():
            return step(batches)
    return in_parts


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
    parser.add_argument("peer", choices=["torch", "tensor", "deepspeed", "deepspeed-pipeline", "fsdp2"])
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
    parser.add_argument("--bf16", action="store_true", help="in bf16, with fp32 master weights")
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
    elif arguments.peer in ("fsdp2", "tensor"):
        torch.distributed.init_process_group("gloo")
    if arguments.peer != "torch":
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = Loss(transformers.AutoModelForCausalLM.from_pretrained(
        arguments.weights, dtype=torch.bfloat16 if arguments.bf16 and not arguments.peer.startswith("deepspeed") else torch.float32,
        attn_implementation="sdpa")).train()
    in_one = (lambda: with_masters(net, arguments)) if arguments.bf16 else (lambda: torch_step(net, adamw(net.parameters(), arguments.rate)))
    make = {"torch": in_one, "tensor": lambda: tensor_parallel(net, arguments), "fsdp2": lambda: fsdp2(net, arguments),
            "deepspeed": lambda: deepspeed(net, arguments), "deepspeed-pipeline": lambda: deepspeed_pipeline(net, arguments)}
    step = make[arguments.peer]()

    feeders, feeder = (1, 0) if arguments.peer in ("deepspeed-pipeline", "tensor") else (ranks, rank)
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
