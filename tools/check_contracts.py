#!/usr/bin/env python3
"""Each declaration of a public header has its contract: a comment that says what it is, takes, gives and owns.

    tools/check_contracts.py FILE...          prints each declaration without one, and ends with 1 if there is any
    tools/check_contracts.py --self-test      plants declarations without contracts, which must be found

Declarations are functions, types, macros, and members of structs; constants of an enumeration belong to its contract. A
declaration has a contract if
  - a comment ends on the line above it, or stands behind it on one of its lines, or
  - it belongs to a group: lines without a blank one among them, with a single comment, which is above the first; or
  - a comment of its paragraph names it, or, if it is a member, a comment in its struct or above it.
Titles of sections (/* --- Classes --- */) are no contracts.
"""
import re
import sys

TITLE = re.compile(r"/\* ---")
NAME = re.compile(r"[A-Za-z_]\w*")


class Comment:
    def __init__(self, first, last, text, alone):
        self.first, self.last, self.text = first, last, text
        self.alone = alone  # no code on its first line before it


class Declaration:
    def __init__(self, name, first, last, has_body=False):
        self.name, self.first, self.last = name, first, last
        self.lines = {first, last} if has_body else range(first, last + 1)  # where a comment is its own


def take_comments(text):
    """The text with comments as spaces, and the comments. Lines count from 0."""
    code, comments, at, line = [], [], 0, 0
    literal = re.compile(r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])*\'')
    while at < len(text):
        match = literal.match(text, at)
        if match:
            code.append(match.group())
            at = match.end()
        elif text.startswith("/*", at) or text.startswith("//", at):
            end = text.find("*/", at) + 2 if text[at + 1] == "*" else (text + "\n").find("\n", at)
            body = text[at:end]
            before = "".join(code).rpartition("\n")[2]
            if not TITLE.match(body):
                comments.append(Comment(line, line + body.count("\n"), body, not before.strip()))
            code.append(re.sub(r"[^\n]", " ", body))
            line += body.count("\n")
            at = end
        else:
            code.append(text[at])
            line += text[at] == "\n"
            at += 1
    return "".join(code), comments


def take_macros(code):
    """The code with preprocessor lines as spaces, and the macros. None are the guard, which has no value, and what is undefined again."""
    macros, lines, at = [], code.split("\n"), 0
    while at < len(lines):
        if not lines[at].lstrip().startswith("#"):
            at += 1
            continue
        first = at
        while lines[at].rstrip().endswith("\\"):
            at += 1
        match = re.match(r"\s*#\s*define\s+(\w+)(.*)", lines[first])
        if match and match.group(2).strip() and not re.search(r"#\s*undef\s+%s\b" % match.group(1), code):
            macros.append(Declaration(match.group(1), first, at))
        for i in range(first, at + 1):
            lines[i] = ""
        at += 1
    macros = list({m.name: m for m in reversed(macros)}.values())  # of an #else only the first
    return "\n".join(lines), macros


def statements(code, line):
    """(text, first line) of what ends with ';' outside of all brackets; `line` is the code's first."""
    depth, start, first = 0, None, None
    for at, c in enumerate(code):
        if start is None and not c.isspace() and c != ";":
            start, first = at, line
        depth += c in "{(["
        depth -= c in "})]"
        if c == ";" and depth == 0 and start is not None:
            yield code[start:at], first
            start = None
        line += c == "\n"


def name_of(text):
    """What a declaration without a body declares: of a function pointer the name in its brackets, else what is before '('."""
    pointer = re.search(r"\(\s*\*\s*(?:const\s+)?(\w+)", text)
    if pointer:
        return pointer.group(1)
    text = re.sub(r"EXO_PRINTF\([^)]*\)|__attribute__\(\(.*?\)\)", "", text)
    head = re.sub(r"\[[^]]*\]", "", text.split("(")[0])
    names = NAME.findall(head.split("=")[0])
    return names[-1] if names else text.strip()


