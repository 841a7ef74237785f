#!/usr/bin/env python3
"""One name means one thing: no two files define a type of the same exo_ name.

    tools/check_names.py             reads include, runtime, nn, learning, strategies, experience, actors and builtins
    tools/check_names.py --self-test plants a name twice, which must be found

Types without the prefix belong to their file. Prints each offence, and ends with 1 if there is any.
"""
import collections
import os
import pathlib
import re
import sys
import tempfile

FOLDERS = ["include", "runtime", "nn", "learning", "strategies", "experience", "actors", "builtins"]
TYPE = re.compile(r"^(?:typedef )?(?:struct|enum|union) (exo_\w+) \{|^\} (exo_\w+);|^typedef [^{;]*?\(?\*?(exo_\w+)\)?(?:\([^;]*\))?;", re.M)
OPAQUE = re.compile(r"^typedef (struct|enum|union) (\w+) \2;", re.M)


def twice(root):
    found = collections.defaultdict(set)
    for folder in FOLDERS:
        for path in sorted((pathlib.Path(root) / folder).rglob("*.[ch]")):
            text = OPAQUE.sub("", path.read_text(encoding="utf-8"))
            for names in TYPE.findall(text):
                found[next(filter(None, names))].add(path.relative_to(root).as_posix())
    return [f"{name}: {' and '.join(sorted(files))}" for name, files in sorted(found.items()) if len(files) > 1]


def self_test():
    with tempfile.TemporaryDirectory() as root:
        for path, text in {"runtime/a.h": "typedef struct exo_thing {\n    int a;\n} exo_thing;\ntypedef struct exo_other exo_other;\n",
                           "nn/b.c": "struct exo_thing {\n    int b;\n};\n", "nn/c.c": "struct exo_other {\n    int c;\n};\n"}.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = twice(root)
        if found != ["exo_thing: nn/b.c and runtime/a.h"]:
            print("check_names: planted exo_thing twice, and found", found)
            return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = twice(pathlib.Path(__file__).resolve().parent.parent)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
