#!/usr/bin/env python3
"""Finds loops over float * above nn/cpu, nn/cuda and runtime/codec: such a loop runs on the host's memory alone, and not on a device's.

Whatever reads or writes an array element by element belongs into a kernel (nn/device/device_impl.h), of which there is one on each device.
HOST lists files whose numbers never are on a device, each with the reason. LATER lists what computes on the host and could do so on a
device, with the number of loops and the reason; it only gets shorter: a file with fewer loops than the list says is an offence, too, as is
one with more.

Text is read, not the language: a loop counts if it indexes a name that the file, or a header beside it, declares as a pointer to float.
Numbers behind a void * or of another type are not seen.

    tools/check_float_loops.py              offences; ends with 1 if there is one
    tools/check_float_loops.py --list       what is found, file by file
    tools/check_float_loops.py --self-test  whether planted offences are found, and nothing else
"""
import collections
import pathlib
import re
import sys
import tempfile

FOLDERS = ["runtime", "nn", "learning", "strategies", "experience", "actors"]
BELOW = ["nn/cpu/", "nn/cuda/", "nn/ref/", "runtime/codec/"]

ITEMS = "numbers of items, which come from other actors and lie in the host's memory"
BATCH = "numbers of a batch's tokens, which come to the host with its items, and go to the tape as inputs"
HOST = {
    "actors/replica_pass.c": "losses of steps, which the host has read",
    "actors/train_node.c": "losses of steps, which the host has read",
    "actors/reshard_nodes.c": "compares the numbers of nodes' files, which lie in the host's memory",
    "actors/rollout.c": ITEMS,
    "experience/learner_update.c": ITEMS,
    "experience/learner_batch.c": ITEMS,
    "experience/learner_pass.c": ITEMS,
    "experience/regret.c": "log-probabilities of enumerated answers, which the host has read and adds up",
    "experience/reward_model.c": "values of a pass's answers, which the host has read for scores",
    "experience/rows.c": ITEMS,
    "experience/text_rows.c": BATCH,
    "experience/tuner_pass.c": "scores of a pass's texts, which the host has read for figures",
    "learning/rows.c": BATCH,
    "learning/rewards.c": BATCH,
    "learning/advantages.c": BATCH,
    "learning/corrections.c": BATCH,
    "learning/token_loss.c": BATCH,
    "nn/device/loss_terms.c": "terms of one row, which the CPU's kernels and passes without a tape share",
    "nn/device/decoder_params.c": "a table of frequencies, made once",
    "nn/device/low_rank.c": "first factors are drawn on the host",
    "nn/images.c": "pictures are made on the host, by its readers",
    "nn/generate/sampling.c": "choices from the host's copy of the logits",
    "nn/pretrained/places.c": "a file's own order",
    "nn/pretrained/floats.c": "conversion of a file's values",
    "nn/pretrained/save.c": "conversion to a file's values",
    "nn/tensor.c": "exo_tensor_read: the host asks for plain numbers",
    "nn/params.c": "initial values are drawn on the host",
    "runtime/programs/decoder_source.c": "files of weights are added up before anything computes",
    "runtime/programs/generate.c": "figures of a text, for people",
}

POLICY = "the policy of an environment, 9155 numbers for CartPole, computes without a tape: decision 19, step 10"
LATER = {
    "actors/policy.c": (10, POLICY),
    "actors/ppo.c": (6, POLICY),
}

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.S)
POINTER = re.compile(r"\bfloat\s*\*+\s*(?:const\s+|restrict\s+)*(\w+)")
MORE = re.compile(r"\bfloat\s*\*[^;(){}]*;")
LOOP = re.compile(r"\b(for|while)\s*\(")


def text_of(path):
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text())


def pointers(text):
    """Names of pointers to float, also the later ones of a declaration: float *a = x, *b = y;"""
    names = set(POINTER.findall(text))
    for declaration in MORE.findall(text):
        names.update(re.findall(r"\*\s*(?:restrict\s+)?(\w+)", declaration))
    return names


def matching(text, at, opening, closing):
    """The place after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    return len(text)


def statement_end(text, at):
    """The end of the statement that begins at or after `at`."""
    while at < len(text) and text[at].isspace():
        at += 1
    if text.startswith("{", at):
        return matching(text, at, "{", "}")
    head = re.compile(r"(for|while|if|switch)\s*\(|else\b|do\b").match(text, at)
    if not head:
        end = text.find(";", at)
        return len(text) if end < 0 else end + 1
    after = matching(text, head.end() - 1, "(", ")") if head.group().endswith("(") else head.end()
    end = statement_end(text, after)
    other = re.compile(r"\s*else\b").match(text, end)
    return statement_end(text, other.end()) if other else end


def functions(text):
    """(start, end) of each function's parameters and body: the body begins with { in the first column."""
    for brace in re.finditer(r"^\{", text, re.M):
        start = max(text.rfind("\n}", 0, brace.start()), text.rfind(";\n", 0, brace.start()), 0)
        yield start, matching(text, brace.start(), "{", "}")