class Header:
    def __init__(self, path, text):
        self.path = path
        self.lines = text.split("\n")
        code, self.comments = take_comments(text)
        code = re.sub(r"\bEXO_DECLS_(BEGIN|END)\b", "", code)
        code, macros = take_macros(code)
        self.missing = []
        self.scope = (0, len(self.lines))
        for macro in macros:
            self.look(macro)
        parsed = list(statements(code, 0))
        self.defined = {m.group(1) for text, _ in parsed for m in [re.search(r"struct\s+(\w+)\s*\{", text)] if m}
        for statement, first in parsed:
            self.declaration(statement, first, None)

    def declaration(self, text, first, said):
        """`above`: the comments of the struct that it is a member of."""
        last = first + text.count("\n")
        body = re.search(r"\b(struct|union|enum)\b[^{};()]*\{", text)
        if not body:
            forward = re.fullmatch(r"\s*typedef\s+struct\s+(\w+)\s+\w+\s*", text)
            if forward and forward.group(1) in self.defined:
                return
            self.look(Declaration(name_of(text), first, last), said)
            return
        end = text.rindex("}")
        names = NAME.findall(text[end:]) or NAME.findall(body.group())[1:] or [body.group(1)]
        declared = Declaration(names[-1], first, last, has_body=True)
        self.look(declared, said)
        if body.group(1) == "enum":
            return
        inside, line = text[body.end() : end], first + text[: body.end()].count("\n")
        scope, self.scope = self.scope, (line + 1, last)
        own = " ".join(c.text for c in self.comments if first - 1 <= c.last <= last)
        for member, member_first in statements(inside, line):
            self.declaration(member, member_first, own or " ")
        self.scope = scope

    def look(self, declared, said=None):
        if said is not None and re.search(r"\b%s\b" % re.escape(declared.name), said):
            return
        for comment in self.comments:
            behind = not comment.alone and comment.first in declared.lines
            if behind or (comment.alone and comment.last == declared.first - 1):
                return
        if not self.in_group(declared):
            self.missing.append(declared)

    def in_group(self, declared):
        low, high = self.scope
        top, bottom = declared.first, declared.last
        while top > low and self.lines[top - 1].strip():
            top -= 1
        while bottom + 1 < high and self.lines[bottom + 1].strip():
            bottom += 1
        alone = [c for c in self.comments if c.alone and top <= c.first and c.last <= bottom]
        if any(re.search(r"\b%s\b" % re.escape(declared.name), c.text) for c in alone):
            return True
        return len(alone) == 1 and alone[0].first == top


SELF_TEST = """/* A file. */
#ifndef GUARD
#define GUARD

/* --- A title --- */
void no_title(void);

/* A contract. */
void has_one(int a,
             int b);

#define NO_MACRO 1

/* The same, and the other: a group. */
void grouped_1(void);
void grouped_2(void);

/* The first. */
void first(void);
void no_group(void);
/* The last. */
void last(void);

typedef struct no_type {
    int a; /* said behind */
    int no_member;
    /* said above */
    int (*hook)(int a, int b);
    int (*no_hook)(void);
} no_type;

/* A pair of `one` and `two`. */
typedef struct pair {
    int one, two;
    int no_third;
} pair;
#endif
"""


def self_test():
    found = sorted(d.name for d in Header("self-test", SELF_TEST).missing)
    planted = sorted(set(NAME.findall(SELF_TEST)) & {n for n in NAME.findall(SELF_TEST) if n.lower().startswith("no_")})
    if found != planted:
        sys.exit("check_contracts: found %s, planted %s" % (found, planted))


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    headers = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            headers.append(Header(path, file.read()))
    missing = ["%s:%d: %s has no contract" % (h.path, d.first + 1, d.name) for h in headers for d in h.missing]
    print("\n".join(missing), end="\n" if missing else "")
    return 1 if missing else 0


sys.exit(main())
