#!/usr/bin/env python3
"""The library writes and reads floats by base/c_locale.h, so that a program's locale changes none: with a decimal
comma, the rows of CSV, JSON and what a worker is told would mean other numbers. Programs choose no locale, and are
left out.

    tools/check_numbers.py              lists calls of printf's family with a float, and of strtod's; ends with 1 if any
    tools/check_numbers.py --self-test  whether planted ones are found, and nothing else
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ["runtime", "nn", "learning", "strategies", "experience", "actors", "builtins", "environments"]
LEFT_OUT = ["runtime/programs/", "runtime/base/c_locale.c", "runtime/base/c_locale.h"]
READERS = ["strtod", "strtof", "strtold", "atof"]
CALL = re.compile(rf"(?<!\w)(v?[sfd]?n?printf|sscanf|{'|'.join(READERS)})\(")
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|" + TEXT.pattern)
WRITES = re.compile(r"%[-+ 0#]*[\d*]*(?:\.[\d*]*)?L?[aefgAEFG]")
READS = re.compile(r"%\*?\d*[lL]?[aefgAEFG]")


def arguments(text, at):
    """The text from `at`, behind a parenthesis, to the one that closes it."""
    depth, i = 1, at
    while i < len(text) and depth > 0:
        literal = LITERAL.match(text, i)
        if literal:
            i = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        i += 1
    return text[at:i]


def offences(root):
    for folder in FOLDERS:
        for path in sorted((pathlib.Path(root) / folder).rglob("*")):
            place = path.relative_to(root).as_posix()
            if path.suffix not in (".c", ".h", ".cu") or any(place.startswith(start) for start in LEFT_OUT):
                continue
            text = path.read_text(encoding="utf-8")
            for call in CALL.finditer(text):
                name = call[1]
                given = "".join(TEXT.findall(arguments(text, call.end())))
                if name[0] == "v" or name in READERS or (READS if name == "sscanf" else WRITES).search(given):
                    yield f"{place}:{text.count(chr(10), 0, call.start()) + 1}: {name} depends on the locale; base/c_locale.h has what does not"


def self_test():
    lines = {'snprintf(out, 9, "%.3f",': 1, 'fprintf(out, "%d" "%g)",': 1, "vsnprintf(out, 9, format,": 1, "x = strtod(text,": 1,
             'sscanf(text, "%lf",': 1, 'exo_c_snprintf(out, 9, "%g",': 0, 'snprintf(out, 9, "%d %s (",': 0, 'sscanf(text, "%u",': 0,
             """printf("%c", '"'); printf("%g",""": 1, "exo_c_strtod(text,": 0, "strtoull(text,": 0}
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root) / "nn"
        folder.mkdir()
        (folder / "a.c").write_text("".join(f"    {line} x);\n" for line in lines), encoding="utf-8")
        said = list(offences(root))
    wanted = [f"nn/a.c:{i + 1}:" for i, found in enumerate(lines.values()) if found]
    if [s.split(" ")[0] for s in said] == wanted:
        return 0
    print("check_numbers: planted", wanted, "and found", *said, sep="\n  ")
    return 1


if sys.argv[1:] == ["--self-test"]:
    sys.exit(self_test())
found = list(offences(pathlib.Path(__file__).resolve().parent.parent))
print(*found, sep="\n", end="\n" if found else "")
sys.exit(1 if found else 0)
