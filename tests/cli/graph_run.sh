#!/usr/bin/env bash
# exogym run of a graph: figures, ledger and timeline, on either clock; exogym graph apply changes
# it while it runs, and loses nothing.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >graph.yaml <<END
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
variables: {items: 200, pause: 0}
actors:
  source: {class: source, count: 2, config: {items: '\${items}', pause_us: '\${pause}'}, compute: {make: 10 ms}}
  sink: {class: sink, count: 3}
edges:
  - {from: source, to: sink, carries: numbers, route: round_robin, buffer: {capacity: 4}}
links:
  default: {bandwidth: 1 Mbit/s, latency: 5 ms}
END

# total COUNT|SUM: over the sinks, of result.json.
total() {
    python3 -c 'import json, sys
meters = json.load(open("runs/flow/result.json"))["meters"]
print(round(sum(meter["value"] for path, meter in meters.items() if path.endswith("." + sys.argv[1]))))' "$1"
}

# --- What a run leaves
# ------------------------------------------------------------------------------------------------

ok run graph.yaml --set clock=virtual
[ "$(total count)" = 400 ] || fail "400 items were sent, $(total count) came"
[ "$(total sum)" = 39800 ] || fail "their sum is $(total sum), not 39800"
has out 'predicted: '
has out 'source>sink:numbers'
first=$(json runs/flow/result.json time_s)
[ "$(awk -v t="$first" 'BEGIN { print (t > 2.0 && t < 4.5) }')" = 1 ] || fail "predicted $first s"
has runs/flow/ledger.csv 'edge,actor,host,messages,items,payload_bytes,encoded_bytes,wire_bytes,drops,send_blocked_s,recv_blocked_s,device_bytes'
[ "$(grep -c '^source>sink:numbers,' runs/flow/ledger.csv)" = 5 ] || fail "the ledger has not five rows"
python3 - runs/flow/timeline.json <<'END' || fail "timeline.json is no trace"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert len(spans) >= 4 and all(e["dur"] > 0 and e["ts"] >= 0 for e in spans)
assert {"make"} <= {e["name"] for e in spans}
END

# A folder holds one run: nothing is touched without --overwrite, or of what the run did not write;
# then nothing is left of it.
sums() {
    (cd runs && find . -type f ! -name '.*' -exec sha256sum {} + | sort)
}
echo mine >runs/flow/notes.json
echo '{}' >runs/flow/final_sink_0.json
kept=$(sums)
for way in '' '--workers 2'; do
    # shellcheck disable=SC2086
    expect 1 'exogym: runs/flow: holds a finished run: --overwrite starts it over, and another name leaves it alone' \
        run graph.yaml --set clock=virtual $way
    [ "$(sums)" = "$kept" ] || fail "a run that was refused changed the folder: $(ls -l runs/flow)"
done
ok run graph.yaml --set clock=virtual --json --name other
ok run graph.yaml --set clock=virtual --json --overwrite
[ ! -e runs/flow/final_sink_0.json ] || fail 'the result of an actor of the earlier run is still there'
[ "$(cat runs/flow/notes.json)" = mine ] || fail "a file that is the user's is gone"
[ "$(json out time_s)" = "$first" ] || fail "predicted $(json out time_s) s, and $first s before"

# The same items without a virtual clock and without links, and as many bytes.
bytes=$(json runs/flow/result.json encoded_bytes)
grep -v -e links -e default: graph.yaml >plain.yaml
ok run plain.yaml --overwrite --set actors.source.compute.make='0 ms'
[ "$(total count)" = 400 ] || fail "plain: $(total count) items came"
[ "$(json runs/flow/result.json encoded_bytes)" = "$bytes" ] || fail "plain: other bytes than on the virtual clock"

# --- A buffer that must not be full
# ------------------------------------------------------------------------------------------------

# The sink takes nothing: it waits for a file that nobody makes.
sed -e 's/count: [23]/count: 1/' -e 's/class: sink,/class: sink, config: {gate: none},/' -e 's/{capacity: 4}/{capacity: 4, on_full: fail}/' graph.yaml >full.yaml
for way in '--set clock=virtual' '--workers 2'; do
    # shellcheck disable=SC2086
    "$EXOGYM" run full.yaml --overwrite --set actors.source.compute.make='0 ms' $way >out 2>err
    [ $? = 1 ] || fail "a full buffer did not end the run: $(cat out err)"
    has err 'exogym: full.yaml:9:99: source_0: edge source>sink:numbers: the buffer of sink_0 is full'
