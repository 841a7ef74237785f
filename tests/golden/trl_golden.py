#!/usr/bin/env python3
"""Writes trl_golden.h: losses, advantages and gradients of TRL on fixed numbers, for tests/unit/learning.c.

Methods of TRL's trainers run with a stand-in for the trainer, whose model gives the fixed log-probabilities. Where a method does more than
one can call, such as to generate texts, the lines of its source that compute are run, found by their first and last words.

    python3 -m venv /tmp/trl && /tmp/trl/bin/pip install 'trl==1.16.*'
    /tmp/trl/bin/pip install --no-deps --target /tmp/trl_ppo 'trl==1.12.*'      the last release that has PPO
    /tmp/trl/bin/python tests/golden/trl_golden.py /tmp/trl_ppo [OUTPUT]
"""
import collections
import importlib.metadata
import inspect
import os
import subprocess
import sys
import textwrap
import types
from unittest import mock

import torch

torch.set_default_dtype(torch.float64)
N, T, V = 6, 5, 4
LENGTHS = [5, 3, 4, 5, 1, 2]
GROUP = 3


def numbers(*shape, scale=1.0):
    """Numbers of few digits, so that fp32 and fp64 agree about the inputs."""
    return (torch.randn(*shape, generator=generator) * scale * 64).round() / 64


def block(function, first, last, names, more=0):
    """Runs the lines of the function from the one with `first` to the next one with `last`, and `more` lines, on these names."""
    lines = inspect.getsource(function).split("\n")
    start = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i in range(start, len(lines)) if last in lines[i])
    scope = {**vars(inspect.getmodule(function)), **names}
    exec(textwrap.dedent("\n".join(lines[start:end + 1 + more])), scope)
    return scope


# --- Inputs ------------------------------------------------------------------------------------------------------------------------------

generator = torch.Generator().manual_seed(5)
logits = numbers(N, T, V)
tokens = torch.randint(0, V, (N, T), generator=generator)
completion = torch.tensor([[float(t < length) for t in range(T)] for length in LENGTHS])
tool = torch.ones(N, T)
tool[0, 2] = tool[3, 1] = tool[3, 2] = 0  # the output of a tool
mask = completion * tool
scores = numbers(N)
values = numbers(N, T)
log_probs = torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]


def near(scale):
    return ((log_probs + numbers(N, T, scale=scale)) * 1024).round() / 1024


old, sampled, ref = near(0.3), near(0.5), near(0.4)
out = ["/* Written by tests/golden/trl_golden.py; not to be edited. Read by tests/unit/learning.c. */", "#ifndef EXO_TEST_TRL_GOLDEN_H",
       "#define EXO_TEST_TRL_GOLDEN_H", "", "#include <stddef.h>", "#include <stdint.h>", ""]


def texts(values):
    return ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in values)


def floats(name, tensor):
    lines = textwrap.wrap(texts(tensor.detach().flatten().tolist()), 96)
    body = "\n    ".join(lines)
    out.append(f"static const float golden_{name}[] = {{\n    {body}}};")


def literal(tensor):
    return "{" + texts(tensor.detach().flatten().tolist()) + "}"


def write_inputs():
    out.append(f"enum {{\n    GOLDEN_N = {N}, /* sequences, of which {GROUP} are a group */\n    GOLDEN_T = {T}, /* rows of each */\n"
               f"    GOLDEN_V = {V},\n    GOLDEN_GROUP = {GROUP}\n}};")
    for name in ("logits", "mask", "scores", "values", "old", "sampled", "ref"):
        floats(name, globals()[name])
    out.append("static const int32_t golden_tokens[] = {" + ", ".join(map(str, tokens.flatten().tolist())) + "};")


# --- GRPO --------------------------------------------------------------------------------------------------------------------------------

