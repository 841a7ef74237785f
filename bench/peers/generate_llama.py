#!/usr/bin/python3
"""Generation by llama.cpp with a GPT-2 of random weights. All prompts have the same length, and all
sequences as many new tokens. Prints the same line as bench_generate.

    bench/peers/generate_llama.py [--size base] [--weights fp32|int8|int4] [--batch 1] [--prompt 32]
                                  [--new 128] [--rounds 5] [--threads 2]

gguf writes the fp32 file; llama.cpp's own quantizer makes int8 (Q8_0) and int4 (Q4_0) of it. Each
step is one batched decode of all sequences, and each sequence has its own cache. llama.cpp's
sampler draws tokens by the same rule as bench_generate. The script makes model files once, in
build/peers/llama/models.
"""
import argparse
import ctypes
import os
import statistics
import time

import gguf
import llama_cpp as llama
import numpy as np

SIZES = {"small": (4, 4, 128), "sbase": (8, 8, 512), "base": (12, 12, 768), "medium": (24, 16, 1024)}
VOCABULARY, CONTEXT = 50304, 1024
TYPES = {"int8": llama.LLAMA_FTYPE_MOSTLY_Q8_0, "int4": llama.LLAMA_FTYPE_MOSTLY_Q4_0}
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/peers/llama/models")


@llama.llama_log_callback
def quiet(level, text, data):
    pass


def write_fp32(path, size):
    layers, heads, width = SIZES[size]
    random = np.random.default_rng(1)
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(width)
    out.add_feed_forward_length(4 * width)
    out.add_block_count(layers)
    out.add_head_count(heads)
    out.add_layer_norm_eps(1e-5)
    out.add_vocab_size(VOCABULARY)
    out.add_tokenizer_model("no_vocab")
    out.add_file_type(gguf.LlamaFileType.ALL_F32)

    def matrix(name, rows, columns):
        out.add_tensor(name + ".weight", (0.02 * random.standard_normal((rows, columns), np.float32)))

    def product(name, outputs, inputs):
        matrix(name, outputs, inputs)
        out.add_tensor(name + ".bias", np.zeros(outputs, np.float32))

    def norm(name):
        out.add_tensor(name + ".weight", np.ones(width, np.float32))
        out.add_tensor(name + ".bias", np.zeros(width, np.float32))

    matrix("token_embd", VOCABULARY, width)  # also the output head, since there is no "output"
    matrix("position_embd", CONTEXT, width)
    for i in range(layers):
        norm(f"blk.{i}.attn_norm")
        product(f"blk.{i}.attn_qkv", 3 * width, width)
        product(f"blk.{i}.attn_output", width, width)
        norm(f"blk.{i}.ffn_norm")
        product(f"blk.{i}.ffn_up", 4 * width, width)
        product(f"blk.{i}.ffn_down", width, 4 * width)
    norm("output_norm")
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def find_file(size, weights):
    path = os.path.join(FOLDER, f"{size}-{weights}.gguf")
    if os.path.exists(path):
        return path
    os.makedirs(FOLDER, exist_ok=True)
    partial = f"{path}.{os.getpid()}"
    if weights == "fp32":
        write_fp32(partial, size)
    else:
        params = llama.llama_model_quantize_default_params()
        params.ftype = TYPES[weights]
        if llama.llama_model_quantize(find_file(size, "fp32").encode(), partial.encode(), ctypes.byref(params)) != 0:
            raise SystemExit(f"generate_llama.py: llama.cpp could not quantize to {weights}")
    os.rename(partial, path)
    return path


def open_model(args):
    params = llama.llama_model_default_params()
    params.use_mmap = False  # lets llama.cpp convert weights to the layout of this processor
    model = llama.llama_model_load_from_file(find_file(args.size, args.weights).encode(), params)
    if not model:
        raise SystemExit("generate_llama.py: llama.cpp could not load the model")
    params = llama.llama_context_default_params()
    params.n_ctx = args.batch * -(-(args.prompt + args.new) // 256) * 256
    params.n_batch = params.n_ubatch = max(512, args.batch * args.prompt)
    params.n_seq_max = args.batch
    params.n_threads = params.n_threads_batch = args.threads
    params.kv_unified = False  # sequences share no cache
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("generate_llama.py: llama.cpp could not make a context")
    return model, context


def make_samplers(count, seed):
    samplers = []
    for i in range(count):
        chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_top_k(50))
        llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_temp(1.0))
        llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_dist(seed * count + i))
        samplers.append(chain)
    return samplers


def decode(context, batch):
    if llama.llama_decode(context, batch) != 0:
        raise SystemExit("generate_llama.py: llama_decode failed")


def generate(context, batch, prompts, new, samplers):
    """Generates all sequences. Returns the seconds of all steps and of the first."""
    count, length = prompts.shape
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    before = time.perf_counter()
    batch.n_tokens = count * length
    for s in range(count):
        for i in range(length):
            k = s * length + i
            batch.token[k], batch.pos[k], batch.n_seq_id[k], batch.logits[k] = int(prompts[s, i]), i, 1, i == length - 1
            batch.seq_id[k][0] = s
    decode(context, batch)
    tokens = [llama.llama_sampler_sample(samplers[s], context, s * length + length - 1) for s in range(count)]
    first = time.perf_counter() - before
    batch.n_tokens = count
    for position in range(length, length + new - 1):
        for s in range(count):
            batch.token[s], batch.pos[s], batch.n_seq_id[s], batch.logits[s] = tokens[s], position, 1, True
            batch.seq_id[s][0] = s
        decode(context, batch)
        tokens = [llama.llama_sampler_sample(samplers[s], context, s) for s in range(count)]
    return time.perf_counter() - before, first


def main():
    parser = argparse.ArgumentParser(description="Generation by llama.cpp.")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--weights", choices=("fp32", "int8", "int4"), default="fp32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    model, context = open_model(args)
    # Without the position embeddings, of which a step looks up few rows.
    weights = llama.llama_model_size(model) - 4 * CONTEXT * SIZES[args.size][2]
    batch = llama.llama_batch_init(args.batch * args.prompt, 0, 1)
    prompts = np.random.default_rng(1).integers(0, VOCABULARY, (args.batch, args.prompt))
    times, firsts = [], []
    for i in range(args.rounds + 1):
        samplers = make_samplers(args.batch, i)
        total, first = generate(context, batch, prompts, args.new, samplers)
        for sampler in samplers:
            llama.llama_sampler_free(sampler)
        if i > 0:
            times.append(total)
            firsts.append(first)
    total, first = statistics.median(times), statistics.median(firsts)
    print("llama.cpp binding=%s size=%s weights=%s batch=%d threads=%d tokens_per_second=%.1f prefill_ms=%.1f step_ms=%.2f weights_MiB=%.0f "
          "weights_GB_per_second=%.1f" % (
              llama.__version__, args.size, args.weights, args.batch, args.threads, args.batch * args.new / total, 1e3 * first,
              1e3 * (total - first) / (args.new - 1), weights / 2**20, weights * (args.new - 1) / (total - first) * 1e-9))
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)


main()
