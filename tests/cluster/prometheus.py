#!/usr/bin/env python3
"""Reads a page of Prometheus's text format from standard input, as strictly as its own parser of
version 0.0.4, and checks what a scraper asks for beside that: a family has one HELP and one TYPE
before its samples, which stand together, and not the name of a histogram's lines; no two samples have
the same labels; counters end in _total; the buckets of a histogram grow, and the last is its count.
Prints {sample: value} as JSON, a sample as 'name{label="value",...}' with sorted labels.
"""
import json
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
ENDS = ("_bucket", "_sum", "_count")  # of a histogram's samples
SAMPLE = re.compile(r"(%s)(?:\{(.*)\})? (\S+)$" % NAME)


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, ("labels", text)
        name, value = match[1], re.sub(r"\\(.)", lambda c: {"n": "\n"}.get(c[1], c[1]), match[2])
        assert name not in labels, ("twice", text)
        labels[name], at = value, match.end()
    return labels


def check_histogram(family, samples):
    series = {}
    for name, labels, value in samples:
        rest = json.dumps({k: v for k, v in labels.items() if k != "le"}, sort_keys=True)
        series.setdefault(rest, {}).setdefault(name[len(family):], []).append((labels.get("le"), value))
    for parts in series.values():
        assert sorted(parts) == ["_bucket", "_count", "_sum"], (family, sorted(parts))
        bounds = [float(le) for le, _ in parts["_bucket"]]
        counts = [value for _, value in parts["_bucket"]]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf"), (family, bounds)
        assert counts == sorted(counts) and counts[-1] == parts["_count"][0][1], (family, counts)


def main():
    text = sys.stdin.read()
    assert text.endswith("\n"), "the last line does not end"
    page, families, kinds, family, kind, samples = {}, {}, {}, None, None, []
    lines = text.split("\n")[:-1] + ["# HELP  "]
    for line in lines:
        if line.startswith("# HELP "):
            if kind == "histogram":
                check_histogram(family, samples)
            assert family is None or samples, ("no samples", family)
            family, kind, samples = line[7:].split(" ", 1)[0], None, []
            assert family not in families, ("twice", family)
            histograms = [f for f, k in kinds.items() if k == "histogram"]
            assert family not in [f + end for f in histograms for end in ENDS], ("a line of a histogram", family)
            families[family] = line
            continue
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == family and kind in ("counter", "gauge", "histogram"), line
            assert (kind == "counter") == name.endswith("_total"), line
            assert kind != "histogram" or not [end for end in ENDS if name + end in kinds], ("lines of", line)
            kinds[name] = kind
            continue
        match = SAMPLE.match(line)
        assert match and kind, ("no sample", line)
        labels, value = labels_of(match[2] or ""), float(match[3])
        ends = ENDS if kind == "histogram" else ("",)
        assert match[1] in [family + end for end in ends], (family, line)
        key = match[1] + "{%s}" % ",".join('%s="%s"' % pair for pair in sorted(labels.items()))
        assert key not in page, ("twice", line)
        page[key] = value
        samples.append((match[1], labels, value))
    json.dump(page, sys.stdout, indent=1)


main()
