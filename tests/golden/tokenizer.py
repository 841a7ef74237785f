#!/usr/bin/env python3
"""Writes what tests/unit/tokenizer_golden.c holds nn/text against: small tokenizers of the kinds that language models have, a corpus, and
what Hugging Face's tokenizers makes of it.

    tests/golden/tokenizer.py [FOLDER]        needs tokenizers (pip install tokenizers)

FOLDER (tests/golden) gets tokenizers/<name>/tokenizer.json, tokenizers/corpus.bin (texts: two bytes of length, then the bytes) and
tokenizer_golden.h.
"""
import collections
import json
import pathlib
import struct
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PROSE = """The tokenizer splits a text into pieces, and each piece has a number. It's a small thing, but the model can't read without it:
we'll see what they've done, who'd have thought so, and I'm sure you're right. DON'T SHOUT, IT'S RUDE, WE'LL SEE. A sentence may end here.
Or here! Or there? (Nobody knows; "quotes", 'single ones', dashes -- and so on...) In 1999 there were 12,345,678 of them; 3.14159 and 0x1F
are numbers, too. camelCase, snake_case and kebab-case are names. def f(x):\n    return x ** 2  # a comment\n\tif (a && b) { c[0] += 1; }
for (int i = 0; i < n; i++)\r\n    total += values[i];\n\n\nhttps://example.org/path?query=1&other=2#part user@example.org 100% of $5.00
The quick brown fox jumps over the lazy dog. Training, trained, trainer, trains; encoding, encoded, encoder; decoding, decoded, decoder."""

TEXTS = [t.encode() if isinstance(t, str) else t for t in [
    "", " ", "  ", "\n", "a", "A", " a", "a ", "Hello", "Hello, world!", " Hello  world ", PROSE, *PROSE.split("\n"), *PROSE.split(". ")[:6],
    "I'll I'LL it's IT'S we've WE'VE 's 'S 'd 'D '\u017f x'\u017f", "don't can't won't", "1 12 123 1234 12345 123456789", "\u00b2\u00bd\u2163\u0663\u096b 4\uff15",
    "tabs\tand\t\ttabs", "line\r\nline\rline\n\n\nline \n \n  line\n", "   leading", "trailing   ", "a" + " " * 50 + "b", " " * 200, "\n" * 33 + "x", "\t" * 9 + " ",
    "no-break\u00a0space em\u2003space ideographic\u3000space line\u2028sep next\u0085line mongolian\u180evowel zero\u200bwidth joiner\u200d",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m A\u030angstro\u0308m \ufb01 \ufb03 \u2126 \u212b \u1e9b\u0323 \u00bd \u3392",
    "z\u0351\u036b\u0343a\u0329\u0347l\u0321g\u030bo\u0334", "\u0130stanbul \u0131 I i \u00df \u1e9e \u03a3\u03c2\u03c3 \u01c5",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6211\u4eec\u5b66\u4e60\u8bed\u8a00\u6a21\u578b\uff01", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641 \u0627\u0644\u062d\u0627\u0644\u061f", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e\u0964", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
    "\U0001f600\U0001f4a9 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f", "a\U0001f600b \U0001f600\U0001f600\U0001f600", "\U0001d54f \U00020000 \U0010fffd \ufffd \ufeffbom",
    bytes(range(256)), bytes(range(255, -1, -1)), b"\xff\xfe a \x80\x80 b \xc3", b"\xe2\x82", b"\xf0\x9f\x98 x \xf0\x9f", b"\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe0\x80\x80",
    "".join(map(chr, range(1, 32))) + "\x7f\u0080\u009f", "\u0000a\u0000", "nul\u0000nul",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> <|endoftext|>\n", "<|endoftext", "<|<|endoftext|>|>", "<s>text</s>", "</s></s> <s> x", "a <unk> b <pad>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|im_start|>system\nYou are.<|im_end|>\n", "<0x41> <0xE2><0x82><0xAC>", "\u2581already \u2581\u2581here",
    " [mask] , \t[mask]\u2000x[mask] [mask]y ([mask])", "one[L]  two  [L]three[R]  four [LR] [LR]  five", "WORDword word words sword word.word \u0301word", "FANCY fancy Fancy \uff26\uff21\uff2e\uff23\uff39",
    "\u0120Hello \u010a \u0100", "x" * 300, "ab" * 100, "\u00e9" * 70, "\U0001f600" * 30, "internationalization antidisestablishmentarianism", "%%%%%%%%%%%%%%%% ======== ........ ----------",
    "(a|b)[c](d).,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c|", "mixedCASEandNumbers123and_underscores__and-dashes", "a\u0301\u0301\u0301 \u0301 \u0301a",
]]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
SPACE = "\u2581"


def text_of(data):
    return data.decode("utf-8", "replace")


def special(*names, **options):
    return [AddedToken(name, special=True, normalized=options.get("normalized", False)) for name in names]


