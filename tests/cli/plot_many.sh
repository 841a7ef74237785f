#!/usr/bin/env bash
# Pictures of any number of runs, of losses of any size, and of seeds: every word can be read, and
# every curve told from the others.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v gnuplot >/dev/null || exit 77
command -v python3 >/dev/null || exit 77

# make FOLDER EXPRESSION [BYTES [COUNT]]: thirty evaluations; the loss is an expression over t,
# which goes from 0 to 1. With COUNT so many runs, each in FOLDER with its number k, which the
# expression may use.
cat >make.py <<'END'
import math, os, sys
folder, loss, sent, count = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
for k in range(1, max(count, 1) + 1):
    at = f"{folder}{k}" if count else folder
    os.makedirs(at, exist_ok=True)
    with open(at + "/metrics.csv", "w") as out:
        out.write("step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy\n")
        for i in range(30):
            value = eval(loss, {"t": i / 29, "k": k, "exp": math.exp})
            out.write(f"{i * 10},{i * 0.5},{int(i * sent / k)},{value},{value},nan,nan\n")
END
make() {
    python3 make.py "$1" "$2" "${3:-1000000}" "${4:-0}" || fail "make $*"
}

# look FILE.svg LABEL...: no two words touch, none leaves the picture, the labels are below the
# axes, their lines differ.
cat >look.py <<'END'
import re, sys, xml.etree.ElementTree as xml
picture, labels = sys.argv[1], sys.argv[2:]
tree = xml.parse(picture).getroot()
width, height = float(tree.get("width")), float(tree.get("height"))
boxes, bad = [], []
for group in tree.iter("{http://www.w3.org/2000/svg}g"):
    for text in group.findall("{http://www.w3.org/2000/svg}text"):
        place = re.search(r"translate\(([\d.]+),([\d.]+)\)(?: rotate\((-?\d+))?", group.get("transform", ""))
        if not place or place.group(3):
            continue
        x, y, size = float(place.group(1)), float(place.group(2)), float(group.get("font-size"))
        word = text.text or ""
        long = 0.56 * size * len(word)
        left = {"start": x, "middle": x - long / 2, "end": x - long}[group.get("text-anchor")]
        if word.strip():
            boxes.append((left, y - 0.75 * size, left + long, y, word))
for i, a in enumerate(boxes):
    if a[0] < -2 or a[1] < 0 or a[2] > width + 2 or a[3] > height:
        bad.append(f"'{a[4]}' leaves the picture")
    for b in boxes[:i]:
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
            bad.append(f"'{a[4]}' is over '{b[4]}'")
    if re.fullmatch(r"-?\d*\.\d*0|0{2,}", a[4]):
        bad.append(f"'{a[4]}' is no figure to read")
names = [box[4] for box in boxes]
axes = max(box[3] for box in boxes if box[4].startswith(("step", "sent", "time", "bytes")))
for label in labels:
    if names.count(label) != 1:
        bad.append(f"'{label}' is there {names.count(label)} times")
    else:
        box = boxes[names.index(label)]
        if box[1] < axes:
            bad.append(f"'{label}' is not below the axes")
found = re.findall(r"stroke='rgb\( *(\d+), *(\d+), *(\d+)\)'", open(picture).read())
colours = {c for c in found if len(set(c)) > 1}  # the others are grey: axes
if len(colours) != len(labels):
    bad.append(f"{len(labels)} curves have {len(colours)} colours")
print("\n".join(bad[:10]))
sys.exit(bool(bad))
END
look() {
    python3 look.py "$@" >seen 2>&1 || fail "$1: $(cat seen)"
}

# 1, 3, 14 and 100 runs.
for count in 1 3 14 100; do
    labels=()
    for i in $(seq "$count"); do
        labels+=("diloco_with_H_$i")
    done
    make "runs/$count/diloco_with_H_" '2.3 * exp(-t * k / 5) + 0.02 * k' 10000000 "$count"
    ok plot "runs/$count" -o "$count.svg"
    look "$count.svg" "${labels[@]}"
done
ok plot runs/14 -o 14.png
long=$(printf 'x%.0s' $(seq 150))
make "runs/long/$long" '2 - t'
ok plot runs/long -o long.svg --title "$(printf 't%.0s' $(seq 300))"
look long.svg "${long:0:87}..."

# Losses that span decades, tiny ones, 0, below 0, nearly equal, and of a run that explodes; one
# evaluation, nothing sent.
try() {
    local name=$1
    shift
    make "runs/$name/run" "$@"
    ok plot "runs/$name" -o "$name.svg"
    look "$name.svg" run
}
try decades '10 ** (2 - 6 * t)'
has decades.svg '<text>0.001</text>'
try few '0.008 * exp(-2 * t)'
has few.svg '<text>0.002</text>'
try tiny '2e-7 * exp(-9 * t)'
has tiny.svg '<text>1e-10</text>'
# A loss of 0 has a place and a tic of its own at the foot of a logarithmic axis.
feet() { # FILE.svg: how many vertical axes have a 0; two horizontal ones do anyway
    echo $(($(grep -c '<text>0</text>' "$1") - 2))
}
try zero 'max(0, 2 - 3 * t)'
[ "$(feet zero.svg)" = 3 ] || fail "a loss of 0: $(feet zero.svg) of three panels say where it is"
try zero_far '0 if t == 1 else 10 ** (-190 * t)'
[ "$(feet zero_far.svg)" = 3 ] || fail "a loss of 0 far below the others: $(feet zero_far.svg) of three panels say where it is"
try extremes '1e308 if t == 0 else 1e-308 if t == 1 else 3 - t'
[ "$(feet few.svg)" = 0 ] || fail 'a 0 without a loss of 0'
try below '1 - 2 * t'
has below.svg '<text>-1</text>'
try equal 2.5
try near '2.5 + 1e-3 * t'
try exploding '10 ** (34 * t)'
has exploding.svg '<text>1e+30</text>'
try silent '2 - t' 0
try large '2 - t' 1e15
head -2 runs/few/run/metrics.csv >one && mkdir -p runs/once/run && cp one runs/once/run/metrics.csv
ok plot runs/once -o once.svg
look once.svg run
sed -i 's/^290,.*/290,14.5,1,nan,inf,nan,nan/' runs/few/run/metrics.csv
ok plot runs/few -o ends.svg
look ends.svg run

