#!/usr/bin/env bash
# Figures for Prometheus: `exogym status --prometheus` of a run's folder and of a cluster, read as a
# scraper would. cli/meters has the histograms.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

cat >flow.yaml <<YAML
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 200, pause_us: 10000}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
YAML

# page CODE OPTION...: whether the page can be read, and what the code says of `p`, its samples, is so.
page() {
    "$EXOGYM" status --prometheus "${@:2}" >page.prom 2>page.err &&
        python3 "$EXO_SOURCE/tests/cluster/prometheus.py" <page.prom >page.json 2>>page.err &&
        python3 -c "import json, sys
p = json.load(open('page.json'))
sys.exit(0 if ($1) else 1)"
}

# --- Runs of this host
# ------------------------------------------------------------------------------------------------

expect 2 'exogym: status: --json or --prometheus, not both (see `exogym help status`)' status --run . --json --prometheus
expect 1 'exogym: runs/flow: no run has said how it goes in this folder' status --run runs/flow --prometheus
ok run flow.yaml --set actors.source.config.items=5
ok run flow.yaml --name many --set clock=virtual --set actors.sink.count=3 --set actors.source.config.items=6
page "p['exogym_run_state{run=\"runs/flow\",state=\"finished\"}'] == 1 and
    p['exogym_sink_count_total{actor=\"sink_0\",run=\"runs/flow\"}'] == 10 and
    p['exogym_edge_items_total{edge=\"source>sink:numbers\",run=\"runs/flow\"}'] == 10 and
    p['exogym_edge_recv_blocked_seconds_total{edge=\"source>sink:numbers\",run=\"runs/flow\"}'] < 60 and
    p['exogym_run_time_seconds{clock=\"real\",run=\"runs/flow\"}'] > 0" --run runs/flow || fail "one run: $(cat page.prom page.err)"
has page.prom '# HELP exogym_sink_count_total items of numbers'
has page.prom '# HELP exogym_edge_drops_total items that on_full dropped, or that waited for a receiver that ended'
page "len([k for k in p if k.startswith('exogym_run_state')]) == 2 and
    sum(p['exogym_sink_count_total{actor=\"sink_%d\",run=\"runs/many\"}' % i] for i in range(3)) == 12 and
    p['exogym_run_time_seconds{clock=\"virtual\",run=\"runs/many\"}'] > 0" --run runs || fail "two runs: $(cat page.prom page.err)"

# What lies there is anybody's: quotes and line ends, two meters of one name, two kinds of one name.
mkdir -p 'runs/odd "\'
python3 - <<'END' >'runs/odd "\/progress.json'
import json
gauge = {"kind": "gauge", "unit": "1", "help": "a\nb\\c", "value": 1}
print(json.dumps({"state": "x\n\"", "time_s": "x", "clock": 3,
    "edges": [1, {"edge": "a\n\"\\\u00e9}", "items": 7}, {"items": -1}, {"edge": "a\n\"\\\u00e9}", "items": 8}, {"edge": "x" * 5000, "items": 9}],
    "waits": [{"actor": "a_0", "edge": "e", "kind": "send", "waited_s": 1.5, "for": "b"}, {}, 4],
    "meters": {"m\u00e9-x.y": gauge, "m__-x.y": {**gauge, "value": 2}, "n_0.same": gauge, "n_1.same": {"kind": "gauge", "value": 3},
        "n_2.same": {"kind": "histogram", "unit": "1", "help": "h", "bounds": [1], "buckets": [1, 2], "count": 3, "sum": 2},
        "t_0.wait": {"kind": "counter", "unit": "ns", "help": "h", "value": 1500000000}, "t_1.wait": {"kind": "counter", "value": 1},
        "t_0.size": {"kind": "gauge", "unit": "bytes", "help": "h", "value": 5}, "none": {**gauge, "value": None}, "bad": 3,
        "u_0.h": {"kind": "histogram", "unit": "1", "help": "h", "bounds": [2, 2], "buckets": [1, 2, 3], "count": 6, "sum": 2}, "": gauge,
        "v_0.h": {"kind": "histogram", "unit": "1", "help": "h", "bounds": [1, 1.0000000000000002, 2], "buckets": [1, 2, 3, 4], "count": 10, "sum": 2},
        "v_0.h.count": gauge, "v_0.h.sum": gauge, "v_0.h.bucket": gauge, "w_0.h.bucket": gauge, "v_0.account": gauge,
        "w_0.h": {"kind": "histogram", "unit": "1", "help": "h", "bounds": [1], "buckets": [1, 2], "count": 3, "sum": 2},
        "communication.loss": gauge, "t_2.wait": {"kind": "counter", "unit": "s", "help": "h", "value": 2},
        "t_0.all_bytes_in": {"kind": "gauge", "unit": "bytes", "help": "h", "value": 6}, "t_0.turns": {**gauge, "unit": "turns", "help": "turns of it"},
        "t_0.times": {"kind": "histogram", "unit": "ns", "help": "h", "bounds": [1e9, 2e9], "buckets": [1, 0, 0], "count": 1, "sum": 5e8},
        "l" * 3000: gauge, "t_0.rate": {"kind": "gauge", "unit": "samples/s", "help": "speed", "value": 2.5}}}))
