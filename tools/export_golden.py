#!/usr/bin/env python3
"""Small random decoders as transformers writes and computes them, for tests/unit/pretrained.c; and the other way round.

    tools/export_golden.py [NAME...]        writes tests/golden/decoders/NAME: a Hugging Face directory each, and
                                            expected.safetensors with tokens, logits, loss and the gradient of every parameter
    tools/export_golden.py --check FOLDER   opens each FOLDER/NAME, which exogym has written, with transformers, and compares with
                                            FOLDER/NAME/exogym.safetensors: tokens and the logits that exogym computed. Written by
                                            EXOGYM_DECODERS=FOLDER test_unit_pretrained

Needs torch, transformers and safetensors. Expected values are computed in double precision from the weights as they are in the
file, and rounded to float once.
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, OPTConfig, OPTForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

VOCABULARY, CONTEXT, BATCH, LENGTH = 101, 32, 2, 24
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "decoders"

# name -> class, config, type of the file, size of shards
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=CONTEXT)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, n_inner=48,
                                         bos_token_id=None, eos_token_id=None),
             torch.float32, None),
    "opt": (OPTForCausalLM, OPTConfig(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, hidden_size=32, word_embed_proj_dim=32,
                                      num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
                                      pad_token_id=None), torch.float32, "30KB"),
    # six heads: the slopes of a number that is no power of two
    "bloom": (BloomForCausalLM, BloomConfig(vocab_size=VOCABULARY, hidden_size=24, n_layer=2, n_head=6), torch.float16, None),
    "llama": (LlamaForCausalLM, LlamaConfig(**LLAMA), torch.float32, None),
    # heads wider than hidden_size / heads, biases, a tied head, scaled frequencies, of which some
    # are kept and some divided
    "llama3": (LlamaForCausalLM,
               LlamaConfig(**LLAMA, head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
                                                high_freq_factor=4.0, original_max_position_embeddings=16)),
               torch.bfloat16, "20KB"),
    "linear": (LlamaForCausalLM,
               LlamaConfig(**LLAMA | dict(hidden_size=16, intermediate_size=16, num_key_value_heads=1),
                           rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0)), torch.float32, None),
    # heads narrower than hidden_size / heads; a window that is as long as the longest text
    "mistral": (MistralForCausalLM, MistralConfig(**LLAMA, head_dim=6, sliding_window=CONTEXT), torch.bfloat16, None),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**LLAMA, tie_word_embeddings=True), torch.float32, None),
    # heads together wider than hidden_size, and a base of the frequencies that is not the default
    "qwen3": (Qwen3ForCausalLM,
              Qwen3Config(**LLAMA | dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=1), head_dim=16,
                          tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
              torch.float32, None),
    # odd sizes, narrow heads, biases, a head of its own
    "qwen3_bias": (Qwen3ForCausalLM,
                   Qwen3Config(**LLAMA | dict(hidden_size=29, intermediate_size=37, num_attention_heads=6,
                                              num_key_value_heads=3), head_dim=10, attention_bias=True), torch.bfloat16, "20KB"),
}


def open_model(folder, dtype, **more):
    key = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    return AutoModelForCausalLM.from_pretrained(folder, **{key: dtype}, **more)


def draw(model, generator):
    """Every parameter matters: norms and biases, too, are random."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        is_norm = p.dim() == 1 and name.endswith("weight")
        p.data = (1 + 0.2 * noise if is_norm else 0.2 * noise).to(p.dtype)


def expected(folder, tokens):
    model = open_model(folder, torch.float64, attn_implementation="eager").eval()
    out = model(input_ids=tokens, labels=tokens)
    out.loss.backward()
    values = {"logits": out.logits, "loss": out.loss.reshape(1)}
    for name, p in model.named_parameters():  # a tied head is there once
        values["gradient." + name] = p.grad
    values = {name: v.detach().float().contiguous() for name, v in values.items()}
    return values | {"tokens": tokens.to(torch.int32)}


def write(names):
    for number, (name, (cls, config, dtype, shards)) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        generator = torch.Generator().manual_seed(number)
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        model = cls(config)
        draw(model, generator)
        model = model.to(dtype)
        model.save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
        values = expected(folder, tokens)
        save_file(values, folder / "expected.safetensors", metadata={"transformers": transformers.__version__})
        for file in folder.iterdir():
            file.chmod(0o644)
        print(name, "loss", values["loss"].item(), "largest logit", values["logits"].abs().max().item(),
              sum(f.stat().st_size for f in folder.iterdir()), "bytes")


def check(folder):
    good = True
    for path in sorted(p for p in pathlib.Path(folder).iterdir() if (p / "config.json").exists()):
        ours = load_file(path / "exogym.safetensors")
        model, info = open_model(path, torch.float32, output_loading_info=True)
        strays = {key: sorted(names) for key, names in info.items() if names}
        with torch.no_grad():
            theirs = model.eval()(input_ids=ours["tokens"].long()).logits
        distance = ((ours["logits"] - theirs).abs() / (1 + theirs.abs())).max().item()
        stored = json.loads((path / "config.json").read_text())["torch_dtype"]
        fine = distance < 1e-4 and not strays
        good &= fine
        print(f"{'ok  ' if fine else 'BAD '}{path.name}: {type(model).__name__}, {stored}, largest relative distance of "
              f"{theirs.numel()} logits {distance:.2e}", strays or "")
    return good


if __name__ == "__main__":
    print("torch", torch.__version__, "transformers", transformers.__version__)
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        sys.exit(0 if check(sys.argv[2]) else 1)
    if not MODELS.keys() >= set(sys.argv[1:]):
        sys.exit(__doc__)
    write(sys.argv[1:])
