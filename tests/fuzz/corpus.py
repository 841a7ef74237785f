#!/usr/bin/env python3
"""Writes the corpora that fuzzing begins with, to corpus/<target>/ beside this file. What it writes is kept in git; with --check it writes
nothing, and fails if what git keeps is another."""
import pathlib
import shutil
import struct
import sys

here = pathlib.Path(__file__).parent / "corpus"


# --- Protobuf by hand: fields are (number, value); an int is a varint, bytes and text have a
# length, a float has 8 bytes ---


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if n == 0:
            return out


def message(*fields):
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


# --- wire.proto ---


def call(**f):
    return message((1, message((1, f.get("id", 1)), (2, f.get("actor", 0)), (3, f.get("method", "add")),
                               *([(4, f["args"])] if "args" in f else []), (5, f.get("timeout", 10**9)),
                               (6, f.get("name", "head")))))


inline = message((1, 1), (2, b"bytes"))
framed = message((1, 2))
object_ = message((1, 3), (3, b"handle"))
hello = message((5, message((1, 7), (2, "worker"), (3, 42), (4, "another kernel"), (5, 9), (6, "tcp://127.0.0.1:1"), (7, "fuzz"))))
welcome = message((6, message((1, 7), (2, "head"), (3, 42), (4, "another kernel"), (5, 9))))
reply = message((2, message((1, 1), (2, 10), (3, "full"), (4, inline))))
cancel = message((3, message((1, 1))))
beat = message((4, message((1, 3), (2, 100))))
refused = message((7, message((1, 2), (2, "another version"))))
goodbye = message((8, message((1, "it ended"))))
ring = message((9, message((3, 5.0))))
envelopes = {
    "call": call(), "call_inline": call(args=inline), "call_framed": call(args=framed), "call_object": call(args=object_),
    "reply": reply, "cancel": cancel, "beat": beat, "hello": hello, "welcome": welcome, "refused": refused, "goodbye": goodbye,
    "ring": ring,
}


def frame(*all_, number=0, version=2, count=None):
    head = b"EXOG" + struct.pack("<HHI", version, len(all_) if count is None else count, number)
    return head + b"".join(struct.pack("<I", len(e)) + e for e in all_)


def wire():
    yield from ((name, frame(e)) for name, e in envelopes.items())
    yield "all", frame(*envelopes.values(), number=5)
    yield "version", frame(beat, version=1)
    yield "count", frame(beat, count=9)
    yield "nothing", frame()


# --- handshake: messages of frames. A byte says who speaks, one how many frames, then each with two
# bytes of length ---


def said(*frames, who=0):
    return bytes([who, len(frames)]) + b"".join(struct.pack("<H", len(f)) + f for f in frames)


def handshake():
    first = said(frame(hello))
    yield "hello", first
    yield "hello_twice", first + said(frame(hello, number=1))
    yield "early", said(frame(call()))
    yield "garbage", said(b"garbage") + first
    yield "all", first + b"".join(said(frame(e), b"large" * 20, who=0) if name == "call_framed" else said(frame(e, number=i + 1))
                                  for i, (name, e) in enumerate(envelopes.items()) if name not in ("refused", "goodbye"))
    yield "framed", first + said(frame(call(args=framed), call(args=framed, id=2), number=1), b"one", b"two")
    yield "missing", first + said(frame(call(args=framed), number=1))
    yield "gap", first + said(frame(beat, number=2))
    yield "bye", first + said(frame(goodbye, number=1)) + said(frame(beat, number=2))
    yield "refused_later", first + said(frame(message((7, message((1, 2)))), number=1))
    yield "two", first + said(frame(hello), who=1) + said(frame(call(), number=1), who=1) + said(frame(cancel, number=1))
    yield "welcomed", said(frame(welcome), who=2) + said(frame(reply, cancel, number=1), who=2)
    yield "refused", said(frame(refused), who=2)


# --- cluster.proto: the methods in the order of `asked` in cluster.c; "wait" lets time pass ---

methods = ["register", "gone", "spawn", "started", "find", "claim", "died", "epitaph", "list", "why", "log", "logs", "tick",
           "kill", "make", "wait", "node", "end", "end_worker", "give_up", "report", "go_on", "holds"]


