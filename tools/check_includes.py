#!/usr/bin/env python3
"""Includes between layers: each internal header is named by its path, and is one that the layer may see.

    tools/check_includes.py LAYERS       LAYERS is written by exo_layers_file (cmake/layers.cmake): a line for each layer with its name, its
                                         folder, USES, CALLS and its objects
    tools/check_includes.py --self-test  plants an include upward, one without its path and one of a header that is not there, each of
                                         which must be found

The path starts in runtime/ for what is there ("net/net.h"), else at the root ("nn/cpu/gemm.h"). A file may include headers of its own layer
and of those that the layer names under USES. Prints each offence, and ends with 1 if there is any.
"""
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
GENERATED = ".pb-c.h"  # only a layer with PROTO has a path to it; tools/check_layers.sh looks, too


def read_layers(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("|") for line in file if line.strip()]
    return {folder: (name, set(uses.split(";"))) for name, folder, uses, *_ in rows}


def offences(root, layers):
    for folder, (name, uses) in layers.items():
        for file in sorted(os.listdir(os.path.join(root, folder))):
            if not file.endswith((".c", ".h", ".cu")):
                continue
            with open(os.path.join(root, folder, file), encoding="utf-8") as source:
                text = source.read()
            for found in INCLUDE.finditer(text):
                header = found.group(1)
                place = f"{folder}/{file}:{text.count(chr(10), 0, found.start()) + 1}"
                if header.endswith(GENERATED):
                    continue
                real = next((base + header for base in ("runtime/", "") if os.path.exists(os.path.join(root, base + header))), None)
                if not real or "/" not in header:
                    yield f'{place}: "{header}" is no path of a header from runtime/ or from the root'
                elif os.path.dirname(real) not in layers:
                    yield f'{place}: "{header}" is in no layer'
                elif os.path.dirname(real) != folder and layers[os.path.dirname(real)][0] not in uses:
                    yield f'{place}: "{header}": layer {name} does not name {layers[os.path.dirname(real)][0]} under USES'


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, text in {"runtime/base/low.h": "", "runtime/base/up.c": '#include "top/top.h"\n', "top/top.h": '#include "base/low.h"\n',
                           "top/bare.c": '#include "top.h"\n', "top/gone.c": '#include "base/gone.h"\n'}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = list(offences(root, {"runtime/base": ("base", set()), "top": ("top", {"base"})}))
        planted = ("runtime/base/up.c:1:", "top/bare.c:1:", "top/gone.c:1:")
        if sorted(line.split(" ")[0] for line in found) != sorted(planted):
            print("check_includes: planted", *planted, "and found", *found, sep="\n  ")
            return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = list(offences(root, read_layers(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
