"""What Strata is compared with: transformers' GPT-NeoX and torch's AdamW, in one process on one thread.

Sample i is tokens [i*L, (i+1)*L + 1), i wrapping; step s takes samples [s*G, (s+1)*G) in order, cut into `accumulation`
equal micro-batches. Folders are Hugging Face's: config.json beside model.safetensors.
"""
import ctypes
import dataclasses
import json
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"  # a folder that is not there is an error and not a download

import numpy
import torch
import transformers

torch.set_num_threads(1)
# M_MMAP_MAX, M_TRIM_THRESHOLD: memory once taken is kept. Mapping the logits anew for every micro-batch took a third of
# the time.
ctypes.CDLL(None).mallopt(-4, 0)
ctypes.CDLL(None).mallopt(-1, 2**31 - 1)
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


@dataclasses.dataclass(frozen=True)
class Training:
    steps: int
    sequence: int = 128
    global_batch: int = 12
    learning_rate: float = 1e-3
    betas: tuple = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0


@dataclasses.dataclass
class Result:
    losses: list
    norms: list  # of the gradient before clipping
    weights: dict  # after the last step, by name
    first_gradients: dict = dataclasses.field(default_factory=dict)  # of the first step, before clipping, by name


def make_model(hidden, layers, heads, vocabulary, rotary_fraction=0.25, rotary_base=10000, **config):
    """Random weights, so spread that attention, and with it the rotary embedding, weighs in the loss; no bias is 0."""
    torch.manual_seed(1)
    rope = {"rope_type": "default", "rope_theta": rotary_base, "partial_rotary_factor": rotary_fraction}
    model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden,
        vocab_size=vocabulary, hidden_act="gelu", max_position_embeddings=2048, initializer_range=hidden**-0.5,
        rope_parameters=rope, tie_word_embeddings=False, attention_bias=True, bos_token_id=0, eos_token_id=0, **config))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(0.02 * torch.randn_like(parameter))
    return model


def make_tokens(path, vocabulary, count):
    """The same on every machine; over the whole vocabulary, small numbers often."""
    draws = numpy.random.RandomState(1).random_sample(count)
    (draws**4 * vocabulary).astype("<u2").tofile(path)


def use_published_keys(folder):
    """Turns what save_pretrained wrote into what Pythia's folders on the hub say: no rope_parameters but rotary_pct."""
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    rotary = config.pop("rope_parameters")
    config.update(rotary_pct=rotary["partial_rotary_factor"], rotary_emb_base=rotary["rope_theta"])
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def open_folder(folder):
    """The model in fp32, and what transformers found wrong in the folder: keys missing, left over, of another shape."""
    load = transformers.AutoModelForCausalLM.from_pretrained
    model, report = load(folder, dtype=torch.float32, output_loading_info=True)
    return model, {kind: sorted(map(str, names)) for kind, names in report.items() if names}


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def batch(tokens, sequence, first, count):
    samples = (len(tokens) - 1) // sequence
    starts = [i % samples * sequence for i in range(first, first + count)]
    rows = torch.from_numpy(numpy.stack([tokens[at:at + sequence + 1] for at in starts]).astype(numpy.int64))
    return rows[:, :-1], rows[:, 1:]


def mean_loss(model, inputs, targets):
    logits = model(input_ids=inputs, use_cache=False).logits
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def first_loss(folder, tokens, training):
    """The loss of the folder's weights over the first global batch."""
    with torch.no_grad():
        return mean_loss(open_folder(folder)[0], *batch(tokens, training.sequence, 0, training.global_batch)).item()


def train_with(optimizer, model, tokens, training, micro_batches=1):
    """Trains what the optimizer has of the model, in fp32."""
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    count, result = training.global_batch // micro_batches, Result([], [], {})
    for step in range(training.steps):
        loss = 0.0
        for micro_batch in range(micro_batches):
            first = step * training.global_batch + micro_batch * count
            part = mean_loss(model, *batch(tokens, training.sequence, first, count)) / micro_batches
            part.backward()
            loss += part.item()
        norm = torch.stack([parameter.grad.double().square().sum() for parameter in trained]).sum().sqrt()
        torch.nn.utils.clip_grads_with_norm_(trained, training.clip, norm)
        optimizer.step()
        optimizer.zero_grad()
        result.losses.append(loss)
        result.norms.append(norm.item())
    result.weights = weights_of(model)
    return result


def train(folder, tokens, training, accumulation=1, dtype=torch.float32):
    """In bf16 a copy of the weights computes; the weights, moments and sums of gradients over micro-batches are fp32."""
    model = open_folder(folder)[0]
    bf16 = dtype == torch.bfloat16
    copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()] if bf16 else None
    work = list(model.to(dtype).parameters())
    master = copies or work
    optimizer = torch.optim.AdamW(
        master, training.learning_rate, training.betas, training.epsilon, training.weight_decay)
    micro_batch = training.global_batch // accumulation
    result = Result([], [], {})
    for step in range(training.steps):
        losses = []
        for micro in range(accumulation):
            first = step * training.global_batch + micro * micro_batch
            loss = mean_loss(model, *batch(tokens, training.sequence, first, micro_batch))
            (loss / accumulation).backward()
            losses.append(loss.item())
            for target, source in zip(master, work) if bf16 else ():
                target.grad = source.grad.float() if target.grad is None else target.grad.add_(source.grad)
                source.grad = None
        if step == 0:
            result.first_gradients = {name: value.grad.clone() for (name, _), value in zip(model.named_parameters(), master)}
        # In fp64: torch's own fp32 sum over an embedding's millions of elements is off by up to 2e-4.
        norm = torch.stack([parameter.grad.double().square().sum() for parameter in master]).sum().sqrt()
        torch.nn.utils.clip_grads_with_norm_(master, training.clip, norm)
        optimizer.step()
        optimizer.zero_grad()
        if bf16:
            with torch.no_grad():
                torch._foreach_copy_(work, master)
        result.losses.append(sum(losses) / accumulation)
        result.norms.append(norm.item())
    result.weights = {name: value.detach() for (name, _), value in zip(model.named_parameters(), master)}
    return result
