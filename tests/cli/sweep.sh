#!/usr/bin/env bash
# `exogym sweep`: each cell of a grid is the job with these values; means over seeds; a sweep that
# was stopped or killed goes on; mistakes are found before anything starts.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v python3 >/dev/null || exit 77
sed -i -e '/^compare:/d' -e '/^presets:/d' -e 's/^strategy: {/strategy: {name: diloco, /' job.yaml

# --dry-run prints the cells, the last axis fastest, and writes nothing.
grid=(--grid strategy.H=2,6 --grid strategy.optimizer.lr=1e-3,3e-3)
ok sweep job.yaml "${grid[@]}" --seeds 2 --dry-run
cat >cells <<'END'
diloco-H_2-lr_1e-3: strategy.H=2 strategy.optimizer.lr=1e-3, 2 seeds
diloco-H_2-lr_3e-3: strategy.H=2 strategy.optimizer.lr=3e-3, 2 seeds
diloco-H_6-lr_1e-3: strategy.H=6 strategy.optimizer.lr=1e-3, 2 seeds
diloco-H_6-lr_3e-3: strategy.H=6 strategy.optimizer.lr=3e-3, 2 seeds
END
cmp -s out cells || fail "--dry-run: $(cat out)"
[ ! -e runs ] || fail '--dry-run wrote runs'

# Mistakes end with one line, before anything starts.
bad 2 "--grid strategy.HH: unknown key 'HH'; did you mean 'H'?" sweep job.yaml --grid strategy.HH=2
bad 2 "--grid trian.max_steps: unknown key 'trian'; did you mean 'train'?" sweep job.yaml --grid trian.max_steps=3
bad 2 "--grid optimizer.lr: unknown key 'optimizer'; did you mean 'strategy.optimizer'?" sweep job.yaml --grid optimizer.lr=1
bad 2 '--grid strategy.H: H must be at least 1, got 0' sweep job.yaml --grid strategy.H=2,0
bad 2 "--grid data: there is no data set 'synthetc'; did you mean 'synthetic'?" sweep job.yaml --grid data=synthetic,synthetc
bad 2 '--seeds: seeds must be at least 1, got 0' sweep job.yaml --grid strategy.H=2 --seeds 0
bad 2 '--grid strategy.H: 2 is there twice' sweep job.yaml --grid strategy.H=2,2
bad 2 '--grid strategy.H is there twice' sweep job.yaml --grid strategy.H=2 --grid strategy.H=3
bad 2 '--grid strategy.H: a value is empty' sweep job.yaml --grid strategy.H=2,
bad 2 '--grid strategy.H: expected KEY=VALUE' sweep job.yaml --grid strategy.H
bad 2 "two cells would be named 'H_a_b'" sweep job.yaml --grid 'strategy.H=a b,a_b'
bad 2 'all runs of a sweep are in one folder' sweep job.yaml --grid name=a,b
bad 2 'all runs of a sweep are in one folder' sweep job.yaml --grid train.save_dir=a,b
bad 2 '--grid name: all runs of a sweep are in one folder' sweep job.yaml --name g --grid name=a,b
bad 2 '--grid train.save_dir: all runs of a sweep are in one folder' sweep job.yaml --save-dir g --grid train.save_dir=a,b
bad 2 '--seeds and --grid seeds: give one of the two' sweep job.yaml --seeds 2 --grid seeds=1,2
bad 2 "--grid: the cells 'lr_1e-3' and 'lr_0.001' are the same job" sweep job.yaml --grid strategy.optimizer.lr=1e-3,3e-3,0.001
bad 2 "--grid: the cells 'H_2-strategy_ddp' and 'H_3-strategy_ddp' are the same job" sweep job.yaml \
    --grid strategy.H=2,3 --grid strategy=ddp
bad 2 '--grid strategy.H: 2 is there twice' sweep job.yaml --grid 'strategy.H=2, 3 , 2 '
bad 2 '--grid strategy.H: a value is empty' sweep job.yaml --grid 'strategy.H=2, ,3'
bad 2 'more than 1000 cells' sweep job.yaml --grid "seed=$(seq -s, 1 40)" --grid "strategy.H=$(seq -s, 1 40)"
bad 2 '--grid KEY=VALUE,VALUE,... is missing' sweep job.yaml
bad 2 "'-' is no file" sweep - --grid strategy.H=2
echo 'actors: {a: {class: stand_in}}' >graph.yaml
bad 2 "'graph.yaml' is a graph" sweep graph.yaml --grid seed=1
[ ! -e runs ] || fail 'a mistake came too late: there are runs'

# A sweep: its runs, and its statistics held against Python's over the runs' own results.
ok sweep job.yaml "${grid[@]}" --seeds 2
has err '4 cells, 8 runs, 0 of them finished before -> runs/small'
has out '2 seeds: mean +- standard deviation'
has out 'table:   runs/small/sweep.csv'
cp out table
if command -v gnuplot >/dev/null; then
    has out 'picture: runs/small/sweep.png'
    [ -s runs/small/sweep.png ] || fail 'no picture'
    ok plot runs/small -o all.svg
    has all.svg 'diloco-H_6-lr_3e-3 (2 seeds)'
