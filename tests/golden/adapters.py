#!/usr/bin/env python3
"""Adapters as peft writes and computes them, for tests/unit/lora.c; and the other way round.

    tests/golden/adapters.py                writes tests/golden/adapters/NAME: an adapter of tests/golden/decoders/NAME each, and
                                            expected.safetensors with tokens and the logits of base and adapter
    tests/golden/adapters.py --check ADAPTER MERGED ANSWER
                                            opens an adapter that exogym has written, by peft and by transformers alone, and the
                                            merged model; ANSWER is what `exogym generate --json` wrote: its log-probabilities
                                            must be theirs

Needs torch, transformers, peft and safetensors (pip install torch transformers peft). Expected values are computed in double
precision from the tensors as they are in the files, and rounded to float once.
"""
import json
import pathlib
import sys

import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
BATCH, LENGTH = 2, 16

# name -> options of the adapter
ADAPTERS = {
    "gpt2": dict(r=3, lora_alpha=5, target_modules=["attn.c_attn", "mlp.c_proj"], fan_in_fan_out=True),
    "opt": dict(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj", "fc1"]),
    "bloom": dict(r=2, lora_alpha=4, target_modules=["query_key_value", "dense_h_to_4h"], use_rslora=True),
    "llama": dict(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"], layers_to_transform=[1]),
}


def write():
    for name, options in ADAPTERS.items():
        folder = HERE / "adapters" / name
        base = HERE / "decoders" / name
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
        generator = torch.Generator().manual_seed(len(name))
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.data.copy_(torch.randn(p.shape, generator=generator) * 0.2)
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = f"tests/golden/decoders/{name}"
        config["target_modules"] = sorted(config["target_modules"])
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64), folder).double().eval()
        tokens = torch.randint(0, again.config.vocab_size, (BATCH, LENGTH), generator=generator)
        with torch.no_grad():
            logits = again(input_ids=tokens).logits
        save_file({"tokens": tokens.int(), "logits": logits.float().contiguous()}, folder / "expected.safetensors")
        print(name, sum(p.numel() for key, p in again.named_parameters() if "lora_" in key), "parameters of the adapter")


def compare(name, model, prompt, answer):
    """The log-probabilities of the answer's tokens."""
    tokens, count = torch.tensor([prompt + answer["tokens"]]), len(answer["tokens"])
    with torch.no_grad():
        logits = model.eval()(input_ids=tokens).logits[0]
    theirs = torch.log_softmax(logits, -1)[:-1].gather(1, tokens[0, 1:, None])[-count:, 0]
    distance = (theirs - torch.tensor(answer["plain_log_probs"])).abs().max().item()
    fine = distance < 1e-4
    print(f"{'ok  ' if fine else 'BAD '}{name}: {type(model).__name__}, {count} log-probabilities, off by {distance:.2e}")
    return fine


def check(adapter, merged, answer):
    said = json.loads(pathlib.Path(answer).read_text())
    prompt = AutoTokenizer.from_pretrained(adapter)(said["prompt"])["input_ids"]
    text = prompt, said["samples"][0]
    good = compare("peft", AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32), *text)
    good &= compare("transformers", AutoModelForCausalLM.from_pretrained(adapter, dtype=torch.float32), *text)
    good &= compare("merged", AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32), *text)
    base = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())["base_model_name_or_path"]
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    print("the base alone, which has to be another model:")
    return good & (not compare("base", plain, *text))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 5:
        sys.exit(0 if check(*sys.argv[2:]) else 1)
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    write()
