#!/usr/bin/env python3
"""No function is longer than a screen: 60 lines, from its opening brace to its closing one.

    tools/check_functions.py             reads include, runtime, nn, learning, strategies, experience, actors and builtins
    tools/check_functions.py --self-test plants a function that is too long, which must be found

clang-format puts the braces of a function, and of nothing else that has code in it, into the first column. Prints each offence, and ends with 1
if there is any.
"""
import os
import pathlib
import re
import sys
import tempfile

FOLDERS = ["include", "runtime", "nn", "learning", "strategies", "experience", "actors", "builtins"]
MOST = 60
NAME = re.compile(r"(\w+)\(")


def too_long(root):
    for folder in FOLDERS:
        for path in sorted(p for p in (pathlib.Path(root) / folder).rglob("*") if p.suffix in (".c", ".h", ".cu")):
            lines = path.read_text(encoding="utf-8").split("\n")
            begin = None
            for i, line in enumerate(lines):
                if line == "{":
                    begin = i
                elif line == "}" and begin is not None:
                    if i - begin + 1 > MOST:
                        head = begin - 1
                        while lines[head][:1].isspace():
                            head -= 1
                        name = NAME.search(lines[head])[1]
                        yield f"{path.relative_to(root).as_posix()}:{head + 1}: {name} has {i - begin + 1} lines"
                    begin = None


def self_test():
    def function(name, lines):
        return f"static int\n{name}(int a,\n     int b)\n{{\n" + "    a += b;\n" * (lines - 3) + "    return a;\n}\n"

    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "runtime"))
        with open(os.path.join(root, "runtime", "a.c"), "w", encoding="utf-8") as file:
            file.write(function("fits", MOST) + "\n" + function("is_too_long", MOST + 1) + "\n" + function("fits_too", 3))
        found = list(too_long(root))
        if found != [f"runtime/a.c:{MOST + 6}: is_too_long has {MOST + 1} lines"]:
            print("check_functions: planted a function of 61 lines, and found", found)
            return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = list(too_long(pathlib.Path(__file__).resolve().parent.parent))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
