#!/usr/bin/env python3
"""Writes optim_golden.h: what torch.optim makes of a few parameters, for tests/unit/optim.c.

Run with PyTorch 1.13 or later (Debian: python3-torch):  python3 tests/golden/optim.py > tests/golden/optim_golden.h
"""
import torch

NUMEL = 37  # no multiple of any vector's width
STEPS = 8

CASES = [
    ("adam", torch.optim.Adam, {}),
    ("adam", torch.optim.Adam, {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("adamw", torch.optim.AdamW, {}),
    ("adamw", torch.optim.AdamW, {"lr": 3e-4, "weight_decay": 0.3}),
    ("sgd", torch.optim.SGD, {"lr": 1e-3}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.05}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("sgd", torch.optim.SGD, {"lr": 0.7, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    ("rmsprop", torch.optim.RMSprop, {}),
    ("rmsprop", torch.optim.RMSprop, {"lr": 0.003, "alpha": 0.9, "momentum": 0.8, "weight_decay": 0.01}),
    ("rmsprop", torch.optim.RMSprop, {"lr": 0.003, "alpha": 0.9, "centered": True, "eps": 1e-3}),
    ("rmsprop", torch.optim.RMSprop, {"momentum": 0.5, "centered": True, "eps": 1e-2}),
    ("adagrad", torch.optim.Adagrad, {}),
    ("adagrad", torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.5,
                                      "weight_decay": 0.1}),
    ("adam", torch.optim.Adam, {"lr": 0.02, "betas": (0.8, 0.9), "amsgrad": True}),
    ("adamw", torch.optim.AdamW, {"lr": 3e-3, "betas": (0.9, 0.8), "weight_decay": 0.1, "amsgrad": True}),
]


def yaml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(yaml, value)) + "]"
    return repr(value)


def rows(name, table):
    print(f"static const float {name} = {{")
    for row in table:
        numbers = [f"{value:.9g}" for value in row.tolist()]
        numbers = [n + ("f" if any(c in n for c in ".en") else ".0f") for n in numbers]
        print("    {" + ", ".join(numbers) + "},")
    print("};\n")


torch.manual_seed(1)
start = torch.randn(NUMEL) * torch.logspace(0, -5, NUMEL)  # small ones, whose changes show every digit
grads = torch.randn(STEPS, NUMEL) * torch.logspace(-3, 1, NUMEL)

results = []
for _, optimizer, options in CASES:
    param = start.clone().requires_grad_()
    optim = optimizer([param], **options)
    for step in range(STEPS):
        param.grad = grads[step].clone()
        optim.step()
        if step == 0:
            first = param.detach().clone()
    results += [first, param.detach().clone()]

print(f"/* Made by tests/golden/optim.py with PyTorch {torch.__version__}; not edited by hand. */")
print("#ifndef OPTIM_GOLDEN_H\n#define OPTIM_GOLDEN_H\n\n/* clang-format off */")
print(f"enum {{ GOLDEN_NUMEL = {NUMEL}, GOLDEN_STEPS = {STEPS}, GOLDEN_CASES = {len(CASES)} }};\n")
print("/* Options of each case, as a config has them. */")
print("static const char *const golden_options[GOLDEN_CASES] = {")
for name, _, options in CASES:
    text = ", ".join([f"name: {name}"] + [f"{key}: {yaml(value)}" for key, value in options.items()])
    print(f'    "{{{text}}}",')
print("};\n")
rows("golden_start[1][GOLDEN_NUMEL]", [start])
rows("golden_grads[GOLDEN_STEPS][GOLDEN_NUMEL]", grads)
print("/* Parameters after the first and the last step of each case. */")
rows("golden_params[2 * GOLDEN_CASES][GOLDEN_NUMEL]", results)
print("/* clang-format on */\n#endif")
