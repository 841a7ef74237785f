#!/usr/bin/env python3
"""Writes updates_golden.h: whole updates of policies and of language models, by PyTorch in double precision.

    tests/golden/updates.py > tests/golden/updates_golden.h          needs PyTorch

tests/unit/updates_golden.c holds actors/ppo_update.h and experience/learner.h against it: from the same weights and experience, the weights
after 1 and 3 updates. Weights and experience are simple functions of their index, which both files have. Gradients are autograd's, the
optimizers torch.optim's; nothing here is translated from exogym but Philox, which gives the orders of the samples.
"""
import math

import torch

UPDATES = 3
torch.set_default_dtype(torch.float64)


def number(i, salt):
    """In [-0.5, 0.5); the same in C."""
    return float(torch.tensor(((i * 7919 + salt * 104729) % 2003) / 2003 - 0.5, dtype=torch.float32))


def numbers(count, salt, scale=1.0, shift=0.0):
    f = torch.float32
    return (torch.tensor([number(i, salt) for i in range(count)], dtype=f) * torch.tensor(scale, dtype=f) + torch.tensor(shift, dtype=f)).double()


def permutation(seed, node, step, n):
    """exo_rng_permutation of the stream (seed, SHUFFLE, node, step): Philox4x32-10 (Salmon et al., 2011), Fisher-Yates, Lemire's bound."""
    words = []

    def word():
        if not words:
            c, k = [word.block, 2 << 24 | node, step & 0xffffffff, step >> 32], [seed & 0xffffffff, seed >> 32]
            word.block += 1
            for _ in range(10):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
                k = [k[0] + 0x9E3779B9 & 0xffffffff, k[1] + 0xBB67AE85 & 0xffffffff]
            words.extend(c)
        return words.pop(0)

    word.block = 0
    order = list(range(n))
    for i in range(n, 1, -1):
        product = word() * i
        while product & 0xffffffff < (1 << 32) % i:
            product = word() * i
        j = product >> 32
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def normalized(a, eps_inside=None):
    """By the deviation with divisor n - 1."""
    if len(a) < 2:
        return a
    if eps_inside is None:
        return (a - a.mean()) / (a.std() + 1e-8)
    return (a - a.mean()) / torch.sqrt(a.var() + eps_inside)


def clipped_terms(log_prob, old, a, low, high, dual=0):
    ratio = (log_prob - old).exp()
    terms = torch.max(-ratio * a, -ratio.clamp(1 - low, 1 + high) * a)
    return torch.where(a < 0, torch.min(terms, -dual * a), terms) if dual else terms


def value_terms(v, old, target, clip):
    squares = (v - target) ** 2
    return 0.5 * (torch.max(squares, (old + (v - old).clamp(-clip, clip) - target) ** 2) if clip else squares)


