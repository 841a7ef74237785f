#!/usr/bin/env bash
# A whole job: files, table, JSON, overrides, presets, and the bytes of the closed form.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

ok run job.yaml
has err '[1/3] ddp'
has err ' on synthetic ('
for label in ddp diloco sparta; do
    for file in config.json train.csv validation.csv metrics.csv correlation.csv result.json; do
        [ -s "runs/small/$label/$file" ] || fail "runs/small/$label/$file is missing"
    done
    ls runs/small/$label/events.out.tfevents.*.exogym >/dev/null || fail "no event file of $label"
    [ "$(wc -l <runs/small/$label/train.csv)" = 13 ] || fail "$label: train.csv should have a header and 12 steps"
    [ "$(cut -d, -f1 runs/small/$label/metrics.csv | tr '\n' ' ')" = 'step 0 5 10 12 ' ] ||
        fail "$label: evaluated at $(cut -d, -f1 runs/small/$label/metrics.csv | tr '\n' ' ')"
    has out "$label"
done
has out 'global loss'
if command -v gnuplot >/dev/null; then
    [ "$(tail -1 out)" = 'picture: runs/small/compare.png' ] || fail "the last line is not the picture: $(tail -1 out)"
    [ "$(head -c 4 runs/small/compare.png | tail -c 3)" = PNG ] || fail 'the picture is no PNG'
fi

# 2 Psi (N-1)/N floats of four bytes a round: with two nodes, 4 Psi bytes.
parameters=$(sed -n 's/.*(\([0-9,]*\) parameters).*/\1/p' err | tr -d ,)
[ "$(json runs/small/ddp/result.json bytes_sent_per_node)" = $((4 * parameters * 12)) ] || fail 'bytes of ddp'
[ "$(json runs/small/diloco/result.json bytes_sent_per_node)" = $((4 * parameters * 3)) ] || fail 'bytes of diloco'

# The same job, the same numbers; as JSON, progress apart.
first=$(json runs/small/ddp/result.json sha256)
[ ${#first} = 64 ] || fail "sha256 is '$first'"
ok run job.yaml --json --no-plot --name again
[ "$(json out sha256)" = "$first" ] || fail 'the same job gave other parameters'
[ "$(json out picture)" = null ] || fail 'a picture in spite of --no-plot'
[ "$(grep -c '"sha256"' out)" = 3 ] || fail 'JSON of three runs is due'
[ -d runs/again/sparta ] || fail '--name is ignored'

# Overrides come after the preset.
ok run job.yaml --preset quick --set train.max_steps=3 --set 'compare=[{name: diloco, label: mine}]' --save-dir other --no-plot
[ "$(json other/small/mine/config.json max_steps)" = 3 ] || fail '--set is ignored'
[ "$(json other/small/mine/result.json steps)" = 3 ] || fail 'not three steps'
ok run job.yaml --preset quick --save-dir quick --no-plot
[ "$(json quick/small/ddp/result.json steps)" = 4 ] || fail '--preset is ignored'
[ "$(json quick/small/diloco/config.json H)" = 2 ] || fail 'the preset does not reach into the list'

# One strategy, no name: the file's.
printf 'model: mlp\ndata: synthetic\nstrategy: ddp\ntrain: {max_steps: 2}\n' >one.yaml
ok run one.yaml --no-plot
[ "$(json runs/one/ddp/result.json bytes_sent_per_node)" = 0 ] || fail 'one node has nobody to send to'
finish
