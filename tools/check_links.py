#!/usr/bin/env python3
"""Layers at link time: what the objects of each layer refer to, beside what the layer declares.

    tools/check_links.py LAYERS [KNOWN]     LAYERS is written by exo_layers_file (cmake/layers.cmake): a line for each layer, lowest
                                            first: its name, folder, USES, CALLS and its objects. KNOWN: tools/known_links.txt
    tools/check_links.py --self-test CC     plants a call upward, one that is not declared, a declaration that nothing needs, and
                                            cycles between folders and between files, each of which must be found

An object may refer to symbols of its own layer and of those that the layer names under USES (whose headers it sees) or CALLS (whose
functions of include/exogym it calls); CMake lets a layer name only those that are declared before it. Files of one layer that refer to each
other in a circle must be in KNOWN with the reason why neither merging nor cutting them is better. What is in KNOWN and no longer there is an
offence, too: the list only shrinks. Prints each offence, and ends with 1 if there is any.
"""
import os
import re
import subprocess
import sys
import tempfile

OURS = "exo_"  # runtime/net has some functions of libc, too (docs/decisions/0014-intake.md), which are libc's for everybody else
KNOWN_CYCLE = re.compile(r"cycle (\S+): ((?:\S+ )+)-- (.+)")
KNOWN_CALL = re.compile(r"call (\S+) -> (\S+): (\S+) -- (.+)")


class Layer:
    def __init__(self, name, uses, calls, objects):
        self.name, self.calls, self.objects = name, set(calls), objects
        self.may_call = set(uses) | self.calls


def read_layers(path):
    """name|folder|uses|calls|objects, with ';' within."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("|") for line in file if line.strip()]
    return [Layer(name, *([part for part in row.split(";") if part] for row in rest)) for name, _, *rest in rows]


def symbols(objects):
    """What each object defines for others, and what it refers to."""
    defines, refers = {o: set() for o in objects}, {o: set() for o in objects}
    if not objects:
        return defines, refers
    out = subprocess.run(["nm", "-P", "-A", "-g", *objects], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        place, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if name.startswith(OURS):
            (refers if kind in "Uvw" else defines)[place].add(name)
    return defines, refers


def circles(graph):
    """The strongly connected components of more than one node (Tarjan, 1972), without recursion."""
    index, low, stack, on, found = {}, {}, [], set(), []
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in index else []
        while work:
            node, children = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on.add(node)
            for child in children:
                if child not in index:
                    work.append((child, iter(graph[child])))
                    break
                if child in on:
                    low[node] = min(low[node], index[child])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    if len(stack) - at > 1:
                        found.append(sorted(stack[at:]))
                    on.difference_update(stack[at:])
                    del stack[at:]
    return found


def file_of(path):
    """runtime/comm/far.c.o -> far"""
    return re.sub(r"\.c(pp)?\.o(bj)?$", "", os.path.basename(path))


def look(layers):
    """The offences, as lines that KNOWN may have, with what explains them."""
    order = {layer.name: i for i, layer in enumerate(layers)}
    defined, refers = {}, {}
    for layer in layers:
        defines, refers[layer.name] = symbols(layer.objects)
        for path, names in defines.items():
            for name in names:
                defined.setdefault(name, (layer.name, path))
    offences, between = {}, {layer.name: set() for layer in layers}
    for layer in layers:
        files = {path: set() for path in layer.objects}
        for path, names in refers[layer.name].items():
            for name in sorted(names):
                there, home = defined.get(name, (None, None))
                if there == layer.name and home != path:
                    files[path].add(home)
                if there in (None, layer.name):
                    continue
                between[layer.name].add(there)
                if there not in layer.may_call:
                    way = "upward" if order[there] > order[layer.name] else "not declared"
                    offences.setdefault("call %s -> %s: %s" % (layer.name, there, name), "%s, in %s" % (way, file_of(path)))
        for circle in circles(files):
            offences["cycle %s: %s" % (layer.name, " ".join(sorted(map(file_of, circle))))] = "files that call each other"
        for unused in sorted(layer.calls - between[layer.name]):
            offences["unused %s -> %s" % (layer.name, unused)] = "declared, and nothing refers to it"
    for circle in circles(between):
        offences["cycle of folders: %s" % " ".join(circle)] = "layers that call each other"
    return offences


def read_known(path):
    known = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            match = KNOWN_CYCLE.fullmatch(line) or KNOWN_CALL.fullmatch(line)
            if not match:
                sys.exit("%s:%d: expected 'cycle LAYER: FILE FILE -- reason' or 'call A -> B: SYMBOL -- reason'" % (path, number))
            known.add(line.partition(" -- ")[0].rstrip())
    return known


def check(layers, known):
    offences = look(layers)
    said = ["%s (%s)" % (what, why) for what, why in sorted(offences.items()) if what not in known]
    said += ["%s (in the list of what is known, and no longer there)" % what for what in sorted(known - set(offences))]
    return said


# --- The test of the test
# ------------------------------------------------------------------------------------------------------

SOURCES = {
    "base/low": "int exo_low(void); int exo_high(void); int exo_low(void) { return exo_high(); }",
    "base/left": "int exo_left(void); int exo_right(void); int exo_left(void) { return exo_right(); }",
    "base/right": "int exo_left(void); int exo_right(void); int exo_right(void) { return exo_left(); }",
    "middle/middle": "int exo_low(void); int exo_middle(void); int exo_middle(void) { return exo_low(); }",
    "side/side": "int exo_low(void); int exo_side(void); int exo_side(void) { return exo_low(); }",
    "top/high": "int exo_middle(void); int exo_low(void); int exo_high(void); int exo_high(void) { return exo_middle() + exo_low(); }",
}
PLANTED = [
    "call base -> top: exo_high",
    "call side -> base: exo_low",
    "cycle base: left right",
    "cycle of folders: base middle top",
    "unused top -> side",
]


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        objects = {}
        for path, text in SOURCES.items():
            layer, name = path.split("/")
            os.makedirs(os.path.join(folder, layer), exist_ok=True)
            objects.setdefault(layer, []).append(os.path.join(folder, layer, name + ".c.o"))
            subprocess.run([compiler, "-x", "c", "-c", "-", "-o", objects[layer][-1]], input=text, text=True, check=True)
        may_call = {"base": [], "middle": ["base"], "side": [], "top": ["base", "middle", "side"]}
        layers = [Layer(name, [], may_call[name], objects[name]) for name in ("base", "middle", "side", "top")]
        found = sorted(look(layers))
        if found != sorted(PLANTED):
            sys.exit("check_links: planted %s, found %s" % (sorted(PLANTED), found))
        if check(layers, set(PLANTED)):
            sys.exit("check_links: what is known was said: %s" % check(layers, set(PLANTED)))
        if len(check(layers, set(PLANTED) | {"cycle base: gone there"})) != 1:
            sys.exit("check_links: what is known and gone was not said")


def main():
    if sys.argv[1] == "--self-test":
        self_test(sys.argv[2])
        return 0
    said = check(read_layers(sys.argv[1]), read_known(sys.argv[2]) if len(sys.argv) > 2 else set())
    print("\n".join(said), end="\n" if said else "")
    return 1 if said else 0


sys.exit(main())
