#!/usr/bin/env bash
# exogym graph: what is right is expanded, drawn and planned; each kind of mistake is one line with
# its place and exit status 2.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

plugin=$EXO_BUILD/tests/plugins/graphs.so
head="plugins: [$plugin]"
actors='actors: {a: {class: maker, count: 2}, b: {class: learner, count: 3}}'

# bad MESSAGE LINE...: a file of these lines is refused with "exogym: bad.yaml:MESSAGE".
bad() {
    local message=$1
    shift
    printf '%s\n' "$head" "$@" >bad.yaml
    expect 2 "exogym: bad.yaml:$message" graph check --load-plugins bad.yaml
}
# bad_edge MESSAGE KEYS: likewise an edge besides one that is right; the message is of line 3.
bad_edge() {
    bad "3:$1" "$actors" "edges: [{from: a, to: b, carries: experience}, {$2}]"
}

# --- What is right
# ----------------------------------------------------------------------------------------------------

cat >graph.yaml <<END
exogym: 1
plugins: [$plugin]
variables: {makers: 2}
hosts:
  home: {count: 2, up: 20 Mbit/s, resources: {cpus: 4}}
  dc: {up: 1 Gbit/s, down: 1 Gbit/s}
actors:
  maker: {class: maker, count: '\${makers}', host: home, resources: {cpus: 2}, compute: {act: 5 ms}}
  trainer: {class: learner, host: dc}
edges:
  - {from: maker, to: trainer, carries: experience, item: 1 MB}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, codec: bf16, buffer: {on_full: latest}}
links: {default: {bandwidth: 100 Mbit/s, latency: 20 ms}}
presets: {many: {variables.makers: 4}}
END
ok graph check --load-plugins graph.yaml
[ "$(cat out)" = 'graph: 3 actors, 2 edges, 3 hosts, real clock' ] || fail "check: $(cat out)"
ok graph check --load-plugins graph.yaml --preset many
has out 'graph: 5 actors'
ok graph check --load-plugins graph.yaml --preset many --set variables.makers=1 --set clock=virtual
has out 'graph: 2 actors, 2 edges, 3 hosts, virtual clock'

ok graph expand --load-plugins graph.yaml
cp out expanded.yaml
has out '    buffer: {capacity: 1, on_full: latest}'
ok graph expand --load-plugins expanded.yaml
sed 's/^name: expanded$/name: graph/' out | cmp -s - expanded.yaml || fail 'what is expanded is not the same graph'
ok graph plan --load-plugins graph.yaml
grep -qE '^maker>trainer:experience +one +2 -> 1 +1.00 MB +1.00 MB +2.00 MB +438 ms +438 ms$' out ||
    fail "plan: $(cat out)"
grep -qE '^trainer>maker:parameters +broadcast +1 -> 2 +\? +\? +\? +\? +\?$' out || fail "plan: $(cat out)"
has out 'a step of maker: 5 ms of compute, 0 s of exchange: 5 ms'
ok graph plan --load-plugins graph.yaml --json
[ "$(json out encoded_bytes)" = 1000000.0 ] || fail "plan --json: $(cat out)"
has out '"item_bytes": null'

ok graph dot --load-plugins graph.yaml
has out '"maker" -> "trainer" [label="experience\none\n100 Mbit/s, 20 ms"];'
ok graph dot --load-plugins graph.yaml -o graph.dot
[ "$(cat out)" = graph.dot ] || fail "dot: $(cat out)"
has graph.dot 'subgraph "cluster_0"'
if command -v dot >/dev/null; then
    ok graph dot --load-plugins graph.yaml -o graph.svg
    has graph.svg '<svg'
    ok graph dot --load-plugins graph.yaml -o graph.png
    [ "$(head -c 4 graph.png | tail -c 3)" = PNG ] || fail 'dot: no picture'