# With so many curves that node 0's own are left out, its losses do not stretch the axis, either.
make runs/nine/run '2 - t' 1000000 9
sed -i 's/^\([0-9]*,[^,]*,[^,]*\),[^,]*,\([^,]*\)/\1,1e-9,\2/' runs/nine/run1/metrics.csv
ok plot runs/nine -o nine.svg
look nine.svg run{1..9}
if grep -q '<text>1e-' nine.svg; then fail 'an axis down to losses that are not drawn'; fi

# Names are data: whatever is in them, they are words of the legend and of the title, and nothing is
# run.
hostile=("'" "''" "a''b" "'''x'" "';system 'touch pwned';'" "a'';system \"touch pwned\" #" '`touch pwned`' '"; system "touch pwned' '@x' '$run0'
    'a\' '\n' '#' '%s' '{x}' '|touch pwned' $'a\'\nsystem "touch pwned"\n' $'\xff\xfe' $'cut \xc3' $'\u202eright' 'é 文' '<b>&amp;')
cat >said.py <<'END'
import os, sys, xml.etree.ElementTree as xml
name = os.fsencode(sys.argv[2]).decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\u202e", "\\u202e")
texts = [t.text for t in xml.parse(sys.argv[1]).iter("{http://www.w3.org/2000/svg}text")]
print(f"expected {name!r} twice in {texts}")
sys.exit(texts.count(name) != 2)
END
for name in "${hostile[@]}"; do
    rm -rf named
    make "named/$name" '2 - t'
    ok plot named -o named.svg --title "$name"
    python3 said.py named.svg "$name" >seen 2>&1 || fail "the name ${name@Q}: $(cat seen)"
done
LC_ALL=C ok plot named -o named.png
ok plot runs/3 -o '|touch pwned.png'
[ -s '|touch pwned.png' ] || fail "a picture's name was taken for something else"
ok plot runs/3 -o $'two\nlines.png'
[ -z "$(find . -name 'pwned*')" ] || fail 'a name was run as a command'
HOME=$PWD ok plot runs/3 -o before.svg
echo 'set title "of the user"' >.gnuplot
HOME=$PWD ok plot runs/3 -o after.svg
cmp before.svg after.svg || fail "the user's own start file changes pictures"

# Seeds of a strategy are one curve, with a band; of one alone there is none.
for seed in 1 2 10; do
    make "runs/seeds/ddp-seed$seed" "2.3 * exp(-t * $seed / 5)"
    make "runs/seeds/diloco-seed$seed" "2.5 * exp(-t * $seed / 5)"
done
make runs/seeds/alone-seed7 '2 - t'
make runs/seeds/own '2 - t'
ok plot runs/seeds -o seeds.svg
look seeds.svg 'ddp (3 seeds)' 'diloco (3 seeds)' alone-seed7 own
has seeds.svg 'band: the seeds, least to largest'

# A mean has the steps at which all its seeds were evaluated: what only some have does not bend it,
# nor what a resume has replaced.
header=step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy
line() { # STEP LOSS
    echo "$1,$1,$1,$2,$2,nan,nan"
}
mkdir -p runs/some/ddp-seed{1,2,3} runs/all/ddp-seed{1,2}
for seed in all/ddp-seed1 all/ddp-seed2 some/ddp-seed1 some/ddp-seed2 some/ddp-seed3; do
    { echo $header && line 0 8; } >runs/$seed/metrics.csv
done
line 5 64 >>runs/some/ddp-seed2/metrics.csv
{ line 10 99 && line 20 99; } >>runs/some/ddp-seed3/metrics.csv
for seed in all/ddp-seed1 all/ddp-seed2 some/ddp-seed1 some/ddp-seed2 some/ddp-seed3; do
    { line 10 4 && line 20 2; } >>runs/$seed/metrics.csv
done
line 30 32 >>runs/some/ddp-seed1/metrics.csv
ok plot runs/some -o some.svg --title x
ok plot runs/all -o all.svg --title x
sed -i 's/([23] seeds)/(seeds)/' some.svg all.svg
cmp some.svg all.svg || fail 'a mean of seeds has steps that not all have, or what a resume has replaced'
sed -i '2,$s/^/7/' runs/some/ddp-seed2/metrics.csv
expect 2 "exogym: $folder/runs/some/ddp-seed*: no step at which all 3 seeds were evaluated; plot fewer of them" plot runs/some -o none.svg
sed -i '3s/^[0-9]*/nan/' runs/some/ddp-seed2/metrics.csv
expect 1 "exogym: $folder/runs/some/ddp-seed2/metrics.csv:3: field 1 is no number" plot runs/some -o none.svg

ok plot runs/3 -o plain.svg
if grep -q band: plain.svg; then fail 'a band without seeds'; fi
finish
