"""The ground truth of training and of Hugging Face folders: transformers' GPT-NeoX and torch's AdamW, in one process.

reference.py train --out DIR: writes DIR/init (config.json, model.safetensors: the weights before step 0), DIR/tokens.bin when no
  --tokens are given, DIR/final (the weights after the last step) and DIR/reference.json (options, losses, grad_norms).
reference.py check-export DIR: transformers must open DIR with nothing missing and nothing left over; with --weights FOLDER its
  weights must be FOLDER's (largest difference over largest value, tensor by tensor), with --loss X its loss on the first sample of
  --tokens must be X, both to --tolerance. Prints what it found as JSON; exit status 1 when something is wrong.

Sample i is tokens [i*L, (i+1)*L + 1), i wrapping; step s takes samples [s*G, (s+1)*G) in order, G = micro-batch * accum. So R ranks
with micro-batch M and accumulation A are `--micro-batch M --accum R*A` here. Needs the packages of requirements.txt.
"""
import argparse
import glob
import json
import os
import sysconfig

import numpy as np
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # a folder that is not there is an error and not a download
import transformers  # noqa: E402

# hidden size, layers, heads, vocabulary
SIZES = {"tiny": (64, 2, 4, 256), "pythia-14m": (128, 6, 4, 50304), "pythia-70m": (512, 6, 8, 50304)}


def make_model(size, seed):
    hidden, layers, heads, vocabulary = SIZES[size]
    torch.manual_seed(seed)
    model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
        vocab_size=vocabulary, hidden_act="gelu", max_position_embeddings=2048, use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        use_parallel_residual=True, tie_word_embeddings=False, attention_bias=True, bos_token_id=0, eos_token_id=0))
    for parameter in model.float().parameters():  # biases start at 0 and norms at 1, where a mix-up of two would not show
        if parameter.dim() == 1:
            parameter.data.add_(0.02 * torch.randn_like(parameter))
    return model


def save(model, folder, options):
    model.save_pretrained(folder, max_shard_size=options.max_shard_size)
    if options.published_keys:  # the names in Pythia's published config.json, in place of the newer ones
        config = json.load(open(path := os.path.join(folder, "config.json")))
        rope = config.pop("rope_parameters")
        config.update(rotary_pct=rope["partial_rotary_factor"], rotary_emb_base=int(rope["rope_theta"]))
        config["torch_dtype"] = config.pop("dtype", "float32")
        json.dump(config, open(path, "w"), indent=2)


def make_tokens(path, count=2_000_000):
    pattern = os.path.join(sysconfig.get_paths()["stdlib"], "*.py")
    text = b"".join(open(file, "rb").read() for file in sorted(glob.glob(pattern)))
    np.frombuffer(text[:count], dtype=np.uint8).astype("<u2").tofile(path)
    return path


def batch(tokens, seq_len, first, count):
    samples = (len(tokens) - 1) // seq_len
    starts = [i % samples * seq_len for i in range(first, first + count)]
    rows = torch.from_numpy(np.stack([tokens[at:at + seq_len + 1] for at in starts]).astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


def mean_loss(model, inputs, targets):
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


def train(options):
    os.makedirs(options.out, exist_ok=True)
    tokens = np.memmap(options.tokens or make_tokens(options.out + "/tokens.bin"), dtype="<u2", mode="r")
    model = make_model(options.size, options.seed)
    save(model, os.path.join(options.out, "init"), options)
    master = list(model.parameters())
    low = options.precision == "bf16"  # a bf16 copy computes; weights, moments and the sum of gradients are fp32
    if low:
        master = [torch.nn.Parameter(parameter.detach().clone()) for parameter in master]
    work = list((model.bfloat16() if low else model).parameters())
    optimizer = torch.optim.AdamW(master, options.lr, options.betas, options.eps, options.weight_decay)
    losses, norms = [0.0] * options.steps, []
    for step in range(options.steps):
        for micro in range(options.accum):
            first = (step * options.accum + micro) * options.micro_batch
            loss = mean_loss(model, *batch(tokens, options.seq_len, first, options.micro_batch))
            (loss / options.accum).backward()
            losses[step] += loss.item() / options.accum
            for target, source in zip(master, work) if low else ():
                target.grad = source.grad.float() if target.grad is None else target.grad + source.grad.float()
                source.grad = None
        norms.append(torch.nn.utils.clip_grad_norm_(master, options.clip or float("inf")).item())
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(work, master)
    model.float().load_state_dict(dict(zip(dict(model.named_parameters()), master)))
    save(model, os.path.join(options.out, "final"), options)
    result = json.dumps({"options": vars(options), "losses": losses, "grad_norms": norms})
    print(result, file=open(os.path.join(options.out, "reference.json"), "w"))


def check_export(options):
    load = transformers.AutoModelForCausalLM.from_pretrained
    model, report = load(options.folder, dtype=torch.float32, output_loading_info=True)
    good = not any(report.values())
    result = {"wrong": {kind: sorted(map(str, names)) for kind, names in report.items() if names}}
    if options.weights:
        other = load(options.weights, dtype=torch.float32).state_dict()
        result["difference"] = max(((value - other[name]).abs().max() / other[name].abs().max()).item()
                                   for name, value in model.state_dict().items())
        good &= result["difference"] <= options.tolerance
    if options.loss is not None:
        tokens = np.memmap(options.tokens, dtype="<u2", mode="r")
        with torch.no_grad():
            result["loss"] = mean_loss(model, *batch(tokens, options.seq_len, 0, 1)).item()
        good &= abs(result["loss"] / options.loss - 1) <= options.tolerance
    print(json.dumps(result))
    raise SystemExit(0 if good else 1)


def main():
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True)
    defaults = {"seq-len": 128, "micro-batch": 1, "accum": 1, "steps": 20, "seed": 1, "lr": 1e-3, "eps": 1e-8,
                "weight-decay": 0.01, "clip": 1.0}
    parser = commands.add_parser("train")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", help="raw u16 tokens; without it OUT/tokens.bin, the bytes of Python's library")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    for name, default in defaults.items():
        parser.add_argument("--" + name, type=type(default), default=default, help=f"default {default}")
    parser.add_argument("--betas", type=float, nargs=2, default=[0.9, 0.95])
    parser.add_argument("--published-keys", action="store_true", help="config.json says rotary_pct, not rope_parameters")
    parser.add_argument("--max-shard-size", default="50GB", help="as in save_pretrained; 10MB makes shards and an index")
    parser = commands.add_parser("check-export")
    parser.add_argument("folder")
    parser.add_argument("--weights")
    parser.add_argument("--tokens")
    parser.add_argument("--loss", type=float)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = top.parse_args()
    transformers.utils.logging.disable_progress_bar()
    {"train": train, "check-export": check_export}[options.command](options)


main()
