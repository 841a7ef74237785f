#!/usr/bin/env python3
"""Prompts and answers from the plays of tiny Shakespeare.

    prepare.py TEXT FOLDER

A prompt is the name of a speaker with its colon, the answer is the 64 characters that follow it in
the play. FOLDER/sft.jsonl has one JSON object a line, FOLDER/prompts.txt each speaker once who has
at least 10 speeches.
"""
import collections
import json
import os
import re
import sys

ANSWER, LONGEST_NAME, SPEECHES = 64, 24, 10


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text, folder = sys.argv[1:]
    with open(text, encoding="ascii") as file:
        play = file.read()
    os.makedirs(folder, exist_ok=True)
    speakers = collections.Counter()
    with open(os.path.join(folder, "sft.jsonl"), "w", encoding="ascii") as out:
        for name in re.finditer(r"(?:^|\n\n)([^\n:]+:)(?=\n)", play):
            answer = play[name.end():name.end() + ANSWER]
            if len(name.group(1)) <= LONGEST_NAME and len(answer) == ANSWER:
                speakers[name.group(1)] += 1
                out.write(json.dumps({"prompt": name.group(1), "answer": answer}) + "\n")
    with open(os.path.join(folder, "prompts.txt"), "w", encoding="ascii") as out:
        out.writelines(name + "\n" for name, count in speakers.items() if count >= SPEECHES)


if __name__ == "__main__":
    main()
