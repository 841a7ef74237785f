#!/usr/bin/env bash
# `exogym doctor`, and the devices that this machine has or lacks.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# Limits are those of the process, and a limit that is too low comes with its mend.
(ulimit -n 512 && "$EXOGYM" doctor >low)
grep -q '^! descriptors    512, at most 512$' low || fail "$(cat low)"
grep -A1 '^! descriptors' low | grep -q 'ulimit -n 65536' || fail "no mend: $(cat low)"
if grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then # sanitizers take more addresses
    (ulimit -v 4194304 && "$EXOGYM" doctor >low)
    grep -A1 '^! addresses      at most 4096 MiB$' low | grep -q 'ulimit -v unlimited' || fail "$(cat low)"
    # A run beneath such a limit ends with an error, where oneDNN would crash.
    for limit in 350000 400000; do
        (ulimit -v $limit && exec "$EXOGYM" run job.yaml --set model=mnist_cnn --no-plot --overwrite >out 2>err)
        [ $? = 1 ] || fail "ulimit -v $limit: not an error: $(tail -2 err)"
    done
    has err 'raise the limit of addresses (ulimit -v unlimited)'
fi
"$EXOGYM" doctor | grep -q ' addresses ' && [ "$(ulimit -v)" = unlimited ] && fail 'a limit of addresses is made up'
ok doctor --json
python3 - <<'END' || fail "$(cat out)"
import json, os
found = {f["name"]: f for f in json.load(open("out"))}
assert found["cores"]["value"].startswith(f"{len(os.sched_getaffinity(0))} of "), found["cores"]
stat = os.statvfs("/dev/shm")
assert found["/dev/shm"]["value"].startswith(f"{stat.f_blocks * stat.f_frsize / 2**30:.1f} GiB")
assert "CUDA" in found and (found["CUDA"]["mend"] or "cuda:0" in found)
for f in found.values():
    assert set(f) == {"name", "value", "mend"}, f
END
PATH=/nowhere "$EXOGYM" doctor >out 2>err
has out 'apt-get install gnuplot-nox'
expect 2 "exogym: doctor: 'now' is one word too many (see \`exogym help doctor\`)" doctor now

# A plugin that is there and cannot be loaded is shown with the reason.
mkdir broken
cp "$EXOGYM" broken/exogym
echo 'no library' >broken/exogym-cuda.so
broken/exogym doctor >out 2>err
has out 'exogym-cuda.so is there, and cannot be loaded'
has out 'install CUDA 13 with cuBLASLt, name the folder of its libraries in LD_LIBRARY_PATH'
broken/exogym list engines >out 2>err || fail "list engines: $(cat err)"
for engine in gpu nccl; do
    grep -q "^$engine .*exogym-cuda.so" out || fail "list engines: $(cat out)"
done

# A job whose device is not there.
for device in mps cpu:1 cuda:x gpu; do
    "$EXOGYM" run "$EXO_SOURCE/examples/01_compare/compare.yaml" --preset quick --no-plot --set device=$device >out 2>err &&
        fail "device $device ran"
    cat err
done >errors
for text in "Apple's GPUs are not supported" 'devices of the kind cpu have no numbers' \
    'expected a number from 0 behind cuda:' "there is no device 'gpu'"; do
    has errors "$text"
done
if ! "$EXOGYM" doctor | grep -q cuda:0; then
    "$EXOGYM" run "$EXO_SOURCE/examples/01_compare/compare.yaml" --preset quick --no-plot --name gpu \
        --set device=cuda >out 2>err && fail 'device cuda ran without a GPU'
    [ ! -e runs/gpu ] || fail 'the run began'
    grep -Eq 'there is no GPU: .*device: cpu|built without CUDA: .*device: cpu' err || fail "$(cat err)"
fi
finish
