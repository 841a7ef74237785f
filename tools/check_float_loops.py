#!/usr/bin/env python3
"""Finds loops over float * above nn/cpu and runtime/codec: such a loop runs on the host's memory alone, and not on a device's.

Whatever reads or writes an array element by element belongs into a kernel (nn/device/device_impl.h), of which there is one on each device.
ALLOWED lists what does not do so yet, with the number of loops; it only gets shorter: a file with fewer loops than the list says is an
offence, too, as is one with more. HOST lists what works on numbers that never are on a device, each with a reason.

Text is read, not the language: a loop counts if it indexes a name that the file, or a header beside it, declares as a pointer to float.

    tools/check_float_loops.py          offences; ends with 1 if there is one
    tools/check_float_loops.py --list   what is found, file by file
"""
import collections
import pathlib
import re
import sys

FOLDERS = ["runtime", "nn", "strategies", "actors"]
BELOW = ["nn/cpu/", "nn/ref/", "runtime/codec/"]

HOST = {
    "nn/device/loss_terms.c": "terms of one row, which the CPU's kernels and passes without a tape share",
    "nn/images.c": "pictures are made on the host, by its readers",
    "nn/pretrained/places.c": "a file's own order",
    "nn/pretrained/load.c": "conversion of a file's values",
    "nn/pretrained/save.c": "conversion to a file's values",
    "nn/tensor.c": "exo_tensor_read: the host asks for plain numbers",
    "nn/params.c": "initial values are drawn on the host",
    "nn/models/decoder.c": "a table of frequencies, made once",
    "runtime/programs/generate.c": "figures of a text, for people",
}

ALLOWED = {
    "actors/policy.c": 12,
    "actors/ppo.c": 4,
    "nn/generate/forward.c": 3,
    "nn/generate/packed_weights.c": 3,
    "nn/generate/positions.c": 2,
    "nn/generate/sampling.c": 10,
    "nn/ops/attention.c": 2,
    "nn/ops/embedding.c": 3,
    "nn/ops/head.c": 5,
    "nn/ops/linear.c": 1,
    "nn/ops/loss.c": 4,
    "nn/ops/norm.c": 4,
    "nn/ops/row_norm.c": 1,
    "nn/ops/vocabulary.c": 7,
    "runtime/programs/decoder_source.c": 1,
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


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = collections.OrderedDict()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.c")):
            name = path.relative_to(root).as_posix()
            if any(name.startswith(below) for below in BELOW):
                continue
            text = text_of(path)
            members = pointers(text)
            for header in path.parent.glob("*.h"):
                spelt = header.relative_to(root).as_posix().removeprefix("runtime/")
                if f'#include "{spelt}"' in path.read_text():
                    members |= pointers(text_of(header))
            lines = loops(text, members)
            if lines:
                found[name] = lines
    if "--list" in sys.argv:
        for name, lines in found.items():
            print(f'    "{name}": {len(lines)},  # {lines}')
        return 0
    status = 0
    for name in sorted(set(found) | set(ALLOWED) | set(HOST)):
        count, allowed = len(found.get(name, [])), ALLOWED.get(name, 0)
        if name in HOST:
            if count == 0:
                print(f"{name}: has no loop over float *: take it off the list HOST")
                status = 1
            continue
        if count > allowed:
            print(f"{name}: {count} loops over float *, {allowed} are allowed: lines {found[name]}; see exo_vec_*")
            status = 1
        if count < allowed:
            print(f"{name}: {count} loops over float *, the list says {allowed}: make it shorter")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