done

# --- A run that is cut leaves all of it, too
# --------------------------------------------------------------------------

# left STATE OUTPUT: result.json, ledger.csv and what was printed tell of the same items.
left() {
    python3 - runs/flow "$1" "$2" <<'END' || fail "$1: figures, result and ledger are not those of a run that was cut: $(head -40 "$2")"
import csv, glob, json, re, sys
folder, state, output = sys.argv[1:]
result, progress = (json.load(open(f"{folder}/{name}.json")) for name in ("result", "progress"))
rows = {row["actor"]: row for row in csv.DictReader(open(f"{folder}/ledger.csv"))}
assert result["state"] == progress["state"] == state, (result["state"], progress["state"])
actors = ["source_0", "source_1", "sink_0", "sink_1", "sink_2"]
assert [a["name"] for a in result["actors"]] == sorted(rows, key=actors.index) == actors
sent = sum(int(row["items"]) for row in rows.values())
came = sum(result["meters"][sink + ".count"]["value"] for sink in actors[2:])
assert 0 < came <= sent == result["edges"][0]["items"], (came, sent)
assert result["edges"] == progress["edges"] and result["meters"] == progress["meters"]
last = {row["meter"]: row for row in csv.DictReader(open(f"{folder}/meters.csv"))}
assert all(float(last[f"{sink}.count"]["value"]) == result["meters"][f"{sink}.count"]["value"] for sink in actors[2:]), last
assert abs(float(last["sink_0.sum"]["seconds"]) - result["time_s"]) < 1e-5 and last["sink_0.count"]["unit"] == "items"
events = b"".join(open(path, "rb").read() for path in glob.glob(f"{folder}/events.out.tfevents.*"))
assert b"sink_2/count" in events and b"items of numbers (items)" in events
assert result["time_s"] > 0 and all(a["time_s"] > 0 for a in result["actors"])
assert any(phase["name"] == "make" for a in result["actors"] for phase in a["phases"])
text = open(output).read()
assert re.search(r"^  sink\.count  .* items, (by|each) sink  \(items of numbers\)$", text, re.M) and str(sent) in text
END
}

for way in '--set clock=virtual' '' '--workers 2'; do
    for until in '300 ms' '3 s' '30 s'; do # until something has come
        # shellcheck disable=SC2086
        ok run plain.yaml $way --overwrite --set variables.items=1000000 --set until="$until"
        [ "$(total count)" = 0 ] || break
    done
    left until out
