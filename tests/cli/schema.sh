#!/usr/bin/env bash
# The schema for editors is true: it has every key that the parser knows and no other, takes every
# YAML of the repository, and refuses what the parser refuses for its form.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

ok graph schema
cp out schema.json
has schema.json '"$schema": "https://json-schema.org/draft/2020-12/schema"'

# --- Keys
# -------------------------------------------------------------------------------------------------------------

# keys_of KIND: the keys of a kind of mapping in the schema, sorted.
keys_of() {
    awk -v kind="    \"$1\": {" '
        $0 == kind { inside = 1; next }
        inside && /^    }/ { exit }
        inside && /^      "properties": {/ { properties = 1; next }
        properties && /^      }/ { exit }
        properties && /^        "[a-z_]*": {/ { gsub(/[ ":{]/, ""); print }' schema.json | LC_ALL=C sort | tr '\n' ' '
}
# knows KIND FILE: the parser lists its keys when it is asked for one that nobody would write.
nobody=qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq
knows() {
    local known
    "$EXOGYM" graph check --load-plugins "$2" >out 2>err
    grep -q "unknown key '$nobody'; known are: " err || fail "$1: $(cat err)"
    known=$(sed 's/.*known are: //; s/,//g' err | tr ' ' '\n' | LC_ALL=C sort | tr '\n' ' ')
    [ "$known" = "$(keys_of "$1")" ] || fail "$1: the parser knows '$known', the schema '$(keys_of "$1")'"
}
plugin=$EXO_BUILD/tests/plugins/graphs.so
# in_graph KIND LINE...
in_graph() {
    local kind=$1
    shift
    printf '%s\n' "plugins: [$plugin]" "$@" >keys.yaml
    knows "$kind" keys.yaml
}
in_graph graph "$nobody: 1"
in_graph host "hosts: {h: {$nobody: 1}}"
in_graph change "hosts: {h: {schedule: [{$nobody: 1}]}}"
in_graph actor "actors: {a: {$nobody: 1}}"
in_graph restart "actors: {a: {class: maker, restart: {$nobody: 1}}}"
in_graph link 'actors: {a: {class: talker}}' "links: {l: {$nobody: 1}}"
in_graph edge 'actors: {a: {class: talker}}' "edges: [{$nobody: 1}]"
in_graph buffer 'actors: {a: {class: talker, count: 2}}' \
    "edges: [{from: a, to: a, carries: state, route: gossip, buffer: {$nobody: 1}}]"
sed "1i $nobody: 1" job.yaml >keys.yaml
knows job keys.yaml
sed "s/^train: {/train: {$nobody: 1, /" job.yaml >keys.yaml
knows train keys.yaml
{
    cat job.yaml
    echo "collectives: {$nobody: 1}"
} >keys.yaml
knows collectives keys.yaml
{
    cat job.yaml
    echo "parallel: {$nobody: 1}"
} >keys.yaml
knows parallel keys.yaml
{
    cat job.yaml
    echo "edges: [{carries: gradients, $nobody: 1}]"
} >keys.yaml
knows job_edge keys.yaml

# --- Files
# ------------------------------------------------------------------------------------------------------------

if ! python3 -c 'import jsonschema, yaml; jsonschema.Draft202012Validator' 2>/dev/null; then
    [ "$failures" = 0 ] || exit 1
    echo 'python3-jsonschema or python3-yaml is not installed, so no file was validated: skipped'
    exit 77
fi
cat >validate.py <<'END'
import sys
import jsonschema
import yaml
import json

schema = json.load(open("schema.json"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
failed = False
for path in sys.argv[2:]:
    for document in yaml.safe_load_all(open(path)):
        errors = [e.message for e in validator.iter_errors(document)]
        if bool(errors) == (sys.argv[1] == "right"):
            print(f"{path}: {errors or 'taken for right'}")
            failed = True
sys.exit(failed)
END
right() {
    python3 validate.py right "$@" >log 2>&1 || fail "$(cat log)"
}
# wrong LINE...: the parser refuses it; the schema is asked for all of them at the end.
wrongs=()
wrong() {
    local file=wrong_${#wrongs[@]}.yaml
    printf '%s\n' "$@" >"$file"
    wrongs+=("$file")
    "$EXOGYM" graph check --load-plugins "$file" >out 2>&1 && fail "$*: the parser takes it"
}

mapfile -t files < <(find "$EXO_SOURCE/examples" "$EXO_SOURCE/docs" "$EXO_SOURCE/bench" -name '*.yaml')
right job.yaml "${files[@]}"
# Graphs and jobs in the documentation: each ```yaml block that has actors or a model.
awk -v n=0 '/^```yaml$/ { inside = 1; n++; next } /^```/ { inside = 0 } inside { print > ("doc_" n ".yaml") }' \
    "$EXO_SOURCE/docs/graph.md" "$EXO_SOURCE/docs/jobs.md"
mapfile -t blocks < <(grep -lE '^(actors|model):' doc_*.yaml)
[ "${#blocks[@]}" -ge 3 ] || fail "the documentation has ${#blocks[@]} graphs and jobs"
right "${blocks[@]}"
cat >graph.yaml <<END
plugins: [$plugin]
variables: {n: 2, rate: 1 Gbit/s}
until: 1.5 h
hosts: {home: {count: '\${n}', up: '\${rate}', down: unlimited, speed: 1e-1, resources: {cpus: 4, memory: 2 GiB},
    schedule: [{at: 1 min, for: 5s, factor: 0}]}, dc: {}}
actors:
  a: {class: maker, count: '\${n}', host: home, compute: {act: 0}, restart: {when: always}, config: {length: 3}}
  b: {class: learner, host: [dc, home_0]}
edges:
  - {from: a, to: b, carries: experience, codec: [bf16, {name: zstd}], item: 1.5 MiB, buffer: {on_full: latest}}
links: {default: {bandwidth: 100 Mbit/s, loss: 1 %, latency: 20 ms}, x: {from: home, to: dc, loss: 0.01}}
presets: {more: {variables.n: 4}}
END
ok graph check --load-plugins graph.yaml
right graph.yaml
ok graph expand --load-plugins graph.yaml
cp out expanded.yaml
right expanded.yaml
ok graph expand --load-plugins job.yaml
cp out expanded.yaml
right expanded.yaml

wrong 'actor: {}'
wrong 'actors: {a: {clas: maker}}'
wrong 'actors: {a: {count: 2}}'
wrong 'actors: {a: maker}'
wrong 'actors: {a: {class: maker, count: 0}}'
wrong 'actors: {a: {class: maker, compute: {act: 5}}}'
wrong 'actors: {a: {class: maker, restart: {when: often}}}'
wrong 'hosts: {h: {up: 20}}' 'actors: {a: {class: maker}}'
wrong 'hosts: {h: {up: 20 Mbps}}' 'actors: {a: {class: maker}}'
wrong 'hosts: {h: {schedule: [{at: 1 s}]}}' 'actors: {a: {class: maker}}'
wrong 'links: {default: {latency: 20}}' 'actors: {a: {class: maker}}'
wrong 'links: {default: {loss: 2}}' 'actors: {a: {class: maker}}'
wrong 'actors: {a: {class: maker}}' 'edges: [{from: a, to: a}]'
wrong 'actors: {a: {class: maker}}' 'edges: [{from: a, to: a, carries: x, route: random}]'
wrong 'actors: {a: {class: maker}}' 'edges: [{from: a, to: a, carries: x, buffer: {size: 3}}]'
wrong 'clock: fast' 'actors: {a: {class: maker}}'
wrong 'model: mlp' 'data: synthetic'
wrong 'model: mlp' 'data: synthetic' 'strategy: ddp' 'nodes: four'
wrong 'model: mlp' 'data: synthetic' 'strategy: ddp' 'train: {max_step: 3}'
wrong 'model: mlp' 'data: synthetic' 'strategy: ddp' 'edges: [{codec: bf16}]'
python3 validate.py wrong "${wrongs[@]}" >log 2>&1 || fail "$(cat log)"
finish
