"""A whole step in fp16 and one in bf16 take at most twice the time of one in fp32 on the processor, side by side in turns, on two ranks."""
import json

from commands import call

MOST = 2.0
MODEL = {"plugin": "gpt_neox", "hidden_size": 128, "layers": 3, "heads": 4, "vocabulary": 8192, "seq_len": 256}


def test_step_in_16_bits(engine, tokens):
    config = engine.write_config("config.json", {"device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 8, "micro_batch": 1},
                                                 "learning_rate": {"base": 1e-3}})
    said = call([engine.strata, "compare", config, "--nproc", "2", "--rounds", "4", "--steps", "4", "--warmup-steps", "1",
                 "--vary", "precision.plugin=fp32,fp16,bf16", "--format", "json", "--quiet"], env=engine.environment, timeout=600)
    fp32, *narrow = json.loads(said)["variants"]
    for variant in narrow:
        ratio = variant["ratio"]
        print(f"{fp32['median_step_s']:.3f} s in fp32, {variant['median_step_s']:.3f} s in {variant['name']}; ratio {ratio['value']:.2f} ({ratio['low']:.2f} .. {ratio['high']:.2f})")
        assert ratio["value"] <= MOST, variant["name"]