def train(tokenizer, size, tokens, alphabet=None, **options):
    """`alphabet`: how many characters the texts have; the trainer's own limit leaves ties to chance."""
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=tokens, show_progress=False, **options)
    # No U+0000: it would be a token of its own, which nn/text does not read.
    texts = [text_of(t).replace("\0", "") for t in TEXTS if len(t) > 40 or b"<" not in t]
    if alphabet:
        counts = collections.Counter("".join(texts))
        known = set(sorted(counts, key=lambda c: (-counts[c], c))[:alphabet])
        texts = ["".join(c if c in known else " " for c in t) for t in texts]
    tokenizer.train_from_iterator(texts * 2, trainer)
    return tokenizer


def byte_level(size, tokens, pre_tokenizer, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, size, tokens, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))


def gpt2():
    tokenizer = byte_level(700, [], pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", normalized=True))
    return tokenizer


def opt():
    tokenizer = byte_level(600, special("<s>", "<pad>", "</s>", "<unk>", normalized=True), pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.post_processor = processors.TemplateProcessing(single="</s> $A", pair="</s> $A </s> $B", special_tokens=[("</s>", 2)])
    return tokenizer


def bloom():
    split = pre_tokenizers.Split(Regex(BLOOM), behavior="isolated", invert=False)
    tokenizer = byte_level(650, special("<unk>", "<s>", "</s>", "<pad>"),
                           pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False)
    return tokenizer


def sentence_piece(size, tokens, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = options.get("train_normalizer")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    train(tokenizer, size, [*tokens, *bytes_], alphabet=90)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in bytes_]  # they are the model's only
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    tokenizer = sentence_piece(800, special("<unk>", "<s>", "</s>"))
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return tokenizer


def mistral():
    tokenizer = sentence_piece(800, special("<unk>", "<s>", "</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_tokens([AddedToken("[mask]", single_word=True), AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True, normalized=False),
                          AddedToken("[LR]", lstrip=True, rstrip=True, special=True), AddedToken("word", single_word=True)])
    return tokenizer


def llama3():
    tokens = special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated", invert=False)
    tokenizer = byte_level(750, [], pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                           ignore_merges=True)
    tokenizer.add_special_tokens(tokens)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    state = json.loads(tokenizer.to_str())
    state["model"]["merges"] = state["model"]["merges"][:-60]  # so that ignore_merges matters
    tokenizer = Tokenizer.from_str(json.dumps(state))
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", begin)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return tokenizer


def qwen2():
    split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated", invert=False)
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 700, [], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    return tokenizer


def mixed():
    """Parts that none of the others has; no such model is known."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"[\s]+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("::", "merged_with_previous"),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    train(tokenizer, 500, special("<unk>"), alphabet=60)
    tokenizer.add_tokens([AddedToken("fancy", normalized=True), AddedToken("word", single_word=True, normalized=True), AddedToken("[mask]", lstrip=True, rstrip=True, single_word=True)])
    return tokenizer


def splits():
    """All ways to split, one after another; no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.NFKD()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d+(?=[a-f\x41-\x46])|\bx"), "merged_with_next"), pre_tokenizers.Split(Regex(r"\W"), "merged_with_previous"),
        pre_tokenizers.Split("a", "contiguous"), pre_tokenizers.Split(Regex(r"\p{Cyrillic}+?|[^\P{Han}x]|e*"), "isolated"), pre_tokenizers.Whitespace(),
        pre_tokenizers.Split("i", "removed")])
    return train(tokenizer, 400, special("<unk>"), alphabet=60)


TOKENIZERS = [gpt2, opt, bloom, llama2, llama3, qwen2, mistral, mixed, splits]

# --- Random texts: made by the same steps in tests/unit/tokenizer_golden.c ---

# Bytes that are cut anywhere can become any character, also one that is too new for one side's
# tables of Unicode: with this seed none does.
SEED, RANDOM_TEXTS, BLOCK = 7, 1500, 50
RANGES = [(0x20, 0x7e), (0xa1, 0x17f), (0x370, 0x373), (0x3b1, 0x3c9), (0x410, 0x44f), (0x300, 0x33f), (0x4e00, 0x4fff), (0xac00, 0xacff), (0x1f600, 0x1f64f)]
PARTS = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "<|endoftext|>", "<s>", "</s>", "[L]", "[LR]", "[R]", "[mask]", "word", "<|eot_id|>", SPACE, "::", "<unk>", "fancy", "e", "aa", "i", "12x"]


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):  # xorshift64*
        x = self.state
        x ^= x >> 12
        x ^= x << 25 & (1 << 64) - 1
        x ^= x >> 27
        self.state = x
        return ((x * 0x2545F4914F6CDD1D & (1 << 64) - 1) >> 33) % n


def random_text(random, corpus):
    out = b""
    for _ in range(1 + random.below(12)):
        kind = random.below(5)
        if kind == 0:
            begin, length = random.below(len(corpus)), random.below(24)
            out += corpus[begin:begin + length]
        elif kind == 1:
            out += bytes([random.below(256)])
        elif kind == 2:
            first, last = RANGES[random.below(len(RANGES))]
            out += "".join(chr(first + random.below(last - first + 1)) for _ in range(1 + random.below(3))).encode()
        elif kind == 3:
            out += PARTS[random.below(len(PARTS))].encode()
        else:
            out += bytes(97 + random.below(26) for _ in range(1 + random.below(9)))
    return out