fi
mkdir empty
(
    PATH=$PWD/empty
    "$EXOGYM" graph dot --load-plugins graph.yaml -o none.svg 2>err
    echo $? >status
)
[ "$(cat status)" = 1 ] || fail "without graphviz: ended with $(cat status)"
has err "exogym: a picture needs graphviz's program dot, which is not installed (Debian: apt install graphviz); without it, write to a file that ends with .dot"
[ ! -e none.svg ] || fail 'without graphviz: left a file'
# A dot that ends before it has read a graph, which no pipe takes whole.
{
    printf '%s\n' "$head" 'actors:'
    seq -f "  an_actor_with_a_name_that_is_as_long_as_names_may_be_in_a_graph_that_has_very_many_actors_%04.0f: {class: talker}" 1000
} >large.yaml
mkdir early
printf '#!/bin/sh\nexit 3\n' >early/dot
chmod +x early/dot
PATH=$PWD/early:$PATH expect 1 "exogym: graphviz's dot could not draw the graph" graph dot --load-plugins large.yaml -o none.svg
[ ! -e none.svg ] || fail 'dot that ends early: left a file'

# --- Jobs
# -------------------------------------------------------------------------------------------------------------

ok graph check --load-plugins job.yaml
[ "$(cat out)" = 'small/ddp: 2 actors, 1 edge, real clock
small/diloco: 2 actors, 1 edge, real clock
small/sparta: 2 actors, 1 edge, real clock' ] || fail "check of a job: $(cat out)"
ok graph expand --load-plugins job.yaml --run diloco
has out 'class: train_node'
has out '    carries: parameters'
has out '    interval: 4'
has out '    deadline: 10 min'
cp out diloco.yaml
ok graph expand --load-plugins diloco.yaml
cmp -s out <(tail -n +2 diloco.yaml) || fail "a job's graph does not read back the same: $(diff out diloco.yaml)"
numel=101770
ok graph plan --load-plugins job.yaml --json
[ "$(sed -n 's/^ *"item_bytes": \([0-9.]*\),$/\1/p' out | tr '\n' ' ')" = "$((4 * numel)).0 $((4 * numel)).0 $((4 * numel / 10)).0 " ] ||
    fail "plan of a job: $(cat out)"
[ "$(sed -n 's/^ *"bytes_per_step": \([0-9.]*\),\{0,1\}$/\1/p' out | tr '\n' ' ')" = "$((8 * numel)).0 $((2 * numel)).0 $((8 * numel / 10)).0 " ] ||
    fail "plan of a job: $(cat out)"
expect 2 'exogym: the job has 3 runs: choose one with --run' graph dot --load-plugins job.yaml
expect 2 'exogym: --run fsdp: the job has no such run; it has: ddp, diloco, sparta' graph plan --load-plugins job.yaml --run fsdp
expect 2 'exogym: --run ddp: this is a graph, not a job with runs' graph plan --load-plugins graph.yaml --run ddp

# bad_job ASSIGNMENT MESSAGE
bad_job() {
    expect 2 "exogym: --set ${1%%=*}: $2" graph check --load-plugins job.yaml --set "$1"
}
cat >network.yaml <<END
$(cat job.yaml)
hosts: {home: {count: 2, up: 8 Mbit/s}, dc: {}}
links: {default: {latency: 5 ms}}
compute: {step: 50 ms}
edges: [{carries: gradients, codec: bf16}]
END
ok graph expand --load-plugins network.yaml --run ddp
has out '    host: [home, dc]'
has out '    compute: {step: 50 ms}'
has out '    codec: bf16'
ok graph plan --load-plugins network.yaml --run ddp
has out 'a step of node: 50 ms of compute'
bad_job 'edges=[{carries: gradient}]' "edges: no strategy of this job sends 'gradient'; did you mean 'gradients'?"
bad_job 'edges=[{carries: activations}]' "edges: no strategy of this job sends 'activations'; they send: gradients, parameters"
bad_job 'edges=[{codec: bf16}]' "edges: the key 'carries' is missing"
bad_job 'edges=[{carries: gradients, route: gossip}]' "unknown key 'route'; known are: carries, name, codec, deadline, link"
bad_job 'edges=[{carries: gradients}, {carries: gradients}]' "edges: there is already an entry that carries 'gradients'"
bad_job 'edges=[gradients]' 'edges: expected a mapping with carries'
bad_job 'edges=[{carries: gradients, codec: zstd}]' \
    'codec: an all_reduce needs one that remembers nothing and has a fixed size, not {name: zstd, level: 3}'
bad_job 'compute={stop: 1 ms}' "unknown key 'stop'; did you mean 'step'?"
bad_job 'links={default: {latency: 5}}' "latency: '5' has no unit; expected a time such as 20 ms"
bad_job 'clock=fast' "clock: expected one of real, virtual, got 'fast'"

# Over a network numbers stay the same to the bit; a codec changes them.
ok run job.yaml --set 'compare=[ddp]' --set train.max_steps=3 --no-plot --save-dir plain --json
plain=$(json out sha256)
ok run job.yaml --set 'compare=[ddp]' --set train.max_steps=3 --no-plot --save-dir far --json --set clock=virtual \
    --set 'links={default: {latency: 5 ms}}' --set 'compute={step: 50 ms}'
[ "$(json out sha256)" = "$plain" ] || fail 'a network changes numbers'
ok run job.yaml --set 'compare=[ddp]' --set train.max_steps=3 --no-plot --save-dir far2 --json --set 'edges=[{carries: gradients, codec: bf16}]'
[ "$(json out sha256)" != "$plain" ] || fail 'a codec changes nothing'

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

# The top level and actors
bad "2:1: unknown key 'actor'; did you mean 'actors'?" 'actor: {}'
bad "1:1: the key 'actors' is missing" 'edges: []'
bad "3:1: duplicate key 'actors', first in line 2" 'actors: {a: {class: talker}}' 'actors: {}'
bad "2:8: clock: expected one of real, virtual, got 'fast'" 'clock: fast' "$actors"
bad "2:8: until: '20' has no unit; expected a time such as 20 ms" 'until: 20' "$actors"
bad "2:21: there is no graph class 'makr'; did you mean 'maker'?" 'actors: {a: {class: makr}}'
bad "2:13: actor 'a': the key 'class' is missing" 'actors: {a: {count: 2}}'
bad '2:35: count must be at least 1, got 0' 'actors: {a: {class: maker, count: 0}}'
bad '2:47: 65537 actors so far: a graph has at most 65536' 'actors: {a: {class: talker, count: 65536}, b: {class: talker}}'
bad "2:37: unknown key 'lenght'; did you mean 'length'?" 'actors: {a: {class: maker, config: {lenght: 2}}}'
bad '2:36: 13 is unlucky' 'actors: {a: {class: maker, config: {length: 13}}}'
bad "2:38: unknown key 'lern'; did you mean 'learn'?" 'actors: {a: {class: maker, compute: {lern: 3 ms}}}'
bad '2:43: restart: max says nothing without when: on_failure or when: always' 'actors: {a: {class: maker, restart: {max: 3}}}'
bad "2:13: actor 'a': the output 'experience' of class 'maker' needs an edge: {from: a, to: ..., carries: experience}" "$actors"

# Variables and files
bad "2:8: there is no variable 'n'; there are none" 'until: ${n} s' "$actors"
bad "3:8: there is no variable 'cuont'; did you mean 'count'?" 'variables: {count: 2}' 'until: ${cuont}' "$actors"
bad "2:11: cannot read 'none.yaml': there is no such file" 'include: [none.yaml]'
bad "2:11: include: 'bad.yaml' includes itself, or a file that does" 'include: [bad.yaml]'
printf 'actors:\n  a: {class: maker}\n' >part.yaml
bad "4:3: duplicate actor 'a', first in part.yaml:2:3" 'include: [part.yaml]' 'actors:' '  a: {class: learner}'
expect 2 'exogym: --preset few: the graph has no such preset; it has: many' graph check --load-plugins graph.yaml --preset few
expect 2 'exogym: --set variables.maker: no value has ${maker}; did you mean the variable '"'makers'?" graph check --load-plugins graph.yaml --set variables.maker=3
expect 2 'exogym: --set actors.maker.count: count must be at least 1, got 0' graph check --load-plugins graph.yaml --set actors.maker.count=0

# Hosts and links
bad "2:17: up: '20' has no unit; expected a rate such as 100 Mbit/s" 'hosts: {h: {up: 20}}' "$actors"
bad "3:34: there is no host 'hom'; did you mean 'home'?" 'hosts: {home: {count: 2}}' 'actors: {a: {class: maker, host: hom}}'
bad "3:13: actor 'a': the key 'host' is missing: which of the hosts is it on?" 'hosts: {g: {}, h: {}}' "$actors"
bad "3:35: host 'h_0' has 4 of 'cpus', and with 't_2' its actors need 6: there must be more hosts, or fewer actors" \
    'hosts: {h: {count: 2, resources: {cpus: 4}}}' 'actors: {t: {count: 3, resources: {cpus: 3}, class: talker}}'
bad "2:30: bandwidth: 'gbit/s' is no unit of a rate; did you mean 'Gbit/s'?" 'links: {default: {bandwidth: 1 gbit/s}}' "$actors"
bad '2:25: loss must be at most 0.99, got 100 %' 'links: {default: {loss: 100 %}}' "$actors"
bad "2:33: link 'y': 'x' is between the same hosts already, in bad.yaml:2:12" \
    'links: {x: {from: a, to: b}, y: {from: b, to: a}}' "$actors"

# Edges
bad_edge "62: there is no actor 'c'; there are: a, b" 'from: b, to: c, carries: parameters'
bad_edge "48: edge: the key 'from' is missing" 'to: a, carries: parameters'
bad_edge "74: there is no port of class 'learner' (of actor 'b') called 'paramters'; did you mean 'parameters'?" \
    'from: b, to: a, carries: paramters'
bad_edge "74: 'parameters' of class 'maker' is an input, but the edge needs an output of 'a' there" \
    'from: a, to: b, carries: parameters'
bad_edge "74: 'gradients' of class 'learner' is a collective: its edge has from and to the same, and the route all_reduce" \
    'from: b, to: a, carries: gradients'
bad_edge "48: there is already an edge from 'a' to 'b' that carries 'experience', in bad.yaml:3:9" \
    'from: a, to: b, carries: experience'
bad_edge "93: route one needs one target, or as many as there are senders: there are 3 of 'b' and 2 of 'a'; round_robin and modulo fit any" \
    'from: b, to: a, carries: parameters, route: one'
bad_edge '100: idle_senders is for the route modulo, not for round_robin' \
    'from: b, to: a, carries: parameters, idle_senders: true'
bad_edge '122: on_full: latest keeps one item: capacity must be 1, got 3' \
    'from: b, to: a, carries: parameters, buffer: {on_full: latest, capacity: 3}'
bad_edge "92: there is no link 'wan'; there are none" 'from: b, to: a, carries: parameters, link: wan'
bad_edge "93: there is no codec 'bf61'; did you mean 'bf16'?" 'from: b, to: a, carries: parameters, codec: bf61'
bad "3:35: 'experience' is 'text' where 't' sends it and 'rollout' where 'b' takes it" \
    'actors: {t: {class: text}, b: {class: learner}}' 'edges: [{from: t, to: b, carries: experience}]'
bad "3:49: route gossip needs at least 2 of 't' to choose from; there is 1" \
    'actors: {t: {class: talker}}' 'edges: [{from: t, to: t, carries: state, route: gossip}]'
bad "3:9: these can wait for each other for ever: x -> y -> x (edges 'x>y:ping', 'y>x:pong'); let one of the edges drop (buffer: {on_full: latest}), or end at an actor that sends before it waits" \
    'actors: {x: {class: ping}, y: {class: pong}}' 'edges: [{from: x, to: y, carries: ping}, {from: y, to: x, carries: pong}]'

# --- The command line
# -------------------------------------------------------------------------------------------------

see='(see `exogym help graph`)'
expect 2 "exogym: graph: expected check, expand, dot, plan, apply or schema $see" graph
expect 2 "exogym: graph: expected check, expand, dot, plan, apply or schema, got 'chek' $see" graph chek graph.yaml
expect 2 "exogym: graph: check which graph or job? FILE is missing $see" graph check --load-plugins
expect 2 "exogym: graph: 'graph.yaml' is one word too many $see" graph schema graph.yaml
expect 2 "exogym: graph: --output is for dot $see" graph plan --load-plugins graph.yaml -o x.svg
expect 2 "exogym: graph: --json is for plan $see" graph check --load-plugins graph.yaml --json
expect 2 "exogym: 'graph.pdf': the file's name ends with .svg, .png or .dot" graph dot --load-plugins graph.yaml -o graph.pdf
expect 1 "exogym: cannot read 'none.yaml': No such file or directory" graph check --load-plugins none.yaml
ok list classes --plugin "$plugin"
has out 'train_node       one of the nodes that train a model under a strategy'
has out 'maker            makes experience'
# --- Stalls
# ---------------------------------------------------------------------------------------------------------------------

cat >hashed.yaml <<'YAML'
actors:
  maker: {class: rollout_maker, count: 3}
  trainer: {class: policy_trainer, count: 2}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast}
  - {from: trainer, to: trainer, carries: gradients}
