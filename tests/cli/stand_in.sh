#!/usr/bin/env bash
# The class stand_in against closed forms: the time of a run on the virtual clock, by the steps in
# which its fragments communicate and what the steps after them hide.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >graph.yaml <<'END'
exogym: 1
clock: virtual
variables: {every: 4, fragments: 1, delay: 0, overlap: false, backward: 0 ms, steps: 8}
actors:
  replica:
    class: stand_in
    count: 2
    config: {steps: "${steps}", every: "${every}", fragments: "${fragments}", delay: "${delay}", overlap: "${overlap}",
             layers: 4, bytes: 8 MB, forward: 10 ms, backward: "${backward}"}
edges:
  - {from: replica, to: replica, carries: gradients, route: all_reduce}
links: {default: {bandwidth: 1 Gbit/s, transport: ideal}}
END

# takes MS VARIABLES...: the run takes that long. All 8 MB take 64 ms, half of them 32.
takes() {
    local ms=$1 sets=() v
    shift
    for v in "$@"; do sets+=(--set "variables.$v"); done
    ok run graph.yaml --overwrite --json ${sets[@]+"${sets[@]}"}
    # a message has some bytes of its own
    awk -v want="$ms" '/"time_s"/ { gsub(/[^0-9.]/, "", $2); ms = 1000 * $2; exit } END { exit !(ms >= want && ms < want + 0.1) }' out ||
        fail "$*: $(grep -m1 time_s out), not $ms ms"
}
takes $((80 + 2 * 64))
takes $((80 + 8 * 64)) every=1
takes $((80 + 4 * 32)) fragments=2                # in the steps 2, 4, 6 and 8
takes $((80 + 3 * 22 + 32)) fragments=2 delay=1   # a step hides 10 ms; none follows the last
takes $((80 + 3 * 12 + 32)) fragments=2 delay=2   # two steps hide 20 ms
takes $((100 + 4 * 12 + 32)) fragments=2 delay=2 steps=10 # the last is that of step 10
takes $((8 * 50 + 2 * 64)) backward='40 ms'
takes $((8 * 50 + 2 * 34)) backward='40 ms' overlap=true # layers of 16 ms begin after 10, 20, 30 and 40 ms
takes $((8 * 50 + 2 * 6 + 2 * 16)) backward='40 ms' overlap=true fragments=2 # layers 0 and 2, then 1 and 3

bad 2 'fragments must be at most 4, got 5' run graph.yaml --set variables.fragments=5
bad 2 'delay must be at most 3, got 4' run graph.yaml --set variables.delay=4
finish
