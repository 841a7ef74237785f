#!/usr/bin/python3
"""Generation by transformers with a GPT-2 of random weights. All prompts have the same length, and
all sequences as many new tokens. Prints tokens a second, as bench_generate does.

    bench/peers/generate.py [--size base] [--batch 1] [--prompt 32] [--new 128] [--rounds 5]
                            [--threads 2] [--compile]

--compile uses the static cache and torch.compile, as the documentation of transformers recommends
for speed. The time of compilation does not count.
"""
import argparse
import statistics
import time

import torch
import transformers

SIZES = {"small": (4, 4, 128), "sbase": (8, 8, 512), "base": (12, 12, 768), "medium": (24, 16, 1024)}


def main():
    parser = argparse.ArgumentParser(description="Generation by transformers.")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layers, heads, width = SIZES[args.size]
    config = transformers.GPT2Config(vocab_size=50304, n_positions=1024, n_embd=width, n_layer=layers, n_head=heads,
                                     bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).to(args.device).eval()
    prompts = torch.randint(0, 50304, (args.batch, args.prompt), device=args.device)
    options = dict(do_sample=True, top_k=50, temperature=1.0, max_new_tokens=args.new, min_new_tokens=args.new,
                   attention_mask=torch.ones_like(prompts), pad_token_id=0)
    if args.compile:
        options["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward, dynamic=False)
    times = []
    with torch.inference_mode():
        for i in range(args.rounds + 1):
            before = time.perf_counter()
            out = model.generate(prompts, **options)
            if i > 0:
                times.append(time.perf_counter() - before)
            assert out.shape == (args.batch, args.prompt + args.new)
    print("transformers version=%s torch=%s size=%s batch=%d threads=%d compile=%d tokens_per_second=%.1f" % (
        transformers.__version__, torch.__version__, args.size, args.batch, args.threads, args.compile,
        args.batch * args.new / statistics.median(times)))


main()