YAML
ok graph check --load-plugins hashed.yaml
[ ! -s err ] || fail "a sound graph is warned of: $(cat err)"
expect 2 "exogym: --set actors.trainer.config.minibatches: minibatches: 5000 is more than the 2048 samples of a batch of 'trainer': \
4 items of 'maker', each of 128 steps in 4 environments" graph check --load-plugins hashed.yaml --set actors.trainer.config.minibatches=5000
ok graph check --load-plugins hashed.yaml --set edges.0.route=hash
has err "exogym: warning: hashed.yaml:5:5: this can stall: trainer_0 waits to receive on 'maker>trainer:experience' from maker_0, \
maker_0 waits to send on 'maker>trainer:experience' to trainer_1, trainer_1 waits in 'trainer>trainer:gradients' for trainer_0"

# --- What has no effect
# ------------------------------------------------------------------------------------------------

cat >idle.yaml <<'YAML'
hosts: {h: {count: 2, queue: 5 ms}, g: {schedule: [{factor: 0.5}]}, f: {schedule: [{factor: 0}]}}
links: {near: {from: h, to: g, one_way: true}, far: {}, back: {from: f, to: g, schedule: [{factor: 2}]}}
actors:
  maker: {class: rollout_maker, host: h, config: {synchronous: true, wait_for_parameters: true}}
  other: {class: rollout_maker, host: h}
  trainer: {class: policy_trainer, count: 2, host: g}
  writer: {class: experience_maker, host: h, config: {model: &m {name: gpt, layers: 1, heads: 2, width: 8, context: 8, vocabulary: 7},
      prompts: {tokens: [[1]]}, reward: {name: share, token: 5}, answers: 2, generate: {max_new_tokens: 3}}}
  reader: {class: ppo_trainer, count: 2, host: g, config: {model: *m, algorithm: grpo, batch: 2, minibatches: 5}}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: other, to: trainer, carries: experience}
  - {from: trainer, to: other, carries: parameters}
  - {from: writer, to: reader, carries: experience, route: listed, targets: [reader_0, reader_1]}
  - {from: reader, to: reader, carries: gradients}