def take_step(loss, parameters, optimizer, max_norm):
    """Returns the norm of the gradient before it is clipped."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for p, g in zip(parameters, gradients):
        p.grad = torch.zeros_like(p) if g is None else g
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm or math.inf)
    optimizer.step()
    return float(norm)


def sampled(parameters, every):
    return torch.cat([p.detach().reshape(-1) for p in parameters])[::every].tolist()


# --- Policies of environments --------------------------------------------------------------------

T, N, ITEMS, OBSERVATION, UNITS, ORDER_SEED, POLICY_EVERY = 8, 2, 2, 3, 16, 77, 13
POLICIES = [
    dict(outputs=3, box=0, players=1, clip=0.2, value_clip=0.3, entropy=0.02, last_entropy=0, value=0.5, epochs=3, minibatches=3, updates=5,
         lr=2e-3, gamma=0.97, lam=0.9, max_norm=0.5),
    dict(outputs=2, box=1, players=1, clip=0.1, value_clip=0, entropy=0.01, last_entropy=0.03, value=1, epochs=2, minibatches=5, updates=9,
         lr=3e-3, gamma=0.9, lam=0.5, max_norm=0),
    dict(outputs=3, box=0, players=2, clip=0.3, value_clip=0.1, entropy=0, last_entropy=0, value=0.3, epochs=2, minibatches=1, updates=4,
         lr=5e-3, gamma=1, lam=0.95, max_norm=0.1),
]


class Policy:
    def __init__(self, outputs, box):
        trunk = [(OBSERVATION, UNITS), (UNITS,), (UNITS, UNITS), (UNITS,)]
        shapes = trunk * 2 + [(outputs, UNITS), (outputs,), (UNITS,), (1,)] + ([(outputs,)] if box else [])
        flat = numbers(sum(math.prod(s) for s in shapes), 0)
        self.box, self.parameters = box, []
        for s in shapes:
            self.parameters.append(flat[:math.prod(s)].reshape(s).clone().requires_grad_())
            flat = flat[math.prod(s):]

    def __call__(self, x, action):
        """Log-probability of the actions, entropy, value."""
        p = self.parameters
        actor = ((x @ p[0] + p[1]).tanh() @ p[2] + p[3]).tanh() @ p[8].T + p[9]
        value = ((x @ p[4] + p[5]).tanh() @ p[6] + p[7]).tanh() @ p[10] + p[11]
        if self.box:
            d = torch.distributions.Normal(actor, p[12].exp())
            return d.log_prob(action).sum(-1), d.entropy().sum(-1), value
        d = torch.distributions.Categorical(logits=actor)
        return d.log_prob(action), d.entropy(), value


def rollout(case, u, k):
    salt, n = 100 * u + 10 * k, T * N
    done = [{4: 1, 7: 2}.get((i + 3 * u + 5 * k) % 9, 0) for i in range(n)]
    final = numbers(n, salt + 5)
    return dict(x=numbers(n * OBSERVATION, salt + 1, 2).reshape(n, -1), log_prob=numbers(n, salt + 2, 1, -1.25), value=numbers(n, salt + 3),
                reward=numbers(n * case["players"], salt + 4, 2).reshape(n, -1), done=done, bootstrap=numbers(N, salt + 6),
                final=[float(final[i]) if done[i] == 2 else 0.0 for i in range(n)],
                action=numbers(n * case["outputs"], salt + 7, 2).reshape(n, -1) if case["box"] else torch.tensor([(5 * i + u + k) % 3 for i in range(n)]),
                player=[(3 * i + u) // 2 % case["players"] for i in range(n + N)])


def advantages(r, case):
    """By the list of each player's turns in each episode."""
    a = torch.zeros(T * N)
    for e in range(N):
        begin = 0
        while begin < T:
            end = next((t for t in range(begin, T) if r["done"][t * N + e]), T - 1)
            done = r["done"][end * N + e]
            for p in range(case["players"]):
                turns = [t for t in range(begin, end + 1) if r["player"][t * N + e] == p]
                for k, t in reversed(list(enumerate(turns))):
                    following = turns[k + 1] if k + 1 < len(turns) else None
                    reward = sum(r["reward"][s * N + e, p] for s in range(t, following if following is not None else end + 1))
                    if following is not None:
                        after, tail = r["value"][following * N + e], a[following * N + e]
                    elif done == 1:
                        after, tail = 0, 0
                    elif done == 2 and case["players"] == 1:
                        after, tail = r["final"][end * N + e], 0
                    elif done == 0 and r["player"][T * N + e] == p:
                        after, tail = r["bootstrap"][e], 0
                    else:
                        continue  # the next turn is not known
                    a[t * N + e] = reward + case["gamma"] * after - r["value"][t * N + e] + case["gamma"] * case["lam"] * tail
            begin = end + 1
    return a