fi
cat >means.py <<'END'
import csv, json, math, statistics, sys
from pathlib import Path
rows = list(csv.DictReader(open("runs/small/sweep.csv")))
assert [(r["strategy.H"], r["strategy.optimizer.lr"]) for r in rows] == [("2", "1e-3"), ("2", "3e-3"), ("6", "1e-3"), ("6", "3e-3")]
table = Path("table").read_text().splitlines()
for r in rows:
    runs = [json.load(open(f"runs/small/{r['label']}-seed{s}/result.json")) for s in (7, 8)]
    for run in runs:
        config = run["config"]["strategy"]
        assert config["H"] == int(r["strategy.H"]) and config["optimizer"]["lr"] == float(r["strategy.optimizer.lr"]), config
    assert (r["strategy"], r["seeds"]) == ("diloco", "2")
    for key in ("global_loss", "local_loss", "global_accuracy", "bytes_sent_per_node", "train_seconds"):
        values = [run[key] for run in runs]
        for name, value in ((key, statistics.mean(values)), (key + "_deviation", statistics.stdev(values))):
            assert math.isclose(float(r[name]), value, rel_tol=1e-7, abs_tol=1e-9), (r["label"], name, r[name], value)
    line = [text for text in table if text.startswith(r["label"] + " ")]
    shown = line[0].split()
    assert len(line) == 1 and shown[5] == "+-" and math.isclose(float(shown[4]), float(r["global_loss"]), rel_tol=1e-3), (line, r)
rows_json = json.load(open("runs/small/sweep.json"))["rows"]
assert [row["label"] for row in rows_json] == [r["label"] for r in rows]
END
python3 means.py >said 2>&1 || fail "$(tail -1 said)"

# A cell's run is that of `exogym run` with its values.
ok run job.yaml --set strategy.H=6 --set strategy.optimizer.lr=3e-3 --set seed=8 --name alone --no-plot
[ "$(json runs/alone/diloco/result.json sha256)" = "$(json runs/small/diloco-H_6-lr_3e-3-seed8/result.json sha256)" ] ||
    fail 'a cell has other bits than its job'

# Again: nothing runs, the same table. A larger grid runs what is new. JSON for programs.
ok sweep job.yaml "${grid[@]}" --seeds 2
[ "$(grep -c 'finished before:' err)" = 8 ] || fail "finished cells ran again: $(cat err)"
cmp -s out table || fail 'the table of finished cells is another'
ok sweep job.yaml --grid strategy.H=2,6,3 --grid strategy.optimizer.lr=1e-3,3e-3 --seeds 2 --no-plot --json
has err '6 cells, 12 runs, 8 of them finished before'
python3 -c 'import json; assert len(json.load(open("out"))["rows"]) == 6' || fail "--json: $(head -5 out)"

# A damaged result is named, before anything runs.
result=runs/small/diloco-H_2-lr_1e-3-seed7/result.json
cp $result kept
echo '[]' >$result
bad 1 "$result: is damaged: it is no object" sweep job.yaml "${grid[@]}" --seeds 2
cp kept $result

# A changed job is noticed before anything runs; --overwrite starts over.
before=$(json runs/small/diloco-H_2-lr_1e-3-seed7/result.json sha256)
bad 2 'runs/small/diloco-H_2-lr_1e-3-seed7 was begun with another train.batch_size' sweep job.yaml --grid strategy.H=5,2 \
    --grid strategy.optimizer.lr=1e-3 --seeds 2 --set train.batch_size=8
[ ! -e runs/small/diloco-H_5-lr_1e-3-seed7 ] || fail 'a cell ran before the change was noticed'
ok sweep job.yaml --grid strategy.H=2 --grid strategy.optimizer.lr=1e-3 --seeds 2 --set train.batch_size=8 --overwrite --no-plot
[ "$before" != "$(json runs/small/diloco-H_2-lr_1e-3-seed7/result.json sha256)" ] || fail '--overwrite kept the run'

# Several strategies, values with commas, no seeds.
ok sweep job.yaml --grid 'strategy={name: diloco, H: 3},{name: sparta, p: 0.5}' --set 'train.max_steps=3' --name two --no-plot
[ "$(tail -n +2 runs/two/sweep.csv | wc -l)" = 2 ] || fail "two strategies: $(cat runs/two/sweep.csv)"
has runs/two/sweep.csv '"{name: sparta, p: 0.5}"'
has runs/two/sweep.csv 'label,strategy,values.strategy,seeds,'

# Killed, and stopped by ctrl-C, in the middle; both go on to the bits of a sweep that was not.
long=(job.yaml --grid strategy.H=4,8 --seeds 2 --no-plot --set train.max_steps=400 --set train.checkpoint_interval=50)
ok sweep "${long[@]}" --name whole
for signal in KILL INT; do
    "$EXOGYM" sweep "${long[@]}" --name "cut$signal" >out 2>err </dev/null &
    pid=$!
    until [ -d "runs/cut$signal/diloco-H_4-seed8/checkpoints" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -$signal $pid 2>/dev/null
    wait $pid
    status=$?
    if [ $signal = INT ] && [ $status != 0 ]; then
        [ $status = 130 ] || fail "ctrl-C: ended with $status: $(tail -1 err)"
        has err 'its state is saved; the same command goes on with it'
        [ ! -e "runs/cut$signal/sweep.csv" ] || fail 'a stopped sweep wrote a table'
    fi
    ok sweep "${long[@]}" --name "cut$signal"
    has err 'diloco-H_4-seed7  finished before:'
    for run in H_4-seed7 H_4-seed8 H_8-seed7 H_8-seed8; do
        [ "$(json "runs/cut$signal/diloco-$run/result.json" sha256)" = "$(json runs/whole/diloco-$run/result.json sha256)" ] ||
            fail "$signal: $run has other bits"
    done
done

finish