YAML
ok graph check idle.yaml
grep -v 'cannot prove' err >warned
diff warned - <<'END' || fail 'graph check warns of something else'
exogym: warning: idle.yaml:1:30: host 'h': queue says nothing without `up`, the rate that fills it
exogym: warning: idle.yaml:1:51: host 'g': schedule says nothing without rates, `up` or `down`, that it multiplies
exogym: warning: idle.yaml:2:53: link 'far' is of no edge: name it in an edge (link: far), or give it `from` and `to`
exogym: warning: idle.yaml:2:90: link 'back': schedule says nothing without a bandwidth that it multiplies
exogym: warning: idle.yaml:2:63: link 'back' is unused: no edge leads from one of its ends to the other
exogym: warning: idle.yaml:9:111: minibatches: 5 are more than the 4 answers of a batch, 2 items of 'writer' with 2 each: the others are left out
exogym: warning: idle.yaml:4:91: wait_for_parameters says nothing without an edge that carries parameters to 'maker'
exogym: warning: idle.yaml:4:64: synchronous says nothing without an edge that carries parameters to 'maker'
exogym: warning: idle.yaml:6:12: the 2 trainers 'trainer' learn apart, and 'other' plays with the newest version of any: to let them learn as one, add {from: trainer, to: trainer, carries: gradients, route: all_reduce}
END