def ask(method, args=b""):
    return bytes([methods.index(method)]) + struct.pack("<H", len(args)) + args


cpus = message((1, "cpus"), (2, 4.0))
actor = message((1, 1), (2, "a"), (3, "default"), (4, "dummy"), (5, 5), (6, 9), (7, 1), (8, "alive"), (9, "why"), (10, "job"))
rule = message((1, 2), (2, 3), (3, 2 * 10**9), (4, 2 * 10**8))
spec = message((1, "dummy"), (2, "a"), (3, "default"), (6, "job"), (7, b"args"), (8, cpus), (9, 1), (11, rule), (12, "g"), (13, 1))
worker = message((1, 5), (2, "w"), (3, "tcp://127.0.0.1:1"), (5, cpus), (6, 42), (7, "worker"), (9, "host"))
driver = message((1, 6), (2, "d"), (6, 43), (7, "driver"), (9, "host"), (10, "job"))
name = message((1, "default"), (2, "a"), (3, 9), (4, 5), (5, "dummy"), (6, "it failed"), (7, 1), (8, 1))


def started(key, incarnation, id_, status=0):  # struct outcome_args of head_spawn.c
    return struct.pack("<QQQQi", key, incarnation, id_, 5, status) + bytes(512 + 512 + 4) + struct.pack("<Q", 0)


def cluster():
    begin = ask("register", worker) + ask("register", driver)
    lives = begin + ask("spawn", spec) + ask("started", started(1, 1, 9)) + ask("started", started(2, 1, 9))
    died = ask("died", message((3, 9), (4, 5), (6, "it failed"), (7, 1)))
    yield "register", begin + ask("list")
    yield "nameless", ask("register", message((1, 5), (7, "worker"))) + ask("register", message((1, 6)))
    yield "spawn", lives + ask("find", name) + ask("list")
    yield "restart", lives + died + b"\x0f\xff\x00" + ask("tick") + ask("started", started(2, 2, 10)) + ask("find", name)
    yield "dies", lives + died + died + ask("why", name)
    yield "fails", begin + ask("spawn", spec) + ask("started", started(1, 1, 0, 12)) + ask("find", name)
    yield "gone", lives + ask("gone", message((1, 5), (6, "left"), (7, "it left"))) + ask("tick") + ask("why", name)
    yield "job", lives + ask("gone", message((1, 6), (6, "left"))) + ask("list")
    yield "epitaph", lives + ask("epitaph", message((1, 5), (2, "w"), (3, "killed"), (4, "add"), (5, "lines\n"))) + ask("why", name)
    yield "claim", begin + ask("claim", name) + ask("find", name) + ask("died", name)
    yield "adopt", ask("register", worker + message((8, actor))) + ask("find", name) + ask("list")
    yield "together", begin + ask("spawn", spec + message((17, message((2, "b"), (3, "default"), (12, "g"), (13, 1)))))
    two = ask("spawn", spec + message((17, message((1, "dummy"), (2, "b"), (3, "default"), (4, 1), (6, "job"), (12, "g"), (13, 1)))))
    dies = ask("died", message((3, 9), (4, 5), (6, "it failed"), (7, 1), (8, 2), (9, 1)))
    again = ask("tick") + b"\x0f\xff\x00" + ask("tick") + ask("started", started(2, 2, 10))
    yield "together_again", begin + two + ask("started", started(2, 1, 9)) + dies + again + ask("started", started(3, 1, 11)) + ask("list")
    yield "together_waits", begin + two + ask("started", started(2, 1, 9)) + dies + ask("started", started(3, 1, 11)) + again
    yield "together_dies", begin + two + ask("started", started(3, 1, 9)) + dies.replace(b"\x40\x02", b"\x40\x03") + ask("list")
    yield "together_asked", (begin + two + ask("spawn", message((1, "dummy"), (2, "b"), (3, "default"), (4, 1), (6, "job")))
                             + ask("started", started(2, 1, 0, 12)) + ask("list"))
    yield "claim_gone", begin + ask("gone", message((1, 5), (6, "lost"))) + ask("claim", name) + ask("list")
    yield "slashes", (ask("spawn", message((1, "dummy"), (2, "b/c"), (3, "a"))) + ask("register", worker)
                      + ask("spawn", message((1, "dummy"), (2, "b/c"), (3, "a"))) + ask("spawn", message((1, "dummy"), (2, "c"), (3, "a/b")))
                      + ask("find", message((1, "a/b"), (2, "c"))))
    yield "log", ask("log", message((1, "w"), (2, "one\ntwo\n"))) + ask("logs", struct.pack("<Q", 0)) + ask("logs", b"\xff" * 8)
    yield "make", ask("make", spec) + ask("make", message((1, "none"), (14, "no_plugin.so")))
    yield "kill", ask("kill", struct.pack("<Q", 77) + b"\1" + b"why".ljust(200, b"\0") + bytes(7))
    yield "node", begin + ask("node", message((1, 5))) + ask("node", message((1, 77)))
    yield "end", begin + ask("end") + ask("end_worker") + ask("gone", message((1, 5), (6, "left"))) + b"\x0f\xff\xff" + ask("tick")
    yield "give_up", lives + ask("gone", message((1, 5), (6, "lost"))) + ask("give_up", name) + ask("why", name)
    report = message((1, "job"), (2, 6), (3, '{"time_s": 1}'))
    yield "report", (ask("register", driver) + ask("report", report) + ask("list") + ask("report", report)
                     + ask("gone", message((1, 6), (6, "left"))) + ask("report", report))
    yield "empty", b"".join(ask(m) for m in methods)


