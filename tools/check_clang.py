#!/usr/bin/env python3
"""check_clang.py BUILD [BUILT]: what clang says of every source of a build with gcc.

Each command of BUILD/compile_commands.json runs again with clang, which reads and checks the source
and makes no code: a third of the time of a build, and all the warnings that do not need an
optimizer. BUILD must be built, because its generated headers are read. The sources that the build
BUILT has compiled, with clang and warnings as errors, are left out.
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


def compiled(build):
    """The sources whose objects are in a build with clang."""
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    if not all("clang" in e["command"].split(" -")[0] and "-Werror" in e["command"] for e in entries if e["file"].endswith(".c")):
        sys.exit(f"{build} is not a build with clang and -Werror")
    objects = {e["file"]: re.search(r" -o (\S+\.o)", e["command"]) for e in entries}
    return {source for source, o in objects.items() if o and (pathlib.Path(build) / o[1]).exists()}


def main(build, built=None):
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    known = compiled(built) if built else set()
    entries = [e for e in entries if not e["file"].endswith((".pb-c.c", ".cu")) and e["file"] not in known]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, result in zip(entries, pool.map(check, entries)):
            if result.returncode != 0 or result.stdout:
                bad += 1
                print(f"{entry['file']}:\n{result.stdout}")
    print(f"{len(entries)} sources, {bad} with warnings; {len(known)} are compiled in {built}" if built else f"{len(entries)} sources, {bad} with warnings")
    return bad > 0 or not entries


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