END
page "p['exogym_t_wait_seconds_total{actor=\"t_0\",run=\"runs/odd \"\\\\\"}'] == 1.5 and
    p['exogym_t_wait_seconds_total{actor=\"t_1\",run=\"runs/odd \"\\\\\"}'] == 1e-9 and
    p['exogym_t_wait_seconds_total{actor=\"t_2\",run=\"runs/odd \"\\\\\"}'] == 2 and p['exogym_t_all_bytes_in{actor=\"t_0\",run=\"runs/odd \"\\\\\"}'] == 6 and
    p['exogym_t_times_seconds_bucket{actor=\"t_0\",le=\"2\",run=\"runs/odd \"\\\\\"}'] == 1 and p['exogym_t_times_seconds_sum{actor=\"t_0\",run=\"runs/odd \"\\\\\"}'] == 0.5 and
    p['exogym_t_size_bytes{actor=\"t_0\",run=\"runs/odd \"\\\\\"}'] == 5 and
    p['exogym_t_rate{actor=\"t_0\",run=\"runs/odd \"\\\\\"}'] == 2.5 and
    p['exogym_n_same{actor=\"n_1\",run=\"runs/odd \"\\\\\"}'] == 3 and p['exogym_m___x_y{run=\"runs/odd \"\\\\\"}'] == 1 and
    p['exogym_edge_items_total{edge=\"a\\n\"\\\\\u00e9}\",run=\"runs/odd \"\\\\\"}'] == 7 and
    p['exogym_wait_seconds{actor=\"a_0\",edge=\"e\",for=\"b\",kind=\"send\",run=\"runs/odd \"\\\\\"}'] == 1.5 and
    p['exogym_v_h_bucket{actor=\"v_0\",le=\"1\",run=\"runs/odd \"\\\\\"}'] == 3 and
    p['exogym_v_h_count{actor=\"v_0\",run=\"runs/odd \"\\\\\"}'] == 10 and p['exogym_v_account{actor=\"v_0\",run=\"runs/odd \"\\\\\"}'] == 1 and
    p['exogym_w_h_bucket{actor=\"w_0\",run=\"runs/odd \"\\\\\"}'] == 1 and
    not [k for k in p if k.startswith('exogym_communication') or 'xxx' in k or k.startswith('exogym_w_h_count') or k.startswith('exogym_none') or k.startswith('exogym_u') or k.startswith('exogym_n_same_')]" --run 'runs/odd "\' ||
    fail "odd: $(cat page.prom page.err)"
has page.prom '# HELP exogym_t_rate speed, in samples/s'
grep -qx '# HELP exogym_t_turns turns of it' page.prom || fail "a unit twice: $(grep turns page.prom)"
has page.prom '# HELP exogym_m___x_y a\nb\\c'

# --- A cluster
# ------------------------------------------------------------------------------------------------------

head
worker w1
address=ipc://$place/head
page "p['exogym_cluster_nodes{state=\"alive\"}'] == 1 and p['exogym_cluster_nodes{state=\"lost\"}'] == 0 and
    p['exogym_cluster_jobs{state=\"running\"}'] == 0 and p['exogym_cluster_node_resource{node=\"w1\",resource=\"cpus\"}'] > 0 and
    p['exogym_cluster_node_resource_free{node=\"w1\",resource=\"memory\"}'] > 0 and
    [k for k in p if k.startswith('exogym_cluster_info{cluster=\"default\"')] and
    [v for k, v in p.items() if k.startswith('exogym_cluster_held') and 'what=\"nodes\"' in k] == [1]" --folder "$clusters" ||
    fail "a cluster: $(cat page.prom page.err)"

# The head is told the unit of the first of 30 sinks only; all have the same family.
begin() {
    "$EXOGYM" run flow.yaml --overwrite --head "$address" --set actors.sink.count=30 --set actors.sink.config='{wide: true}' \
        --set actors.source.config.items=100000 >flow.out 2>flow.err &
    flow=$!
    until_true 60 page "p['exogym_run_state{job=\"flow\",state=\"running\"}'] == 1 and
        len([k for k in p if k.startswith('exogym_sink_count_total{')]) == 30 and
        p['exogym_edge_messages_total{edge=\"source>sink:numbers\",job=\"flow\"}'] > 0 and
        p['exogym_cluster_node_actors{node=\"w1\"}'] == 32" --folder "$clusters" ||
        fail "a job: $(tail -c 3000 page.prom) $(cat page.err flow.err)"
}
began() {
    python3 -c "import json; print(int(json.load(open('page.json'))['exogym_cluster_job_start_time_seconds{job=\"flow\"}']))"
}
begin
first=$(began)
pause 2100 # dates are whole seconds
kill -INT "$flow"
wait "$flow"
page "p['exogym_cluster_jobs{state=\"done\"}'] == 1 and not [k for k in p if 'job=' in k]" --folder "$clusters" ||
    fail "the job has ended: $(cat page.prom page.err)"
begin # under the same name, at another time
[ "$(began)" -gt "$first" ] || fail "the second run began at $(began), the first one at $first"
kill -INT "$flow"
wait "$flow"
slay w1
until_true 60 page "p['exogym_cluster_nodes{state=\"lost\"}'] == 1 and not [k for k in p if k.startswith('exogym_cluster_node_')]" --folder "$clusters" ||
    fail "a lost process: $(cat page.prom page.err)"
x stop
finish