# --- ring: steps of a byte, a number and a word ---


def ring_steps():
    def put(length):
        return struct.pack("<BHQ", 0, length, 0)

    def write(where, word, bytes_=False):
        return struct.pack("<BHQ", 255 if bytes_ else 192, where, word)

    take = struct.pack("<BHQ", 96, 0, 0)
    yield "messages", put(1) + put(100) + take + put(60000) + take + take + take
    yield "full", put(65535) * 5 + take * 5
    yield "written", put(8) + write(0, 1 << 63) + take
    yield "read", put(8) + write(64, 77) + put(8) + take * 2
    yield "length", put(8) + write(0, 1 << 40, True) + take
    yield "grown", put(8) + write(0, 60000, True) + write(0, 60008) + take * 2


# --- codec: the chain, what is done, the number of elements; then bytes or an array ---


def codec():
    def begin(chain, done, count):
        return struct.pack("<BBH", chain, done, count)

    floats = struct.pack("<20f", *(x * 0.37 * (-1) ** x for x in range(20)))
    odd = struct.pack("<8I", 0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x7F7FFFFF, 0x38800000)
    def pieces(one):  # of 80 bytes before
        return struct.pack("<QI", 80, len(one)) + one

    stored = b"\xf0" + bytes([80 - 15]) + floats  # an lz4 block of literals
    frame_ = b"\x28\xb5\x2f\xfd" + bytes([0x20, 80]) + struct.pack("<I", 80 << 3 | 1)[:3] + floats  # zstd, one raw block
    for chain in range(20):
        yield f"array_{chain}", begin(chain, 2, 0) + floats + odd
        yield f"bytes_{chain}", begin(chain, 3, 0) + floats
        yield f"decode_{chain}", begin(chain, 1, 20) + floats
    yield "raw", begin(0, 0, 20) + floats + b"\0" * 4
    yield "indices", begin(10, 1, 20) + b"\x41\0" + floats[:8]
    yield "lz4", begin(16, 1, 20) + pieces(stored)
    yield "zstd", begin(15, 1, 20) + pieces(frame_)
    yield "nothing", begin(0, 0, 0)


# --- Messages of channels ---