def loops(text, members):
    """Lines of outermost loops that index a pointer to float."""
    found = []
    for start, end in functions(text):
        body = text[start:end]
        names = pointers(body)
        local = "|".join(map(re.escape, names))
        member = "|".join(map(re.escape, members))
        uses = [rf"(?<![\w.>])(?:{local})\s*\[" if local else None, rf"(?:->|\.)(?:{member})\s*\[" if member else None]
        pattern = re.compile("|".join(u for u in uses if u) or r"(?!)")
        done = 0
        for loop in LOOP.finditer(body):
            if loop.start() < done:
                continue
            after = statement_end(body, matching(body, loop.end() - 1, "(", ")"))
            if pattern.search(body, loop.start(), after):
                found.append(text.count("\n", 0, start + loop.start()) + 1)
                done = after
    return found


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]")):
            name = path.relative_to(root).as_posix()
            if not any(name.startswith(below) for below in BELOW):
                yield name, path


def found_in(root):
    """The lines of each file's loops."""
    found = collections.OrderedDict()
    for name, path in sources(root):
        text = text_of(path)
        members = pointers(text)
        for header in path.parent.glob("*.h"):
            spelt = header.relative_to(root).as_posix().removeprefix("runtime/")
            if f'#include "{spelt}"' in path.read_text():
                members |= pointers(text_of(header))
        lines = loops(text, members)
        if lines:
            found[name] = lines
    return found


def offences(found, host, later):
    for name in sorted(set(found) | set(later) | set(host)):
        count, allowed = len(found.get(name, [])), later.get(name, (0, ""))[0]
        if name in host:
            if count == 0:
                yield f"{name}: has no loop over float *: take it off the list HOST"
        elif count > allowed:
            yield f"{name}: {count} loops over float *, {allowed} are allowed: lines {found[name]}; see exo_vec_*"
        elif count < allowed:
            yield f"{name}: {count} loops over float *, the list says {allowed}: make it shorter"


PLANTED = {
    "strategies/argument.c": "void\nf(float *x, int n)\n{\n    for (int i = 0; i < n; i++)\n        x[i] = 0;\n}\n",
    "nn/ops/later_name.c": "void\nf(void *p, int n)\n{\n    float *a = p, *b = a;\n    while (n--)\n        b[n] = 0;\n}\n",
    "actors/member.h": "struct s {\n    float *values;\n};\n",
    "actors/member.c": '#include "actors/member.h"\nvoid\nf(struct s *s, int n)\n{\n    for (int i = 0; i < n; i++) {\n'
    "        s->values[i] += 1;\n    }\n}\n",
    "nn/inline.h": "static inline float\nf(const float *x, int n)\n{\n    float sum = 0;\n    for (int i = 0; i < n; i++)\n"
    "        sum += x[i];\n    return sum;\n}\n",
}
INNOCENT = {
    "nn/cpu/kernel.c": "void\nf(float *x, int n)\n{\n    for (int i = 0; i < n; i++)\n        x[i] = 0;\n}\n",
    "nn/pointers.c": "void\nf(float *x, int *y, int n)\n{\n    for (int i = 0; i < n; i++)\n        y[i] = 0;\n    x[0] = 0;\n}\n",
    "nn/comment.c": "void\nf(float *x, int n)\n{\n    for (int i = 0; i < n; i++)\n        g(i); /* x[i] */\n}\n",
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**PLANTED, **INNOCENT}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        said = list(offences(found_in(root), {"nn/gone.c": "no longer there"}, {"nn/inline.h": (2, "one was removed")}))
    wanted = {"actors/member.c", "nn/gone.c", "nn/inline.h", "nn/ops/later_name.c", "strategies/argument.c"}
    if {line.split(":")[0] for line in said} != wanted:
        print("check_float_loops: planted", sorted(wanted), "and found", *said, sep="\n  ")
        return 1
    return 0


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if "--self-test" in sys.argv:
        return self_test()
    found = found_in(root)
    if "--list" in sys.argv:
        for name, lines in found.items():
            print(f"{name}: {len(lines)}: lines {lines}")
        return 0
    said = list(offences(found, HOST, LATER))
    print(*said, sep="\n", end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
