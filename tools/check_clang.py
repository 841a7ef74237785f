#!/usr/bin/env python3
"""check_clang.py BUILD [JOBS]: what clang says of every source of a build with gcc.

Each command of BUILD/compile_commands.json runs again with clang, which reads and checks the source
and makes no code: a third of the time of a build, and all the warnings that do not need an
optimizer. BUILD must be built, because its generated headers are read.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def clang_command(entry):
    """The command of an entry, with clang, without what gcc alone knows and without an output."""
    words = shlex.split(entry["command"])
    while not re.search(r"(cc|gcc|c\+\+|g\+\+)(-\d+)?$", words[0]):
        words.pop(0)  # a launcher, such as ccache
    compiler = "clang++" if "++" in words[0] else "clang"
    kept, skip = [], False
    for word in words[1:]:
        if skip or word == "-o":
            skip = not skip
        elif word != "-Wno-format-truncation":
            kept.append(word)
    return [compiler, *kept, "-fsyntax-only", "-Wno-unused-command-line-argument"]


def check(entry):
    return subprocess.run(clang_command(entry), cwd=entry["directory"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)


def main(build, jobs=os.cpu_count()):
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    entries = [e for e in entries if not e["file"].endswith((".pb-c.c", ".cu"))]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        for entry, result in zip(entries, pool.map(check, entries)):
            if result.returncode != 0 or result.stdout:
                bad += 1
                print(f"{entry['file']}:\n{result.stdout}")
    print(f"{len(entries)} sources, {bad} with warnings")
    return bad > 0 or not entries


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