def policy_updates(case):
    policy = Policy(case["outputs"], case["box"])
    adam, results, losses = torch.optim.Adam(policy.parameters, eps=1e-5), [], []
    for u in range(UPDATES):
        rs = [rollout(case, u, k) for k in range(ITEMS)]
        x, action, log_prob, value = (torch.cat([r[k] for r in rs]) for k in ("x", "action", "log_prob", "value"))
        a = torch.cat([advantages(r, case) for r in rs])
        target, n, left, total = a + value, len(a), 1 - u / case["updates"], 0.0
        entropy = case["last_entropy"] + (case["entropy"] - case["last_entropy"]) * left
        adam.param_groups[0]["lr"] = case["lr"] * left
        for epoch in range(case["epochs"]):
            order = permutation(ORDER_SEED, 0, u * case["epochs"] + epoch, n)
            for m in range(case["minibatches"]):
                i = torch.tensor(order[n * m // case["minibatches"]:n * (m + 1) // case["minibatches"]])
                p, h, v = policy(x[i], action[i])
                terms = (clipped_terms(p, log_prob[i], normalized(a[i]), case["clip"], case["clip"]) - entropy * h +
                         case["value"] * value_terms(v, value[i], target[i], case["value_clip"]))
                take_step(terms.mean(), policy.parameters, adam, case["max_norm"])
                total += terms.sum().item()
        losses.append(total / (n * case["epochs"]))
        if u in (0, UPDATES - 1):
            results.append(sampled(policy.parameters, POLICY_EVERY))
    return losses, results


# --- Language models -----------------------------------------------------------------------------

VOCABULARY, CONTEXT, WIDTH, HEADS, SEED, BATCH, ANSWERS, MODEL_EVERY = 7, 12, 16, 2, 5, 4, 2, 61
ADAMW = dict(lr=3e-3, eps=1e-5, weight_decay=0.1)
DEFAULTS = dict(clip=0.2, dual_clip=0, kl_coef=0, kl="k1", kl_target=0, kl_horizon=0, kl_loss=0, kl_loss_kind="k3", score_clip=0, gamma=1,
                entropy=0, value=0.1, value_clip=0.2, correction="none", weight_min=0, weight_max=0, rho_bar=0, c_bar=0, target_kl=0, length=0)
DEFAULTS["lambda"] = 0.95
LEARNERS = [
    dict(name="ppo", critic=0, temperature=0.7, filtered=0, turns=0, epochs=2, minibatches=2, slices=1, max_norm=1,
         options=dict(kl_coef=0.1, kl_target=0.3, gamma=0.9, value=0.5, value_clip=0.1, entropy=0.02, clip_high=0.3, dual_clip=2,
                      correction="truncated_token", weight_max=1.3, **{"lambda": 0.8})),
    dict(name="ppo", critic=1, temperature=1, filtered=0, turns=0, epochs=3, minibatches=1, slices=2, max_norm=0.1,
         options=dict(correction="vtrace", c_bar=0.9, rho_bar=1.2, whiten=False, reduction="constant", length=6, kl_loss=0.1,
                      kl_loss_kind="k2")),
    dict(name="grpo", critic=0, temperature=1.5, filtered=0, turns=0, epochs=2, minibatches=1, slices=2, max_norm=0,
         options=dict(kl_loss=0.2, correction="decoupled", weight_min=0.7, weight_max=1.5)),
    dict(name="reinforce++", critic=0, temperature=1, filtered=0, turns=1, epochs=2, minibatches=3, slices=1, max_norm=1,
         options=dict(kl_coef=0.2, kl="k2", score_clip=0.4, entropy=0.01, gamma=0.9, correction="interpolated")),
    dict(name="rloo", critic=0, temperature=0.8, filtered=1, turns=0, epochs=4, minibatches=2, slices=1, max_norm=1,
         options=dict(kl_coef=0.1, kl="k3", correction="masked_sequence", weight_min=0.3, weight_max=4, target_kl=0.2)),
    dict(name="dr_grpo", critic=0, temperature=1, filtered=0, turns=1, epochs=2, minibatches=1, slices=1, max_norm=1,
         options=dict(length=8, clip=0.1, whiten=True)),
]


class Gpt:
    """A GPT-2 of one layer, with a value head if `values`."""

    def __init__(self, values, salt, learns=True):
        w, shapes = WIDTH, [("embedding", (VOCABULARY, WIDTH)), ("position", (CONTEXT, WIDTH))]
        shapes += [("norm1.weight", (w,)), ("norm1.bias", (w,)), ("qkv", (3 * w, w)), ("qkv.bias", (3 * w,)), ("out", (w, w)),
                   ("out.bias", (w,)), ("norm2.weight", (w,)), ("norm2.bias", (w,)), ("up", (4 * w, w)), ("up.bias", (4 * w,)),
                   ("down", (w, 4 * w)), ("down.bias", (w,)), ("norm.weight", (w,)), ("norm.bias", (w,))]
        shapes += [("value", (1, w)), ("value.bias", (1,))] if values else []
        self.p, at = {}, 0
        for name, shape in shapes:
            size = math.prod(shape)
            one = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            x = torch.tensor([number(at + i, salt) for i in range(size)], dtype=torch.float32) + one
            self.p[name], at = x.double().reshape(shape).requires_grad_(learns), at + size
        self.parameters = list(self.p.values())

    def hidden(self, tokens):
        p, n, norm = self.p, len(tokens), torch.nn.functional.layer_norm
        x = p["embedding"][tokens] + p["position"][:n]
        q, k, v = ((norm(x, (WIDTH,), p["norm1.weight"], p["norm1.bias"], 1e-5) @ p["qkv"].T + p["qkv.bias"])
                   .reshape(n, 3, HEADS, -1).permute(1, 2, 0, 3))
        scores = q @ k.transpose(1, 2) / math.sqrt(WIDTH // HEADS) + torch.full((n, n), -math.inf).triu(1)
        x = x + (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, WIDTH) @ p["out"].T + p["out.bias"]
        y = norm(x, (WIDTH,), p["norm2.weight"], p["norm2.bias"], 1e-5) @ p["up"].T + p["up.bias"]
        x = x + torch.nn.functional.gelu(y, approximate="tanh") @ p["down"].T + p["down.bias"]
        return norm(x, (WIDTH,), p["norm.weight"], p["norm.bias"], 1e-5)

    def actions(self, a):
        """Log-probabilities, entropies and values of an answer's actions."""
        h = self.hidden(a["text"][:-1])[a["prompt"] - 1:][a["at"]]
        log_p = (h @ self.p["embedding"].T / a["temperature"]).log_softmax(-1)
        values = h @ self.p["value"][0] + self.p["value.bias"] if "value" in self.p else None
        return log_p.gather(1, a["text"][a["prompt"]:][a["at"]][:, None])[:, 0], -(log_p.exp() * log_p).sum(-1), values


def answers_of(case, item, u):
    """The answers of an item, in the form that `actions` takes, with what the maker knew of its actions."""
    prompt, first, result, salt = 1 + item % 3, 0, [], 1000 + 10 * item
    for answer in range(ANSWERS):
        length = (item + answer) % 4 + 2
        index = [first + i for i in range(length)]
        at = [i for i in range(length) if not case["turns"] or i == 0 or (3 * index[i] + item) % 4]
        text = [(3 * i + item) % VOCABULARY for i in range(prompt)] + [(3 * i + 2 * item + i * i % 5) % VOCABULARY for i in index]
        behaviour = numbers(first + length, salt + 1, 1, -1.75)[first:]
        turns = torch.tensor([number(i, salt + 2) if case["turns"] and k in at and (i + item) % 3 == 0 else 0.0 for k, i in enumerate(index)])
        result.append(dict(item=item, prompt=prompt, text=torch.tensor(text), at=torch.tensor(at), mu=behaviour[at], turns=turns[at],
                           temperature=1 if case["filtered"] else float(torch.tensor(case["temperature"], dtype=torch.float32)), score=2 * number(answer, salt + 3),
                           age=torch.tensor([float(u - max(0, u - (index[i] + item) % 3)) for i in at])))
        first += length
    return result


def kl_term(kind, l):
    return {"k1": l, "k2": l * l / 2, "k3": (-l).exp() - 1 + l}[kind]


class Learner:
    def __init__(self, case):
        self.case, name = case, case["name"]
        self.o = dict(DEFAULTS, reduction={"grpo": "sequences", "dr_grpo": "constant"}.get(name, "tokens"), whiten=name in ("ppo", "reinforce++"))
        self.o.update({} if name == "ppo" else {"lambda": 1})
        self.o.update(case["options"])
        self.o.setdefault("clip_high", self.o["clip"])
        self.actor, self.version, self.coef = Gpt(name == "ppo" and not case["critic"], 1), 0, self.o["kl_coef"]
        self.reference = Gpt(name == "ppo" and not case["critic"], 2, learns=False)
        self.critic = Gpt(True, 3) if case["critic"] else None
        self.optimizers = [torch.optim.AdamW(m.parameters, **ADAMW) for m in (self.actor, self.critic) if m]
        self.compares = self.o["kl_coef"] > 0 or self.o["kl_loss"] > 0

    def slice_of(self, answers, s):
        return [a for a in answers if a["item"] % self.case["slices"] == s]

    def judge(self, answers):
        o, name = self.o, self.case["name"]
        for a in answers:
            with torch.no_grad():
                a["proximal"], _, a["V"] = self.actor.actions(a)
                a["reference"] = self.reference.actions(a)[0]
                a["V"] = self.critic.actions(a)[2] if self.critic else a["V"] if a["V"] is not None else torch.zeros_like(a["mu"])
            k = self.coef * kl_term(o["kl"], a["mu"] - a["reference"])
            clip = o["score_clip"] or math.inf
            if name in ("grpo", "dr_grpo", "rloo"):
                a["R"] = min(max(a["score"], -clip), clip) - k.sum()
                continue
            r = a["turns"] - k
            r[-1] += min(max(a["score"] - float(a["turns"].sum()), -clip), clip)
            self.advantages_of_tokens(a, r)
        for s in range(self.case["slices"]):
            part = self.slice_of(answers, s)
            for a in part if name in ("grpo", "dr_grpo", "rloo") else []:
                group = torch.stack([b["R"] for b in part if b["item"] == a["item"]])
                off = a["R"] - group.mean()
                off = off / (group.std() + 1e-4) if name == "grpo" else off * len(group) / (len(group) - 1) if name == "rloo" else off
                a["A"] = off.expand_as(a["mu"])
            if o["whiten"]:
                white = normalized(torch.cat([a["A"] for a in part]), 1e-8).split([len(a["A"]) for a in part])
                for a, w in zip(part, white):
                    a["A"] = w

    def advantages_of_tokens(self, a, r):
        o, n = self.o, len(r)
        v = torch.cat([a["V"], torch.zeros(1)])
        if o["correction"] == "vtrace":
            ratio = (a["proximal"] - a["mu"]).exp()
            rho, c, target = ratio.clamp(max=o["rho_bar"] or 1), o["lambda"] * ratio.clamp(max=o["c_bar"] or 1), torch.zeros(n + 1)
            for t in reversed(range(n)):
                target[t] = v[t] + rho[t] * (r[t] + o["gamma"] * v[t + 1] - v[t]) + o["gamma"] * c[t] * (target[t + 1] - v[t + 1])
            a["A"], a["target"] = rho * (r + o["gamma"] * target[1:] - a["V"]), target[:-1]
        else:
            delta, powers = r + o["gamma"] * v[1:] - a["V"], (o["gamma"] * o["lambda"]) ** torch.arange(n)
            a["A"] = torch.stack([(powers[:n - t] * delta[t:]).sum() for t in range(n)])
            a["target"] = a["A"] + a["V"]

    def correct(self, a, now):
        """The policy that the ratio refers to, and the weights."""
        kind, low, high = self.o["correction"], self.o["weight_min"], self.o["weight_max"] or math.inf
        old = a["proximal"]
        if kind == "none":
            old = a["mu"]
        elif kind == "interpolated":
            old = a["mu"] + torch.where(a["age"] > 0, (a["age"] - 1) / a["age"].clamp(min=1), 0) * (now - a["mu"])
        ratio = (old - a["mu"]).exp()
        ratio = ratio.prod().expand_as(ratio) if kind.endswith("sequence") else ratio
        if kind in ("none", "vtrace"):
            return old, torch.ones_like(ratio)
        return old, ratio.clamp(low, high) if kind.startswith("truncated") else torch.where((ratio < low) | (ratio > high), 0, ratio)

    def step(self, answers):
        o, tokens = self.o, sum(len(a["mu"]) for a in answers)
        policy = kl = entropy = value = torch.zeros(())
        log_ratios, clipped = [], 0
        for a in answers:
            log_p, h, v = self.actor.actions(a)
            now = log_p.detach()
            old, weight = self.correct(a, now)
            share = {"tokens": tokens, "sequences": len(answers) * len(a["mu"]), "constant": len(answers) * o["length"]}[o["reduction"]]
            policy = policy + clipped_terms(log_p, old, a["A"] * weight, o["clip"], o["clip_high"], o["dual_clip"]).sum() / share
            kl = kl + kl_term(o["kl_loss_kind"], log_p - a["reference"]).sum() / share
            entropy = entropy + h.sum() / tokens
            if self.case["name"] == "ppo":
                v = self.critic.actions(a)[2] if self.critic else v
                value = value + value_terms(v, a["V"], a["target"], o["value_clip"]).sum() / tokens
            log_ratios.append(now - a["mu"])
            clipped += int((((now - old).exp() - 1 < -o["clip"]) | ((now - old).exp() - 1 > o["clip_high"])).sum())
        loss = policy + o["kl_loss"] * kl - o["entropy"] * entropy + (0 if self.critic else o["value"] * value)
        norm = take_step(loss, self.actor.parameters, self.optimizers[0], self.case["max_norm"])
        if self.critic:
            take_step(value, self.critic.parameters, self.optimizers[1], self.case["max_norm"])
        l = torch.cat(log_ratios)
        w = l.exp()
        return dict(loss=policy.item(), value_loss=value.item(), clipped=clipped / tokens, norm=norm, last_kl=float((w - 1 - l).mean()),
                    chi_squared=float((w * w).mean()) - 1, effective=float(w.sum() ** 2 / (w * w).sum()) / tokens)

    def update(self):
        c, o = self.case, self.o
        answers = [a for item in range(BATCH * self.version, BATCH * (self.version + 1)) for a in answers_of(c, item, self.version)]
        steps = []
        self.judge(answers)
        for epoch in range(c["epochs"]):
            if epoch and o["target_kl"] and steps[-1]["last_kl"] > o["target_kl"]:
                break
            parts = [self.slice_of(answers, s) for s in range(c["slices"])]
            for s, part in enumerate(parts):
                order = permutation(SEED, 1 + s, self.version * c["epochs"] + epoch, len(part)) if epoch else range(len(part))
                parts[s] = [part[i] for i in order]
            for m in range(c["minibatches"]):
                steps.append(self.step([a for p in parts for a in p[m * len(p) // c["minibatches"]:(m + 1) * len(p) // c["minibatches"]]]))
        kl = sum(float((a["mu"] - a["reference"]).sum()) for a in answers) / len(answers) if self.compares else 0
        mean = {k: sum(s[k] for s in steps) / len(steps) for k in ("loss", "value_loss", "clipped")}
        figures = [mean["loss"], mean["value_loss"], mean["clipped"], steps[-1]["norm"], kl, self.coef, steps[0]["last_kl"],
                   steps[0]["chi_squared"], steps[0]["effective"], steps[-1]["last_kl"], len(steps)]
        if o["kl_target"]:
            self.coef *= 1 + (min(len(answers) / o["kl_horizon"], 1) if o["kl_horizon"] else 0.1) * max(-0.2, min(0.2, kl / o["kl_target"] - 1))
        self.version += 1
        return figures


def model_updates(case):
    learner, results = Learner(case), []
    for u in range(UPDATES):
        figures = learner.update()
        if u in (0, UPDATES - 1):
            results.append(sampled(learner.actor.parameters, MODEL_EVERY))
    return figures, results, sampled(learner.critic.parameters, MODEL_EVERY) if learner.critic else [0.0]


# --- The header ----------------------------------------------------------------------------------


def braces(values):
    return "{%s}" % ", ".join("%.9g" % v for v in values)


def yaml(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def main():
    print("/* Made by tests/golden/updates.py with PyTorch %s; not edited by hand. */" % torch.__version__.split("+")[0])
    print("#ifndef UPDATES_GOLDEN_H\n#define UPDATES_GOLDEN_H\n\n#include <stddef.h>\n\n/* clang-format off */")
    policies, models = [policy_updates(c) for c in POLICIES], [model_updates(c) for c in LEARNERS]
    print("enum { GOLDEN_UPDATES = %d, GOLDEN_POLICY_EVERY = %d, GOLDEN_MODEL_EVERY = %d, GOLDEN_FIGURES = 11 };\n" % (UPDATES, POLICY_EVERY, MODEL_EVERY))
    print("/* Policies: the options of an update, and every GOLDEN_POLICY_EVERY-th weight after the first and the last update. */")
    print("static const struct golden_policy {\n    size_t outputs, players;\n    int box;\n    double clip, value_clip, entropy, last_entropy, value, epochs, minibatches, updates, lr, gamma, lambda, max_norm;")
    print("    double losses[GOLDEN_UPDATES];\n    size_t count;\n    double weights[2][%d];\n} golden_policies[] = {" % max(len(w[0]) for _, w in policies))
    for c, (losses, weights) in zip(POLICIES, policies):
        keys = ["outputs", "players", "box", "clip", "value_clip", "entropy", "last_entropy", "value", "epochs", "minibatches", "updates", "lr", "gamma", "lam", "max_norm"]
        print("    {%s, %s, %d,\n     {%s,\n      %s}}," % (", ".join("%.9g" % c[k] for k in keys), braces(losses), len(weights[0]), braces(weights[0]), braces(weights[1])))
    print("};\n\n/* Language models: keys of a trainer, and every GOLDEN_MODEL_EVERY-th weight. Figures are of the last update. */")
    print("static const struct golden_learner {\n    const char *config;\n    int critic, values, turns, filtered;\n    double temperature;\n    double figures[GOLDEN_FIGURES];\n    size_t count;")
    print("    double weights[2][%d], critic_weights[%d];\n} golden_learners[] = {" % ((max(len(w[0]) for _, w, _ in models),) * 2))
    for c, (figures, weights, critic) in zip(LEARNERS, models):
        options = ", ".join("%s: %s" % (k, yaml(v)) for k, v in c["options"].items())
        config = "algorithm: {name: %s, %s}, epochs: %d, minibatches: %d, slices: %d, max_norm: %g" % (c["name"], options, c["epochs"], c["minibatches"], c["slices"], c["max_norm"])
        print("    {\"%s\",\n     %d, %d, %d, %d, %.9g, %s, %d,\n     {%s,\n      %s},\n     %s}," % (
            config, c["critic"], c["name"] == "ppo" and not c["critic"], c["turns"], c["filtered"], c["temperature"], braces(figures), len(weights[0]), braces(weights[0]),
            braces(weights[1]), braces(critic)))
    print("};\n/* clang-format on */\n\n#endif")


main()
