#!/usr/bin/env bash
# `exogym list environments`, with and without the plugin of an optional environment.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

if [ -e "$EXO_BUILD/exogym-box2d.so" ]; then
    "$EXOGYM" list environments | grep -q '^lunar_lander  *LunarLander-v3' || fail "the plugin is not found"
fi

# A program whose folder has no plugin.
mkdir -p alone
cp "$EXOGYM" alone/exogym
alone/exogym list environments >out || fail "list environments failed"
grep -q "^lunar_lander  *environment 'lunar_lander' needs Box2D: .*install libbox2d-dev" out || fail "$(cat out)"
grep -q '^cartpole ' out || fail "$(cat out)"
if alone/exogym run "$EXO_SOURCE/examples/06_ppo_cartpole/lunar_lander.yaml" >out 2>&1; then
    fail "a run without Box2D succeeded"
fi
grep -q "needs Box2D: .*install libbox2d-dev and build exogym again" out || fail "$(cat out)"
finish