# Texts are read as bytes unless they have a tokenizer, also for a model that has another one.
mkdir gpt2
cp "$EXO_SOURCE"/tests/golden/decoders/gpt2/* "$EXO_SOURCE/tests/golden/tokenizers/gpt2/tokenizer.json" gpt2/
printf '{"prompt": "a", "answer": "b"}\n' >answers.jsonl
cat >bytes.yaml <<'YAML'
actors:
  trainer: {class: sft_trainer, config: {model: {name: gpt, path: gpt2}, data: {path: answers.jsonl}}}
YAML
ok graph check bytes.yaml
has err "exogym: warning: bytes.yaml:2:80: data: texts are read as bytes, although '$(realpath gpt2)' has a tokenizer: add tokenizer: $(realpath gpt2), or tokenizer: bytes"
ok graph check bytes.yaml --set actors.trainer.config.data.tokenizer=bytes
grep 'read as bytes' err && fail 'a tokenizer that is named is warned of'
cat >idle_job.yaml <<'YAML'
model: mlp
data: {name: synthetic, count: 64}
nodes: 2
train: {max_steps: 1, batch_size: 4}
compare: [ddp, {name: diloco, H: 1}]
hosts: {a: {queue: 5 ms}, b: {up: 1 Gbit/s}, c: {}}
links: {default: {bandwidth: 1 Gbit/s}, x: {from: a, to: c, bandwidth: 1 Mbit/s}}
YAML
ok graph check idle_job.yaml
diff err - <<'END' || fail 'graph check warns of something else in a job'
exogym: warning: idle_job.yaml:6:20: host 'a': queue says nothing without `up`, the rate that fills it
exogym: warning: idle_job.yaml:7:44: link 'x' is unused: no edge leads from one of its ends to the other
END
# So does a run, before it begins, and a plan of its memory.
ok run idle_job.yaml --no-plot --set clock=virtual
grep '^exogym: warning: ' err >warned
"$EXOGYM" run idle_job.yaml --dry-run 2>dry_warned >out || fail "--dry-run: $(cat dry_warned)"
"$EXOGYM" graph check idle_job.yaml 2>expected >out
diff warned expected && diff dry_warned expected || fail 'a run warns of something else'
ok run idle_job.yaml --dry-run --set 'links={defautl: {latency: 5 ms}}'
has err "link 'defautl' is of no edge: name it in an edge (link: defautl), or give it \`from\` and \`to\`; or is 'default' meant?"
cat >drops.yaml <<'YAML'
actors:
  maker: {class: rollout_maker, count: 3, config: {synchronous: true}}
  trainer: {class: policy_trainer, config: {batch: 1, max_staleness: 1, updates: 12}}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, every: 3, buffer: {on_full: latest}}
YAML
ok graph check drops.yaml
has err "exogym: warning: drops.yaml:3:70: this can stall: 'maker' waits for one version in 3, and 'trainer' drops what it makes when it is older \
than 1: set max_staleness to at least 2"
ok graph check drops.yaml --set actors.trainer.config.max_staleness=2
[ ! -s err ] || fail "nothing is dropped there: $(cat err)"
cat >other.yaml <<'YAML'
actors:
  maker: {class: rollout_maker, config: {environment: {name: cartpole, max_steps: 200}}}
  trainer: {class: policy_trainer, config: {environment: cartpole, updates: 12}}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
YAML
ok graph check other.yaml
has err "exogym: warning: other.yaml:3:58: 'trainer' is evaluated in 'cartpole' with other options than those with which 'maker' plays it (other.yaml:2:55)"
ok graph check other.yaml --set 'actors.trainer.config.environment={max_steps: 200}'
[ ! -s err ] || fail "the same environment: $(cat err)"
ok graph check other.yaml --set actors.maker.config.environment.max_steps=500
[ ! -s err ] || fail "what is the default is no other option: $(cat err)"
grep -v -e hosts: -e links: idle.yaml | sed 's/host: [gh], //; s/, host: [gh]//' >engine.yaml
ok graph check engine.yaml --set edges.4.engine=gpu
has err "exogym: warning: --set edges.4.engine: edge 'reader>reader:gradients': engine gpu reduces on the host, because 'reader' computes on the CPU"
"$EXOGYM" graph check engine.yaml --set edges.4.engine=nccl --set edges.4.equal_bits=false >out 2>err && fail 'nccl is taken for actors on the CPU'
has err "exogym: --set edges.4.engine: edge 'reader>reader:gradients': engine nccl moves data from GPU to GPU, and 'reader' computes on the CPU"

# --- A stranger's file
# ------------------------------------------------------------------------------------------------

# Who only looks runs none of its code.
cat >evil.c <<'END'
#include <stdio.h>
__attribute__((constructor)) static void
run(void)
{
    fclose(fopen("was_run", "w"));
}
END
cc -shared -fPIC evil.c -o evil.so || fail 'no plugin can be built'
sed 's|^plugins:.*|plugins: [evil.so]|' graph.yaml >evil.yaml
for what in check expand dot plan; do
    "$EXOGYM" graph $what evil.yaml >out 2>err </dev/null && fail "graph $what knows classes of a plugin that it did not load"
    has err "its plugins were not loaded: --load-plugins runs their code"
    [ ! -e was_run ] || fail "graph $what ran a plugin's code"
done
sed 's|^seed:.*|&\nplugins: [evil.so]|' job.yaml >evil_job.yaml
ok graph check evil_job.yaml
# What a plugin could not change is said without a word about plugins.
expect 2 "exogym: --set nodes: nodes must be at least 1, got 0" graph check evil_job.yaml --set nodes=0
"$EXOGYM" graph check evil_job.yaml --set 'compare=[dilcoo]' >out 2>err </dev/null && fail 'an unknown strategy is right'
has err "did you mean 'diloco'? (its plugins were not loaded"
echo 'no shared object' >evil.so
"$EXOGYM" graph check evil_job.yaml >out 2>err </dev/null && fail 'a text is a plugin'
has err "evil_job.yaml:$(grep -n '^plugins' evil_job.yaml | cut -d: -f1):11: cannot load plugin 'evil.so': it is no shared object"
cc -shared -fPIC evil.c -o evil.so || fail 'no plugin can be built'
# A job that run refuses for its strategy.
"$EXOGYM" graph check job.yaml --set 'compare=[islands]' >out 2>err </dev/null && fail 'a job with islands is right'
has err "exogym: --set compare: the strategy 'islands' sends over 2 edges"
[ ! -e was_run ] || fail "graph check of a job ran a plugin's code"
sed 's|^plugins:.*|plugins: [none.so]|' evil_job.yaml >none_job.yaml
"$EXOGYM" graph check none_job.yaml >out 2>err </dev/null && fail 'graph check does not miss a plugin'
has err "none_job.yaml:$(grep -n '^plugins' none_job.yaml | cut -d: -f1):11: plugin 'none.so': No such file"
"$EXOGYM" graph check --load-plugins evil.yaml >out 2>err </dev/null
[ -e was_run ] || fail '--load-plugins loads none'

finish