def fnv(state, data):
    for byte in data:
        state = ((state ^ byte) * 16777619) & 0xFFFFFFFF
    return state


def numbers(ids):
    return b"".join(struct.pack("<I", i) for i in ids)


def rows(name, values, form, per_row):
    out = [f"static const {name} = {{"]
    for i in range(0, len(values), per_row):
        out.append("    " + ", ".join(form % v for v in values[i:i + per_row]) + ",")
    return out + ["};"]


def expect(tokenizer, corpus):
    """What the library gives for the corpus and for the random texts."""
    result = {"tokens": [], "counts": [], "whole": [], "skipped": [], "random": []}
    empty = tokenizer.encode("", add_special_tokens=True).ids
    for data in TEXTS:
        plain = tokenizer.encode(text_of(data), add_special_tokens=False).ids
        full = tokenizer.encode(text_of(data), add_special_tokens=True).ids
        assert full == empty + plain  # templates here only put tokens before
        result["tokens"] += plain
        result["counts"].append(len(plain))
        result["whole"].append(fnv(2166136261, tokenizer.decode(full, skip_special_tokens=False).encode()))
        result["skipped"].append(fnv(2166136261, tokenizer.decode(full, skip_special_tokens=True).encode()))
    random = Random(SEED)
    for _ in range(RANDOM_TEXTS // BLOCK):
        state = 2166136261
        for _ in range(BLOCK):
            ids = tokenizer.encode(text_of(random_text(random, corpus)), add_special_tokens=False).ids
            state = fnv(state, numbers(ids))
            state = fnv(state, tokenizer.decode(ids, skip_special_tokens=True).encode())
        result["random"].append(state)
    result["before"] = empty
    return result


def make(make_one):
    tokenizer = make_one()
    state = json.loads(tokenizer.to_str())
    if make_one in (gpt2, opt, llama2):  # as their files have it
        state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
    if make_one in (gpt2, opt):
        state["model"]["continuing_subword_prefix"] = state["model"]["end_of_word_suffix"] = ""
    return json.dumps(state, ensure_ascii=make_one is bloom, separators=(",", ":"))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    corpus = b"".join(TEXTS)
    out = [f"/* Made by tests/golden/tokenizer.py with tokenizers {tokenizers.__version__}; not edited by hand. */",
           "#ifndef TOKENIZER_GOLDEN_H\n#define TOKENIZER_GOLDEN_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n/* clang-format off */",
           f"enum {{ GOLDEN_TEXTS = {len(TEXTS)}, GOLDEN_BLOCKS = {RANDOM_TEXTS // BLOCK}, GOLDEN_BLOCK = {BLOCK}, GOLDEN_SEED = {SEED} }};\n"]
    table = []
    (folder / "tokenizers").mkdir(exist_ok=True)
    (folder / "tokenizers" / "corpus.bin").write_bytes(b"".join(struct.pack("<H", len(t)) + t for t in TEXTS))
    for make_one in TOKENIZERS:
        name = make_one.__name__
        text = make(make_one)
        (folder / "tokenizers" / name).mkdir(exist_ok=True)
        (folder / "tokenizers" / name / "tokenizer.json").write_text(text)
        result = expect(Tokenizer.from_str(text), corpus)
        out += rows(f"uint16_t {name}_tokens[]", result["tokens"], "%d", 32)
        out += rows(f"uint16_t {name}_counts[GOLDEN_TEXTS]", result["counts"], "%d", 32)
        for key in "whole", "skipped":
            out += rows(f"uint32_t {name}_{key}[GOLDEN_TEXTS]", result[key], "0x%08x", 12)
        out += rows(f"uint32_t {name}_random[GOLDEN_BLOCKS]", result["random"], "0x%08x", 12)
        before = result["before"]
        table.append(f'    {{"{name}", {len(before)}, {{{", ".join(map(str, before)) or 0}}}, {name}_tokens, {name}_counts, {name}_whole, {name}_skipped, {name}_random}},')
        print(f"{name}: {len(text)} bytes, {len(result['tokens'])} tokens", file=sys.stderr)
    out += ["", "/* Of each tokenizer: what comes before a text; the tokens of all texts and how many each has; FNV-1a of what is decoded, with and",
            " * without special tokens; the same of the tokens (four bytes each) and texts of blocks of random texts. */",
            "static const struct golden_tokenizer {", "    const char *name;\n    size_t before_count;\n    int32_t before[4];\n    const uint16_t *tokens, *counts;\n    const uint32_t *whole, *skipped, *random;",
            "} golden_tokenizers[] = {", *table, "};", "/* clang-format on */\n#endif"]
    (folder / "tokenizer_golden.h").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