def item():
    def header(kind, edge=0, parts=0, number=0, bytes_=0):  # from actor 1 to actor 0
        return struct.pack("<6I6Q", kind, edge, 1, 0, 0, parts, number, 5, 6, 7, 0, bytes_)

    def begin(chain, kind):
        return bytes([chain + 6 * kind])

    def part(dtype, count, bytes_):
        return struct.pack("<2I2Q", dtype, 0, count, bytes_)

    def framed(*messages):
        return b"".join(struct.pack("<H", len(m) | 1 << 14) + m for m in messages)

    floats = struct.pack("<4f", 1, -2, 3.5, 0) + b"\0" * 4
    array = part(0, 4, 20) + floats
    two = part(0, 4, 20) + part(1, 4, 20) + floats + floats
    ends = header(3), header(3, 1)
    for chain in range(6):
        for kind in range(3):
            yield f"one_{chain}_{kind}", begin(chain, kind) + header(1, 0, 1, 0, len(array)) + array
        yield f"two_{chain}", begin(chain, 2) + header(1, 0, 2, 0, len(two)) + two
        items = [header(1, edge, 1, number, len(array)) + array for number in range(5) for edge in range(2)]
        yield f"place_{chain}", begin(chain, 4) + framed(*items, *ends)
    yield "answers", begin(0, 3) + framed(header(2, 0, 0, 1), header(2, 0, 0, 2**63), header(4), header(4, 1))
    yield "strangers", begin(0, 3) + framed(header(1, 9), header(5), header(2, 9), b"short")
    yield "ends", begin(0, 3) + framed(*ends, *ends)


# --- Keys and jobs ---


def keys():
    pair = b"# the pair of the manual of zmq_curve\npublic %s\nsecret %s\n" % (b"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", b"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6")
    yield "secret", b"\1" + pair
    yield "public", b"\0public rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n"
    yield "empty", b"\0"


def config():
    yield "job", (b"# A job.\nexogym: 1\nname: compare\nseed: 42\nplugins: [build/libint8.so]\n\nmodel: mnist_cnn   # a name\n"
                  b"data: {name: text, path: text.txt, stride: block, end_pc: 90 %}\nnodes: 4\ntrain:\n  max_steps: 150\n  val_size: none\n"
                  b"strategy:\n  optimizer: {name: adamw, lr: 3e-4, betas: [0.9, 0.95], groups: [{match: '*.bias', weight_decay: 0}]}\n"
                  b"  lr_scheduler: lambda_cosine\n  cosine_anneal: true\ncompare:\n  - ddp\n  - {name: diloco, H: 20}\n"
                  b"presets:\n  quick:\n    train.max_steps: 40\n    compare.1.H: 10\n")
    yield "links", (b"clock: virtual\nhosts: {home: {count: 4, up: 20 Mbit/s, down: 100 Mbit/s}}\nlinks: {default: {latency: 20 ms}}\n"
                    b"compute: {step: 50 ms}\nedges: [{carries: gradients, codec: {name: int8, block: 64}}]\nseeds: [9, 4]\n")
    yield "kinds", b"a: 1\nb: [1, 2.5, true, ~, 'text', \"more\"]\nc: {d: {e: -1e300}, f: []}\ng: |\n  lines\n  of it\n"
    yield "anchors", b"a: &x {b: 1}\nc: *x\n<<: *x\n"
    yield "set", b"a.b.0=[1, 2]\n"


# --- Graphs, of the classes in tests/support/graph_classes.h ---


def graph():
    yield "small", b"actors: {a: {class: maker}, b: {class: learner}}\nedges: [{from: a, to: b, carries: experience}]\n"
    yield "actors", (b"actors:\n  a: {class: talker, count: 3, resources: {cpus: 1, memory: 2 GiB}, restart: {when: always, max: 3, "
                     b"within: 60 s, backoff: 1 ms}}\n  m: {class: train_node, config: {model: mlp, data: x, strategy: ddp}}\n"
                     b"edges:\n  - {from: a, to: a, carries: state, route: gossip, buffer: {on_full: latest}}\n")
    yield "hosts", (b"hosts: {h: {count: 2, up: 20 Mbit/s, down: unlimited, latency: 1 ms, speed: 0.5, resources: {cpus: 4},\n"
                    b"  schedule: [{at: 1 s, for: 2 s, every: 1 h, factor: 0}]}, dc: {}}\n"
                    b"actors: {a: {class: maker, count: 3, host: [h, dc], compute: {act: 1 us}}, b: {class: learner, host: h_1}}\n"
                    b"edges: [{from: a, to: b, carries: experience, item: 1.5 KiB, interval: 2}]\n"
                    b"links: {default: {bandwidth: 1 Gbit/s, loss: 1 %}, x: {from: h, to: dc, jitter: 2 ns, transport: ideal, "
                    b"one_way: true}}\n")
    yield "edges", (b"actors: {a: {class: maker, count: 2}, b: {class: learner, count: 3}}\n"
                    b"edges:\n  - {from: a, to: b, carries: experience, route: modulo, idle_senders: true, codec: [bf16, zstd], "
                    b"deadline: 1 min}\n  - {from: b, to: a, carries: parameters, route: broadcast, every: 2, delay: 1 s, link: l, "
                    b"name: p}\n  - {from: b, to: b, carries: gradients, codec: {name: int8, block: 64}, item: 4 MB}\nlinks: {l: {}}\n")
    yield "cycle", (b"actors: {x: {class: ping}, y: {class: pong}}\n"
                    b"edges: [{from: x, to: y, carries: ping}, {from: y, to: x, carries: pong}]\n")
    yield "variables", (b"name: '${who}'\nvariables: {n: 2, who: 'm${n}', price: '$${'}\nuntil: '${n} s'\nclock: virtual\n"
                        b"actors:\n  a:\n    class: talker\n    count: ${n}${n}\npresets: {p: {variables.n: 3, seed: 1}}\n")


