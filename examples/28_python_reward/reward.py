#!/usr/bin/env python3
"""Scores answers: reads each as a line of JSON, and prints a number for it. Here a vowel is worth 1, and
every other character costs 0.1; instead, it could ask a model over HTTP or run the tests of a program."""
import json
import sys

sys.stdin.reconfigure(errors="replace")  # the tokenizer of bytes can give bytes that are no text
for line in sys.stdin:
    answer = json.loads(line)["answer"]
    vowels = sum(character in "aeiou" for character in answer)
    print(vowels - 0.1 * (len(answer) - vowels), flush=True)
