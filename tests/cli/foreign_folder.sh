#!/usr/bin/env bash
# A run's folder that came from elsewhere, with links where a run has files and folders: nothing
# outside of it changes, whichever of them is a link. The names are those that a real run leaves, so
# that a new one is covered by itself.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# With a checkpoint of the middle and the end, a timeline and a table of the network.
sed -i -e 's/^compare:.*/compare: [{name: diloco, H: 4}]/' -e 's/val_interval: 5,/val_interval: 5, checkpoint_interval: 6,/' \
    -e 's/max_steps: 12/max_steps: 8/' job.yaml
ok run job.yaml --no-plot
mv runs/small whole
mapfile -t names < <(cd whole && find . -mindepth 1 -printf '%P\n' | sort)
[ "${#names[@]}" -ge 10 ] || fail "a run leaves ${#names[@]} files and folders"
# Those that are there for a moment, or after a crash.
names+=(diloco/checkpoints/.step_00000006.partial diloco/checkpoints/damaged_step_00000006 diloco/.progress.json.part diloco/progress.json
    diloco/.graph.lock diloco/checkpoints.1)

# What lies outside, with all that could be seen to have changed.
outside() { (cd outside && find . -printf '%P %y %s %T@ %m\n' | sort && find . -type f -exec sha256sum {} + | sort); }

# plant NAME: a link instead of what the run has there, to something like it.
plant() {
    local name=$1 target=outside/${1//\//_}
    if [ -e "whole/$name" ]; then
        cp -r "whole/$name" "$target"
    elif [[ $name == *step_* ]]; then
        cp -r whole/diloco/checkpoints/step_00000008 "$target"
    else
        echo 'a file of a person' >"$target"
    fi
    rm -rf "runs/small/$name"
    ln -s "$PWD/$target" "runs/small/$name"
}
# try HOW NAMES...: nothing changes beyond the links of these names.
try() {
    local how=$1
    shift
    rm -rf runs outside
    mkdir -p runs outside
    cp -r whole runs/small
    # So that a resumed one has something to do.
    [ "$how" != --resume ] || rm -f runs/small/diloco/result.json
    for name; do plant "$name"; done
    outside >before
    "$EXOGYM" run job.yaml --no-plot "$how" >out 2>err </dev/null
    outside >after
    cmp -s before after || fail "$how, with links for $*: $(diff before after | head -5)"
}
files=() folders=()
for name in "${names[@]}"; do
    if [ -d "whole/$name" ] || [[ $name == *damaged* || $name == *.partial ]]; then folders+=("$name"); else files+=("$name"); fi
done
for how in --overwrite --resume; do
    try $how "${files[@]}"
    for name in "${folders[@]}"; do try $how "$name"; done
    # Links that lead to nothing become nothing either.
    mapfile -t tables < <(printf '%s\n' "${files[@]}" | grep -v 'checkpoints/\|config.json')
    try $how "${tables[@]}"
    rm -rf outside && mkdir outside
    "$EXOGYM" run job.yaml --no-plot $how >out 2>err </dev/null
    [ -z "$(ls outside)" ] || fail "$how made what links lead to: $(ls outside)"
done

# It is said what is wrong, and what is the user's may be a link: the folder of all runs, and that
# of one.
rm -rf runs outside elsewhere
mkdir -p runs elsewhere outside
cp -r whole runs/small
mv runs/small/diloco/checkpoints outside/
ln -s "$PWD/outside/checkpoints" runs/small/diloco/checkpoints
"$EXOGYM" run job.yaml --no-plot --overwrite >out 2>err </dev/null && fail 'a run goes on beyond a link'
has err 'there is a link on the way'
rm -rf runs
ln -s elsewhere runs
ok run job.yaml --no-plot
[ -f elsewhere/small/diloco/result.json ] || fail 'runs may not be a link'

# Modes follow the umask.
rm -rf elsewhere/small
(umask 027 && "$EXOGYM" run job.yaml --no-plot >out 2>err </dev/null) || fail "umask: $(cat err)"
find elsewhere/small -type f -printf '%m %P\n' | grep -v '^640 ' && fail 'files have another mode than the umask leaves'
find elsewhere/small -type d -printf '%m %P\n' | grep -v '^750 ' && fail 'folders have another mode than the umask leaves'
finish