done
again=--overwrite # the run before came to its `until`
for signal in INT TERM; do
    rm -f cut.err
    # shellcheck disable=SC2086
    "$EXOGYM" run plain.yaml $again --set variables.items=1000000 >cut.out 2>cut.err &
    cut=$!
    for try in $(seq 1200); do # until something has come
        grep -q 'sink x3: count' cut.err && break
        kill -0 "$cut" 2>/dev/null || break
        sleep 0.05
    done
    [ ! -e runs/flow/result.json ] || fail 'a run that goes on has the result of the one before'
    kill -$signal "$cut"
    wait "$cut"
    status=$?
    [ "$status" = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: ended with $status: $(cat cut.err)"
    left stopped cut.out
    again= # that one was stopped: another may begin
    ok status --run runs/flow
    has out 'runs/flow: stopped'
done

# Every line of progress fits 80 columns, also of 200 actors, who are one there, and of figures that
# do not all fit.
"$EXOGYM" run plain.yaml --name crowd --set variables.items=1000000 --set variables.pause=10000 --set actors.sink.count=200 >cut.out 2>cut.err &
cut=$!
for try in $(seq 1200); do
    grep -q 'sink x200: count' cut.err && break
    kill -0 "$cut" 2>/dev/null || break
    sleep 0.05
done
kill -INT "$cut"
wait "$cut"
has cut.err 'sink x200: count'
[ -z "$(grep ' sent$' cut.err | grep -E '^.{80}')" ] || fail "a line of progress is longer than 79 columns: $(cat cut.err)"

# --- apply
# ------------------------------------------------------------------------------------------------------------

expect 1 'exogym: runs/flow: no graph runs in this folder' graph apply graph.yaml --to runs/flow
expect 2 'exogym: graph: apply it to which run? --to runs/NAME is missing (see `exogym help graph`)' graph apply graph.yaml

# The last items wait until all changes are made. What an earlier run left, as when it was killed, is removed
# before a command can ask.
rm -r runs/flow
mkdir runs/flow
echo '# 5' >runs/flow/graph.taken
changed=(--set variables.items=2000 --set variables.pause=1000 --set actors.source.compute.make='0 ms' --set actors.source.config.gate="$PWD/gate")
"$EXOGYM" run plain.yaml "${changed[@]}" >live.out 2>live.err &
live=$!
for try in $(seq 1200); do
    [ -s runs/flow/.graph.lock ] && break
    sleep 0.05
done
[ ! -e runs/flow/graph.taken ] || fail 'a change that an earlier run had taken is still in the folder'
for try in $(seq 1200); do # until it runs
    "$EXOGYM" graph apply plain.yaml --to runs/flow "${changed[@]}" --set edges.0.codec=bf16 >out 2>err && break
    kill -0 "$live" 2>/dev/null || break
    sleep 0.05
done
has out 'runs/flow: changed'
[ ! -e runs/flow/graph.taken ] || fail 'a change that was made is still in the folder'
ok graph apply plain.yaml --to runs/flow "${changed[@]}" --set edges.0.route=least_loaded --set edges.0.buffer.capacity=1
ok graph apply plain.yaml --to runs/flow "${changed[@]}" --set edges.0.codec='[int8, zstd]' --set edges.0.buffer.capacity=9
# What cannot change is refused where it stands in the file that was given, and the run goes on as
# it is. refused MESSAGE SED [OPTIONS...]: plain.yaml, edited so, is not what the run can become.
refused() {
    local message=$1 edit=$2
    shift 2
    sed "$edit" plain.yaml >edited.yaml
    expect 2 "exogym: $message, which cannot change while it goes on" graph apply edited.yaml --to runs/flow "${changed[@]}" "$@"
}
sed 's/^name: flow/name: flew/' plain.yaml >edited.yaml
expect 2 "exogym: edited.yaml:2:7: name: 'flew'; the run is called 'flow', which cannot change while it goes on: give --set name=flow" \
    graph apply edited.yaml --to runs/flow "${changed[@]}"
refused '--set actors.sink.count: actors.sink.count: 2; the run has 3' '' --set actors.sink.count=2
refused "edited.yaml:6:75: actors.source.config.pause_us: 0; the run has 1000" "s/'\\\${pause}'/0/"
refused 'edited.yaml:6:45: actors.source.config.pause_us: nothing; the run has 1000' "s/, pause_us: '\\\${pause}'//"
refused '--set seed: seed: 9; the run has 42' '' --set seed=9
refused '--set until: until: 3.000 s; the run has 0.000 s' '' --set until='3 s'
expect 2 'exogym: --set edges: edges: there is none, so no actor would send or receive anything any more; to end the run, stop it' \
    graph apply plain.yaml --to runs/flow "${changed[@]}" --set edges=[]
# A request that cannot be read is answered, too.
{ echo '# 77' && head -c 17000000 /dev/zero; } >large && mv large runs/flow/graph.next
for try in $(seq 1200); do
    grep -q '^77 ' runs/flow/graph.answer && break
    sleep 0.05
done
has runs/flow/graph.answer '77 runs/flow/graph.taken: has 17000005 bytes, at most 1048576 are expected'
for try in $(seq 1200); do # behind its answer
    [ -e runs/flow/graph.taken ] || break
    sleep 0.05
done
[ ! -e runs/flow/graph.taken ] || fail 'a change that was refused is still in the folder'
: >gate
wait "$live" || fail "the run that was changed ended with $?: $(tail -3 live.err)"
[ "$(total count)" = 4000 ] || fail "4000 items were sent, $(total count) came: $(cat live.err)"
has live.err 'the graph was changed'
python3 - runs/flow <<'END' || fail "the changes are not on record: $(cat runs/flow/config.json)"
import datetime, json, sys
config, result = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("config", "result"))
assert config["changes"] == result["changes"] and config["edges"][0]["codec"] == "raw"
assert [sorted(d["key"] for d in c["changed"]) for c in config["changes"]] == [
    ["edges.source>sink:numbers.codec"],
    ["edges.source>sink:numbers.buffer.capacity", "edges.source>sink:numbers.codec", "edges.source>sink:numbers.route"],
    ["edges.source>sink:numbers.buffer.capacity", "edges.source>sink:numbers.codec", "edges.source>sink:numbers.route"]]