# --- Safetensors files ---


def safetensors():
    def file(header, data=b"", length=None):
        return struct.pack("<Q", len(header) if length is None else length) + header + data

    def tensor(name, dtype, shape, first, last):
        return b'"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (name, dtype, shape, first, last)

    yield "empty", file(b"{}")
    yield "two", file(b'{"__metadata__":{"format":"pt"},' + tensor(b"a", b"F32", b"[2,3]", 0, 24) + b"," +
                      tensor(b"b", b"BF16", b"[]", 24, 26) + b"}   ", bytes(26))
    yield "none", file(b"{" + tensor(b"a", b"F32", b"[0,3]", 0, 0) + b"}")
    yield "overlap", file(b"{" + tensor(b"a", b"U8", b"[4]", 0, 4) + b"," + tensor(b"b", b"I8", b"[4]", 2, 6) + b"}", bytes(6))
    yield "large", file(b"{" + tensor(b"a", b"F64", b"[4294967296,4294967296]", 0, 0) + b"}")
    yield "length", file(b"{}", length=2**64 - 1)


# --- tokenizer.json, and texts ---


def tokenizer():
    def file(model='{"type": "BPE", "unk_token": "u", "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3, " ": 4}, "merges": ["a b"]}', **parts):
        return ("{" + "".join(f'"{key}": {value}, ' for key, value in parts.items()) + f'"model": {model}}}').encode()

    def sequence(kind, key, *all_):
        return f'{{"type": "{kind}", "{key}": [{", ".join(all_)}]}}'

    def replace(kind, pattern, content):
        return f'{{"type": "Replace", "pattern": {{"{kind}": "{pattern}"}}, "content": "{content}"}}'

    def split(pattern, behavior, invert="false", kind="Regex"):
        return f'{{"type": "Split", "pattern": {{"{kind}": "{pattern}"}}, "behavior": "{behavior}", "invert": {invert}}}'

    def token(number, content, **flags):
        return f'{{"id": {number}, "content": "{content}"' + "".join(f', "{key}": true' for key in flags) + "}"

    special = '{"x": {"id": "x", "ids": [1, 2], "tokens": ["a", "b"]}}'
    yield "plain", file(version='"1.0"', truncation="null")
    yield "pairs", file('{"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "ignore_merges": true}')
    yield "bytes", file('{"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "u", "vocab": {"u": 0, "<0xC3>": 1, "<0xA9>": 2}, '
                        '"merges": []}', decoder=sequence("Sequence", "decoders", replace("String", "u", " "), '{"type": "ByteFallback"}',
                                                          '{"type": "Fuse"}', '{"type": "Strip", "content": " ", "start": 1, "stop": 1}'))
    yield "added", file(added_tokens="[%s]" % ", ".join([token(5, "<s>", special=1), token(6, "[x]", lstrip=1, rstrip=1, normalized=1), token(7, "word", single_word=1)]))
    yield "normalizers", file(normalizer=sequence("Sequence", "normalizers", '{"type": "Prepend", "prepend": "_"}', replace("Regex", "[a-c]+", "b"),
                                                  *(f'{{"type": "{n}"}}' for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"))))
    yield "splits", file(pre_tokenizer=sequence("Sequence", "pretokenizers", *(split("a|\\\\s+", b) for b in ("Removed", "Isolated", "MergedWithPrevious")),
                                                split("b", "MergedWithNext", "true", "String"), split("(?i:'s)|[^\\\\s\\\\p{L}[x]]{1,3}(?!\\\\S)", "Contiguous")))
    yield "pre_tokenizers", file(pre_tokenizer=sequence("Sequence", "pretokenizers", '{"type": "Digits", "individual_digits": true}', '{"type": "Whitespace"}',
                                                        '{"type": "WhitespaceSplit"}', '{"type": "Punctuation", "behavior": "Isolated"}',
                                                        '{"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true}'))
    yield "byte_level", file(pre_tokenizer='{"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}', decoder='{"type": "ByteLevel"}',
                             post_processor='{"type": "ByteLevel", "trim_offsets": false}')
    yield "template", file(post_processor='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": '
                                          '{"id": "A", "type_id": 0}}], "pair": [], "special_tokens": ' + special + "}",
                           decoder='{"type": "Metaspace", "replacement": "a", "prepend_scheme": "always"}')


def tokenizer_text():
    texts = ["", "Hello  world, it's 12 <s>x</s>\n", "\u00e9\u4f60\U0001f600\u2581a \u2581", "ab" * 50, "aabcdabcbbcd" * 12, "\0a\0"]
    for kind in range(4):
        for i, text in enumerate(texts):
            yield f"text_{kind}_{i}", bytes([kind]) + text.encode()
        yield f"wrong_{kind}", bytes([kind]) + b"\xff\xfe \xc3\xa9\xe2\x82 \xf0\x9f\x98\x80\xf0\x9f"


# --- config.json of a Hugging Face directory ---


def decoder_config():
    golden = here.parent.parent / "golden" / "decoders"
    yield from ((path.parent.name, path.read_bytes()) for path in sorted(golden.glob("*/config.json")))
    yield "bloom_older", b'{"model_type": "bloom", "n_embed": 8, "num_attention_heads": 2, "seq_length": 64, "n_inner": null, "offset_alibi": 1}'
    yield "llama_older", (b'{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "rope_theta": 1e4, '
                          b'"rope_scaling": {"type": "linear", "factor": 2.0}}')


# --- train.proto: which actor, then calls of the methods in the order of `asked` in arguments.c ---

taken = ["start", "setup", "train", "average", "result", "evaluate", "correlate", "save", "change", "deliver", "abandon", "waits",
         "start_graph", "connect", "run", "report", "look", "waits_graph", "cancel", "channel", "collective", "change_graph", "abandon_graph",
         "report", "regroup", "give", "join", "save_server", "end_life", "relink"]


def take(method, args=b""):
    return bytes([taken.index(method)]) + struct.pack("<H", len(args)) + args


def arguments():
    node, actor_, here = b"\0", b"\1", b"\2"
    text = "actors: {a: {class: talker}, b: {class: talker}}\nedges: []\n"
    collective = struct.pack("<IIII", 1, 0, 0, 0) + bytes(56)  # runtime/comm/far_impl.h
    item_ = struct.pack("<IIII", 2, 0, 0, 0) + bytes(8) + struct.pack("<Q", 1) + bytes(40)  # a credit: runtime/graph/item.h
    yield "train", node + take("train", message((1, 1))) + take("average") + take("result", message((1, 0))) + take("evaluate", message((1, 1))) + take("correlate")
    yield "early", node + take("evaluate", message((1, 1))) + take("result", message((1, 0))) + take("setup")
    yield "beyond", node + take("train", message((1, 2**63))) + take("evaluate", message((1, 7))) + take("train")
    yield "save", node + take("save", message((1, 5), (2, "/nowhere"))) + take("save", message((1, 5), (2, b"\xff"))) + take("save_server", message((1, "/nowhere")))
    yield "document", node + take("start", message((1, "{run: r, rank: 0}"))) + take("change", message((1, text)))
    yield "abandon", node + take("abandon", message((1, 0), (2, "it is over"))) + take("waits", message((1, 1), (2, 0)))
    yield "elastic", node + take("report") + take("regroup", message((1, 1), (2, 0))) + take("give") + take("join", message((1, 1), (2, 1), (3, 0), (4, 0)))
    yield "deliver", node + take("deliver", collective) + take("deliver", collective[:20])
    yield "here", here + take("train", message((1, 1))) + take("average") + take("evaluate", message((1, 1))) + take("correlate")
    yield "here_mail", here + take("deliver", collective) + take("abandon", message((1, 0), (2, "it is over"))) + take("change", message((1, text)))
    yield "run", actor_ + take("look") + take("waits_graph", message((1, 10**9))) + take("run") + take("report")
    yield "cancel", actor_ + take("cancel") + take("abandon_graph", message((1, "it has failed"))) + take("connect")
    yield "lives", actor_ + take("relink", message((1, b"\1\0"))) + take("end_life", message((1, "it has failed"))) + take("relink", message((1, b"\xff\xff\xff\1")))
    yield "change", actor_ + take("change_graph", message((1, 1), (2, 0), (3, text))) + take("change_graph", message((1, 1), (2, 1), (3, text)))
    yield "channel", actor_ + take("channel", item_) + take("channel", item_[:30]) + take("collective", collective)
    yield "start", actor_ + take("start_graph", message((1, "fuzz"), (2, "graph.yaml"), (3, text), (4, 0), (5, 0)))


# --- Shards, bare numbers and texts ---


def text_data():
    def shard(tokens, width=2, version=1, vocabulary=10, end=-1, count=None):
        header = b"EXOTOKEN" + struct.pack("<IIQQi", version, width, len(tokens) if count is None else count, vocabulary, end)
        return header.ljust(128, b"\0") + b"".join(t.to_bytes(width, "little") for t in tokens)

    some = [i % 10 for i in range(40)]
    yield "shard", b"\1\0" + shard(some)
    yield "wrong_checksum", b"\0\0" + shard(some)
    yield "separate", b"\1\1" + shard(some, end=3)
    yield "wide", b"\1\0" + shard(some, width=4, vocabulary=100000, end=9)
    yield "beyond", b"\1\0" + shard(some[:20] + [10] + some, vocabulary=10)
    yield "cut", b"\1\0" + shard(some)[:-3]
    yield "count", b"\1\0" + shard(some, count=2**64 - 1)
    yield "width", b"\1\0" + shard(some, width=3)
    yield "vocabulary", b"\1\0" + shard(some, vocabulary=2**40)
    yield "u16", b"\2\0" + struct.pack("<40H", *some)
    yield "u32", b"\3\1" + struct.pack("<40I", *some)
    for limit in (0, 5, 60):
        yield f"lines_{limit}", bytes([4, limit]) + b"a line\nand another one\n\n1.\n2.\n" * 4
        yield f"characters_{limit}", bytes([4, limit]) + "\u00e9\u4f60\U0001f600a\u2581\ue000".encode() * 5
        yield f"wrong_{limit}", bytes([4, limit]) + b"\x80\x80\x80\x80\x80\xff\xed\xa0\x80\xc3" * 4


targets = (wire, handshake, cluster, arguments, ring_steps, codec, item, keys, config, graph, safetensors, tokenizer, tokenizer_text, decoder_config,
           text_data)
wanted = {target.__name__.removesuffix("_steps"): dict(target()) for target in targets}
if sys.argv[1:] == ["--check"]:
    kept = {folder.name: {file.name: file.read_bytes() for file in folder.iterdir()} for folder in here.iterdir()}
    others = sorted(f"{folder}/{name}" for folder in {*kept, *wanted}
                    for name in {*kept.get(folder, {}), *wanted.get(folder, {})}
                    if kept.get(folder, {}).get(name) != wanted.get(folder, {}).get(name))
    sys.exit("not as tests/fuzz/corpus.py writes it: " + ", ".join(others) if others else 0)
for name, inputs in wanted.items():
    shutil.rmtree(here / name, ignore_errors=True)
    (here / name).mkdir(parents=True)
    for file, data in inputs.items():
        (here / name / file).write_bytes(data)
