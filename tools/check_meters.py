#!/usr/bin/env python3
"""docs/meters.md lists every meter of the library, with its kind, unit and help text, and none that is not there.

    tools/check_meters.py                 compares the table with the classes (exo_meter_class) in the sources
    tools/check_meters.py --result FILE   and with the meters of a run: each has a row that describes it so
    tools/check_meters.py --self-test     plants a meter without a row, and a row without a meter, which must be found

Prints each offence, and ends with 1 if there is any.
"""
import json
import os
import pathlib
import re
import sys
import tempfile

FOLDERS = ["runtime", "nn", "learning", "strategies", "experience", "actors", "builtins"]
PAGE = "docs/meters.md"
CLASS = re.compile(r'\.name = "([^"]+)",\s*\.unit = "([^"]+)",\s*\.help =\s*((?:"[^"]*"\s*)+)(?:,\s*\.kind = EXO_(\w+))?')
UNIT = re.compile(r'\.unit = "')
ROW = re.compile(r"^\| `([^`]+)` \| (counter|gauge|histogram) \| ([^|]+) \| ([^|]+) \|", re.M)
# What a model says of its loss: how nodes and evaluations weigh it. It is shown as train.loss and
# its like.
NOT_SHOWN = {("nn/ops/objectives.c", "loss")}


def declared(root):
    """(name, kind, unit, help) of each class, and where it is."""
    for folder in FOLDERS:
        for path in sorted((pathlib.Path(root) / folder).rglob("*.[ch]")):
            text, place = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
            classes = CLASS.findall(text)
            if len(classes) != len(UNIT.findall(text)):
                yield None, f"{place}: a class of a meter does not begin with its name, unit and help, as texts"
            for name, unit, texts, kind in classes:
                if (place, name) not in NOT_SHOWN:
                    yield (name, (kind or "COUNTER").lower(), unit, "".join(re.findall('"([^"]*)"', texts))), place


def documented(root):
    """[(path, (name, kind, unit, help))] of the page's table."""
    text = (pathlib.Path(root) / PAGE).read_text(encoding="utf-8")
    return [(path, (path.split(".")[-1], kind, unit.strip(), meaning.strip())) for path, kind, unit, meaning in ROW.findall(text)]


def compare(root):
    rows, classes = {row for _, row in documented(root)}, {}
    for meter, place in declared(root):
        if meter is None:
            yield place
        else:
            classes[meter] = place
    for meter in classes.keys() - rows:
        yield f"{classes[meter]}: {PAGE} has no row of {meter}"
    for meter in rows - classes.keys():
        yield f"{PAGE}: no source declares {meter}"


def pattern_of(path):
    return re.compile(re.escape(path).replace("node_R", r"node_\d+").replace("COPY", "(local|global)").replace("PART", r"\w+").replace("ACTOR", r"\w+_\d+"))


def check_result(root, file):
    rows = [(pattern_of(path), row) for path, row in documented(root)]
    with open(file, encoding="utf-8") as text:
        result = json.load(text)
    for run in result.get("runs", [result]):
        for path, m in run["meters"].items():
            meter = path.split(".")[-1], m["kind"], m["unit"], m["help"]
            if not any(pattern.fullmatch(path) and row == meter for pattern, row in rows):
                yield f"{file}: {PAGE} has no row of {path}, {meter}"


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, text in {"actors/a.c": 'static const exo_meter_class a = {.name = "a", .unit = "1", .help = "x "\n    "y", .kind = EXO_GAUGE};\n'
                                         'b = {.name = "b", .unit = "bytes", .help = "z"};\nc = {.unit = "1", .name = "c"};\n',
                           PAGE: "| `s.a` | gauge | 1 | x y |\n| `node_R.b` | counter | bytes | w |\n",
                           "result.json": '{"meters": {"s.a": {"kind": "gauge", "unit": "1", "help": "x y"}, '
                                          '"node_2.b": {"kind": "counter", "unit": "bytes", "help": "w"}, '
                                          '"node_2.c": {"kind": "counter", "unit": "bytes", "help": "w"}}}'}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = [*compare(root), *check_result(root, os.path.join(root, "result.json"))]
        wanted = ["does not begin with its name", "has no row of ('b', 'counter', 'bytes', 'z')", "no source declares ('b', 'counter', 'bytes', 'w')",
                  "has no row of node_2.c"]
        if len(found) != len(wanted) or not all(want in line for want, line in zip(wanted, found)):
            print("check_meters: planted four offences, and found", *found, sep="\n")
            return 1
    return 0


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(check_result(root, sys.argv[2]) if sys.argv[1:2] == ["--result"] else compare(root))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