assert config["changes"][0]["changed"] == [{"key": "edges.source>sink:numbers.codec", "from": "raw", "to": "bf16"}]
times = [c["time_s"] for c in config["changes"]]
assert times == sorted(times) and 0 < times[0] <= result["time_s"]
for c in config["changes"]:
    datetime.datetime.strptime(c["at"], "%Y-%m-%dT%H:%M:%SZ")
END
[ "$(json runs/flow/result.json drops)" = 0 ] || fail "items were dropped"
encoded=$(json runs/flow/result.json encoded_bytes)
[ "$encoded" -lt $((4000 * 1028)) ] || fail "no codec was ever in use: $encoded bytes"

# A run that refuses what it has taken, by hand: a command that is stopped meanwhile has the answer.
mkdir slow
python3 - >slow.out 2>&1 <<'END' &
import fcntl, os, time
def until(path):
    while not os.path.exists(path):
        time.sleep(0.01)
with open("slow/.graph.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("1")
    lock.flush()
    until("slow/graph.next")
    os.rename("slow/graph.next", "slow/graph.taken")
    until("slow/told")
    with open("slow/graph.taken") as request, open("slow/answer", "w") as answer:
        answer.write(request.readline().split()[1] + " graph.next:1:1: on purpose")
    os.rename("slow/answer", "slow/graph.answer")
    os.remove("slow/graph.taken")
    until("slow/graph.next")
    os.rename("slow/graph.next", "slow/graph.taken")
    until("slow/over") # it ends without an answer
END
slow=$!
for try in $(seq 1200); do
    [ -s slow/.graph.lock ] && break
    sleep 0.05
done
# stop_asker FILE TEXT: a command that is stopped once the run has taken its change, before FILE is made, says this.
stop_asker() {
    "$EXOGYM" graph apply plain.yaml --to slow >out 2>err &
    asker=$!
    for try in $(seq 1200); do
        [ -e slow/graph.taken ] && break
        sleep 0.05
    done
    kill -TERM "$asker"
    sleep 0.2
    : >"$1"
    wait "$asker"
    [ $? = 143 ] || fail "a command that was stopped ended with another status: $(cat err)"
    [ "$(cat err)" = "exogym: $2" ] || fail "a command that was stopped says: $(cat err)"
}
# A graph whose variables make it too large for a run is refused without it.
python3 - "$EXO_BUILD/tests/plugins/numbers.so" >large.yaml <<'END'
import sys
print(f"exogym: 1\nname: flow\nplugins: [{sys.argv[1]}]\nvariables: {{x: {'x' * 4000}}}")
print("actors:\n  source: {class: source}")
print("\n".join(f"  s{i}: {{class: sink, config: {{gate: '${{x}}'}}}}" for i in range(300)))
print("edges:\n" + "\n".join(f"  - {{from: source, to: s{i}, carries: numbers}}" for i in range(300)))
END
"$EXOGYM" graph apply large.yaml --to slow >out 2>err && fail 'a graph of more than 1 MiB was left for the run'
has err 'exogym: large.yaml: a run takes 1 MiB of a graph as `exogym graph expand` prints it; this one has '
stop_asker slow/told 'plain.yaml: on purpose'
stop_asker slow/over 'slow: the run has ended'
wait "$slow" || fail "$(cat slow.out)"

# Changes that are asked for at once are made one after the other.
queue=(plain.yaml --set name=queue --set variables.items=1000000 --set variables.pause=1000)
"$EXOGYM" run "${queue[@]}" >live.out 2>live.err &
live=$!
for try in $(seq 1200); do
    "$EXOGYM" graph apply "${queue[@]}" --to runs/queue >out 2>err && break
    kill -0 "$live" 2>/dev/null || break
    sleep 0.05
done
askers=()
for capacity in 5 6 7 8 9; do
    "$EXOGYM" graph apply "${queue[@]}" --to runs/queue --set edges.0.buffer.capacity=$capacity >out.$capacity 2>&1 &
    askers+=($!)
done
for asker in "${askers[@]}"; do
    wait "$asker" || fail "one of five changes failed: $(cat out.[5-9])"
done
kill -INT "$live"
wait "$live"
[ "$(grep -c 'the graph was changed' live.err)" = 6 ] || fail "not all changes were made: $(cat live.err)"

# --- apply to a training job
# ------------------------------------------------------------------------------------------

cat >>job.yaml <<'END'
hosts: {home: {count: 2, up: 2 Mbit/s, down: 2 Mbit/s}}
links: {default: {latency: 5 ms}}
END
for way in '' '--workers 2'; do
    # shellcheck disable=SC2086
    "$EXOGYM" run job.yaml $way --overwrite --set train.max_steps=60 --set compare=[ddp] --no-plot >live.out 2>live.err &
    live=$!
    for try in $(seq 1200); do # until it runs
        "$EXOGYM" graph apply job.yaml --to runs/small/ddp --set train.max_steps=61 --set compare=[ddp] >out 2>err
        [ $? = 2 ] && break
        kill -0 "$live" 2>/dev/null || break
        sleep 0.05
    done
    has err '--set train.max_steps: train.max_steps: 61; the run has 60, which cannot change while it goes on'
    "$EXOGYM" graph apply job.yaml --to runs/small/ddp --set train.max_steps=60 --set compare=[ddp] \
        --set strategy.optimizer.lr=0.5 >out 2>err
    has err '--set strategy.optimizer.lr: strategy.optimizer.lr: 0.5; the run has 1e-3, which cannot change while it goes on'
    for try in $(seq 1200); do
        "$EXOGYM" graph apply job.yaml --to runs/small/ddp --set train.max_steps=60 --set compare=[ddp] \
            --set hosts.home.up='1 Gbit/s' --set hosts.home.down='1 Gbit/s' \
            --set 'edges=[{carries: gradients, codec: bf16}]' >out 2>err && break
        kill -0 "$live" 2>/dev/null || break
        sleep 0.05
    done
    has out 'runs/small/ddp: changed'
    wait "$live" || fail "the job that was changed ended with $?: $(tail -3 live.err)"
    has live.err 'the graph was changed'
    payload=$(json runs/small/ddp/result.json payload_bytes) encoded=$(json runs/small/ddp/result.json encoded_bytes)
    [ "$encoded" -lt "$payload" ] || fail "no codec was in use: $encoded of $payload bytes"
    [ "$(json runs/small/ddp/result.json steps)" = 60 ] || fail 'a step is missing'
    python3 - runs/small/ddp <<'END' || fail "$way: the change is not on record: $(cat runs/small/ddp/config.json)"
import json, sys
config, result = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("config", "result"))
change = config["changes"][0]
assert change.pop("graph")["edges"][0]["codec"] == "bf16" # for a run that goes on
assert config["changes"] == result["changes"] and 0 <= change["step"] < 60 and change["time_s"] > 0
assert {d["key"]: (d["from"], d["to"]) for d in change["changed"]}["edges.node>node:gradients.codec"] == ("raw", "bf16")
assert any(d["key"].startswith("hosts.home") and d["key"].endswith(".up") for d in change["changed"])
END
    # shellcheck disable=SC2086
    ok run job.yaml $way --resume --set train.max_steps=64 --set compare=[ddp] --no-plot
    has err 'the graph was changed again, as it was before the stop'
    [ "$(json runs/small/ddp/result.json steps)" = 64 ] || fail 'the run that was changed does not go on'
    more=$(json runs/small/ddp/result.json encoded_bytes)
    [ $(((more - encoded) * 60)) -lt $((payload * 4)) ] || fail "its codec was forgotten: $((more - encoded)) bytes of 4 steps"
done

finish