def trainer(**more):
    """What _compute_loss of a trainer reads of it, besides `more`."""
    accelerator = mock.MagicMock(num_processes=1, sync_gradients=False)
    accelerator.gather = accelerator.gather_for_metrics = lambda x: x
    accelerator.reduce = lambda x, reduction: x
    metrics = {"train": collections.defaultdict(list), "eval": collections.defaultdict(list)}
    made = types.SimpleNamespace(
        accelerator=accelerator, model=types.SimpleNamespace(training=True), _metrics=metrics, aux_loss_enabled=False, use_vllm=False,
        current_gradient_accumulation_steps=1, top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token",
        use_adaptive_entropy=False, _entropy_bonus_enabled=False, entropy_coef=0.0, max_completion_length=T, beta=0.0,
        vllm_importance_sampling_correction=False, args=types.SimpleNamespace(delta=None, use_bias_correction_kl=False))
    for key, value in more.items():
        setattr(made, key, value)
    return made


def outputs_of(x):
    log_p = torch.log_softmax(x, -1)
    return log_p.gather(-1, tokens[..., None])[..., 0], -(log_p.exp() * log_p).sum(-1), None


def loss_of(trainer_class, stand_in, inputs):
    """The loss and its gradient by the logits."""
    x = logits.clone().requires_grad_()
    stand_in._get_per_token_logps_and_entropies = lambda *a, **k: outputs_of(x)
    prompt = torch.zeros(N, 1, dtype=torch.long)
    common = {"prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt), "completion_ids": tokens, "completion_mask": completion}
    loss = trainer_class._compute_loss(stand_in, None, {**common, **inputs})
    loss.backward()
    return loss, x.grad


def group_advantages(grpo, scale):
    stand_in = types.SimpleNamespace(multi_objective_aggregation="sum_then_normalize", scale_rewards=scale, reward_weights=torch.ones(1))
    return block(grpo._generate_and_score_completions, "if self.multi_objective_aggregation ==", "# Slice to keep only",
                 {"self": stand_in, "rewards_per_func": scores[:, None], "device": "cpu", "num_generations": GROUP,
                  "unscorable_mask": torch.zeros(N, dtype=torch.bool)})["advantages"]


def importance(grpo, mode, low, high):
    stand_in = types.SimpleNamespace(vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_min=low,
                                     vllm_importance_sampling_clip_max=high)
    scope = block(grpo._generate_and_score_completions, "per_token_logps_diff = (old_per_token_logps -", "Possible values are",
                  {"self": stand_in, "mask": mask, "old_per_token_logps": old, "sampling_per_token_logps": sampled}, 1)
    return scope["vllm_importance_sampling_ratio"].expand(N, T) * mask


def write_grpo():
    from trl import GRPOTrainer as grpo
    for scale, name in (("group", "grpo"), ("batch", "grpo_batch"), ("none", "mean")):
        floats("advantages_" + name, group_advantages(grpo, scale))
    advantages = group_advantages(grpo, "group")
    out.append("static const struct golden_importance {\n    const char *correction;\n    double min, max;\n"
               "    float weights[GOLDEN_N * GOLDEN_T];\n} golden_importance[] = {")
    modes = [("token_truncate", "truncated_token", None, 1.25), ("sequence_truncate", "truncated_sequence", 0.5, 1.5),
             ("token_mask", "masked_token", 0.75, 1.5), ("sequence_mask", "masked_sequence", 0.25, 2.0)]
    for mode, name, low, high in modes:
        out.append(f'    {{"{name}", {low or 0.0}, {high}, {literal(importance(grpo, mode, low, high))}}},')
    out.append("};")
    out.append("static const struct golden_loss {\n    const char *reduction;\n    double low, high, dual, kl_coef, entropy;\n"
               "    const char *correction; /* NULL: none */\n    double max;\n    float loss, gradient[GOLDEN_N * GOLDEN_T * GOLDEN_V];\n"
               "} golden_grpo[] = {")
    for kind, ours, delta, beta, entropy, correction in (
            ("grpo", "sequences", None, 0.0, 0.0, None), ("bnpo", "tokens", None, 0.04, 0.0, None),
            ("dr_grpo", "constant", 1.5, 0.1, 0.0, None), ("bnpo", "tokens", 1.4, 0.0, 0.01, None),
            ("grpo", "sequences", None, 0.04, 0.02, modes[0]), ("dr_grpo", "constant", None, 0.0, 0.0, modes[3])):
        stand_in = trainer(loss_type=kind, epsilon_low=0.2, epsilon_high=0.28, beta=beta, entropy_coef=entropy,
                           _entropy_bonus_enabled=entropy != 0, use_vllm=correction is not None,
                           vllm_importance_sampling_correction=correction is not None,
                           args=types.SimpleNamespace(delta=delta, use_bias_correction_kl=False))
        inputs = {"tool_mask": tool, "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": ref,
                  "sampling_per_token_logps": sampled}
        if correction:
            inputs["importance_sampling_ratio"] = importance(grpo, correction[0], correction[2], correction[3])
        loss, gradient = loss_of(grpo, stand_in, inputs)
        ours_of = f'"{correction[1]}", {correction[3]}' if correction else "NULL, 0"
        out.append(f'    {{"{ours}", 0.2, 0.28, {delta or 0.0}, {beta}, {entropy}, {ours_of}, {loss.item():.9g}f, {literal(gradient)}}},')
    out.append("};")


# --- RLOO, DPO ---------------------------------------------------------------------------------------------------------------------------

def write_rloo():
    from trl import RLOOTrainer as rloo
    stand_in = types.SimpleNamespace(beta=0.05, normalize_advantages=False)
    scope = block(rloo._generate_and_score_completions, "# Include the KL penalty", "advantages = torch.nan_to_num",
                  {"self": stand_in, "rewards": scores.clone(), "old_per_token_logps": old, "ref_per_token_logps": ref,
                   "completion_mask": mask, "gather": lambda x: x, "num_generations": GROUP})
    floats("rloo_rewards", scope["rewards"])
    floats("advantages_rloo", scope["advantages"])
    stand_in = trainer(epsilon_low=0.2, epsilon_high=0.2)
    loss, gradient = loss_of(rloo, stand_in, {"completion_mask": mask, "advantages": scope["advantages"], "old_logps": (old * mask).sum(1)})
    out.append(f"static const float golden_rloo_loss = {loss.item():.9g}f;")
    floats("rloo_gradient", gradient)


def dpo_loss(kind, beta, smoothing, rows):
    """The loss of pairs of the sequences `rows`, the chosen ones first, and its gradient by all logits."""
    from trl import DPOTrainer as dpo
    x = logits.clone().requires_grad_()
    first = torch.zeros(len(rows), 1)
    masks = torch.cat([first, mask[rows]], 1)

    class Outputs(types.SimpleNamespace):
        pass

    def model(**inputs):
        picked, entropy, _ = outputs_of(x)
        masked = (picked * mask)[rows]
        return Outputs(log_probs=masked, entropy=entropy[rows], logits=x[rows], correct=torch.ones(len(rows), T), aux_loss=None,
                       log_sum_sq_probs=masked, token_accuracy=masked, num_tokens=masked)

    half = len(rows) // 2
    refs = (ref * mask).sum(1)[rows]
    stand_in = trainer(ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl", loss_types=[kind], loss_weights=[1.0],
                       beta=beta, label_smoothing=smoothing, use_weighting=False, _total_train_tokens=0)
    source = textwrap.dedent(inspect.getsource(dpo._compute_loss)).split("\n")
    end = next(i for i, line in enumerate(source) if "# Log the metrics" in line)  # what follows does not change the loss
    scope = dict(vars(inspect.getmodule(dpo)))
    exec("\n".join(source[:end] + ["    return loss"]), scope)
    inputs = {"input_ids": torch.cat([first.long(), tokens[rows]], 1), "completion_mask": masks, "ref_chosen_logps": refs[:half],
              "ref_rejected_logps": refs[half:]}
    loss = scope["_compute_loss"](stand_in, model, inputs, False)
    loss.backward()
    return loss, x.grad


def write_dpo():
    """Pairs are the sequences (0, 1), (2, 3), (4, 5). For one pair the loss `aot` is the sigmoid one with label smoothing."""
    out.append("static const struct golden_dpo {\n    size_t pairs;\n    double beta, smoothing;\n"
               "    float loss, gradient[GOLDEN_N * GOLDEN_T * GOLDEN_V];\n} golden_dpo[] = {")
    for kind, beta, smoothing, rows in (("sigmoid", 0.1, 0.0, [0, 2, 4, 1, 3, 5]), ("sigmoid", 2.0, 0.0, [0, 2, 4, 1, 3, 5]),
                                        ("aot", 0.5, 0.1, [0, 1])):
        loss, gradient = dpo_loss(kind, beta, smoothing, rows)
        out.append(f"    {{{len(rows) // 2}, {beta}, {smoothing}, {loss.item():.9g}f, {literal(gradient)}}},")
    out.append("};")


# --- PPO, in a process of the release that has it ----------------------------------------------------------------------------------------

def write_ppo():
    from trl.experimental.ppo import ppo_trainer
    ppo = ppo_trainer.PPOTrainer
    lengths = torch.full((N,), T - 1)
    out.append("static const struct golden_gae {\n    double kl_coef, gamma, lambda;\n    const char *kl;\n"
               "    float rewards[GOLDEN_N * GOLDEN_T], returns[GOLDEN_N * GOLDEN_T], whitened[GOLDEN_N * GOLDEN_T];\n} golden_gae[] = {")
    for kl_coef, gamma, lam, kl in ((0.05, 1.0, 0.95, "k1"), (0.2, 0.9, 0.8, "k3")):
        args = types.SimpleNamespace(kl_estimator=kl, kl_coef=kl_coef, whiten_rewards=False, gamma=gamma, lam=lam)
        none = torch.zeros(N, T, dtype=torch.bool)
        scope = block(ppo.train, "# 4. compute rewards", "advantages = torch.masked_fill(advantages, padding_mask, 0)",
                      {"args": args, "ref_logprobs": ref, "logprobs": old, "scores": scores, "sequence_lengths_p1": lengths + 1,
                       "sequence_lengths": lengths, "padding_mask": none, "padding_mask_p1": none, "values": values, "responses": tokens})
        out.append(f'    {{{kl_coef}, {gamma}, {lam}, "{kl}", {literal(scope["rewards"])}, {literal(scope["returns"])}, '
                   f'{literal(scope["advantages"])}}},')
    out.append("};")
    padding = mask == 0
    floats("whitened", ppo_trainer.masked_whiten(values, mask) * mask)
    floats("whitened_in_place", ppo_trainer.masked_whiten(values, mask, shift_mean=False) * mask)
    x, v = logits.clone().requires_grad_(), (values + numbers(N, T, scale=0.5)).requires_grad_()
    advantages, returns = numbers(N, T), numbers(N, T)
    args = types.SimpleNamespace(cliprange=0.2, cliprange_value=0.25, vf_coef=0.1)
    scope = block(ppo.train, "vpredclipped = torch.clamp(", "loss = pg_loss + args.vf_coef * vf_loss",
                  {"args": args, "vpred": v, "mb_values": values, "mb_return": returns, "mb_advantage": advantages, "mb_logprobs": old,
                   "padding_mask": padding, "padding_mask_p1": padding, "micro_batch_inds": slice(None), "new_logprobs": outputs_of(x)[0]})
    scope["loss"].backward()
    for name, tensor in (("ppo_values", v), ("ppo_advantages", advantages), ("ppo_returns", returns), ("ppo_logits_gradient", x.grad),
                         ("ppo_values_gradient", v.grad)):
        floats(name, tensor)
    for name in ("pg_loss", "vf_loss", "loss"):
        out.append(f"static const float golden_ppo_{name} = {scope[name].item():.9g}f;")


if sys.argv[1] == "--ppo":
    del out[:]
    write_ppo()
    print("\n".join(out))
    sys.exit()
assert importlib.metadata.version("trl").startswith("1.16."), "pip install 'trl==1.16.*'"
write_inputs()
write_grpo()
write_rloo()
write_dpo()
of_ppo = subprocess.run([sys.executable, __file__, "--ppo"], env={**os.environ, "PYTHONPATH": sys.argv[1]}, check=True, stdout=subprocess.PIPE)
out += of_ppo.stdout.decode().rstrip("\n").split("\n") + ["", "#endif"]
path = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "trl_golden.h")
with open(path, "w") as file:
    file.write("\n".join(out) + "\n")
