#!/usr/bin/env bash
# `seeds`: each strategy with each seed, every run as if it were the job's only one; means in table,
# picture and result.json.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v python3 >/dev/null || exit 77
sed -i 's/ {name: sparta, p: 0.1}/{name: sparta, p: 0.1, label: rarely}/' job.yaml

# sha256 of FOLDER: the run's parameters.
sha256() {
    json "$1/result.json" sha256
}

ok run job.yaml --set seeds=3
has err ', 3 seeds -> runs/small'
cp out table
has out 'seeds 7, 8, 9: mean (least-largest)'
if command -v gnuplot >/dev/null; then
    has out 'picture: runs/small/compare.png'
    ok plot runs/small -o seeds.svg
    for label in ddp diloco rarely; do has seeds.svg "$label (3 seeds)"; done
fi
[ "$(find runs/small -mindepth 1 -maxdepth 1 -type d | wc -l)" = 9 ] || fail "not nine runs: $(ls runs/small)"

# Each run is that of a job with this seed alone.
for seed in 7 8 9; do
    ok run job.yaml --set seed=$seed --name "alone$seed" --no-plot
    for label in ddp diloco rarely; do
        [ "$(sha256 runs/small/$label-seed$seed)" = "$(sha256 "runs/alone$seed/$label")" ] || fail "$label, seed $seed: other bits"
        cmp -s runs/small/$label-seed$seed/validation.csv "runs/alone$seed/$label/validation.csv" || fail "$label, seed $seed: other losses"
        [ "$(json runs/small/$label-seed$seed/config.json seed)" = $seed ] || fail "$label-seed$seed/config.json has another seed"
    done
done

# Means, least and largest, in the table and in result.json, out of the runs' own results.
cat >means.py <<'END'
import json, math, statistics, sys
from pathlib import Path
all = json.load(open(sys.argv[1]))
table = Path("table").read_text().splitlines()
assert len(all["runs"]) == 9 and len(all["seeds"]) == 3, len(all["runs"])
for group in all["seeds"]:
    runs = [json.load(open(f"runs/small/{group['label']}-seed{seed}/result.json")) for seed in group["seeds"]]
    assert group["seeds"] == [7, 8, 9] == [run["seed"] for run in runs]
    for key in ("global_loss", "local_loss", "global_accuracy", "bytes_sent_per_node", "train_seconds"):
        values, found = [run[key] for run in runs], group[key]
        for name, value in (("mean", statistics.mean(values)), ("least", min(values)), ("largest", max(values)),
                            ("deviation", statistics.stdev(values))):
            assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12), (group["label"], key, name, found, values)
    row = [line for line in table if line.startswith(group["label"] + " ")]
    loss = group["global_loss"]
    assert len(row) == 1 and "%.4f (%.4f-%.4f)" % (loss["mean"], loss["least"], loss["largest"]) in row[0], (row, loss)
END
python3 means.py runs/small/result.json >said 2>&1 || fail "$(tail -1 said)"

# --resume keeps what is finished, also with more seeds.
ok run job.yaml --set 'seeds=4' --resume --no-plot
[ "$(grep -c 'finished before' err)" = 9 ] || fail "not nine runs were kept: $(cat err)"
has out 'seeds 7, 8, 9, 10: mean'
ok run job.yaml --set seeds=1 --name one --no-plot --json
has out '"label": "ddp-seed7"'
[ -s runs/one/result.json ] || fail 'one seed: no result.json'

# A list; stopped in the middle, then gone on with, in workers too.
sed -e '/^seed:/d' -e '/^compare:/d' -e 's/^strategy: {/strategy: {name: ddp, /' job.yaml >list.yaml
echo 'seeds: [5, 100, 3]' >>list.yaml
ok run list.yaml --name whole --no-plot --set train.max_steps=400
has out 'seeds 5, 100, 3: mean'
"$EXOGYM" run list.yaml --name stopped --no-plot --set train.max_steps=400 >out 2>err </dev/null &
pid=$!
until [ -s runs/stopped/ddp-seed100/train.csv ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -INT $pid 2>/dev/null
wait $pid
ok run list.yaml --name stopped --no-plot --set train.max_steps=400 --resume --workers 2
has err 'ddp-seed5    finished before'
for seed in 5 100 3; do
    [ "$(sha256 runs/whole/ddp-seed$seed)" = "$(sha256 runs/stopped/ddp-seed$seed)" ] || fail "seed $seed: other bits after the stop"
done

# One graph, one plan of memory for all seeds.
ok graph check job.yaml --set seeds=3
[ "$(wc -l <out)" = 3 ] || fail "graph check: $(cat out)"
ok graph expand job.yaml --set seeds=3 --run diloco-seed9
has out 'seed: 9'
ok run job.yaml --set seeds=3 --dry-run
[ "$(grep -c ' in passes of ' out)" = 3 ] || fail "dry run: $(cat out)"

wrong() {
    cp job.yaml wrong.yaml
    sed -i '/^seed:/d' wrong.yaml
    echo "$1" >>wrong.yaml
    expect 2 "exogym: wrong.yaml:10:$2" run wrong.yaml
}
wrong 'seeds: 0' '8: seeds must be at least 1, got 0'
wrong 'seeds: 65' '8: seeds must be at most 64, got 65'
wrong 'seeds: []' '8: seeds: expected 1 to 64 seeds, got 0'
wrong 'seeds: [1, 2, 1]' '15: seeds: 1 is there twice'
wrong 'seeds: [1, -2]' "12: seeds: expected an integer from 0 to 2^63-1, got '-2'"
wrong 'seeds: many' "8: seeds: expected an integer, got 'many'"
wrong 'seeds: {a: 1}' '8: seeds: expected an integer, got a mapping'
cp job.yaml wrong.yaml
echo 'seeds: [1, 2]' >>wrong.yaml
expect 2 "exogym: wrong.yaml:11:8: seeds: a list of seeds leaves nothing for 'seed' to say; give one of them" run wrong.yaml
expect 2 "exogym: --set compare: two runs are named 'b': give one of them a label" \
    run job.yaml --set 'compare=[{name: ddp, label: b}, {name: ddp, label: b}]' --set seeds=2
finish
