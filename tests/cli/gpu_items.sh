#!/usr/bin/env bash
# Items whose arrays are on the emulated GPU (tests/cuda): the same values and counted bytes in one
# process, between workers of a host, which open each other's memory, and where that is not possible;
# actors that die, and a GPU that fails or is full.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
cat >arrays.yaml <<END
exogym: 1
name: arrays
plugins: [$EXO_BUILD/tests/plugins/gpu_items.so]
variables: {device: cpu, items: 12, elsewhere: false}
actors:
  source: {class: array_source, config: {device: '\${device}', items: '\${items}'}}
  relay: {class: array_relay, config: {device: '\${device}', elsewhere: '\${elsewhere}'}}
  sink: {class: array_sink, config: {device: '\${device}'}}
edges:
  - {from: source, to: relay, carries: arrays}
  - {from: relay, to: sink, carries: doubled}
END
# go NAME [OPTION...]: a run; the sum of all numbers is that of the formula.
go() {
    ok run arrays.yaml --name "$@"
    python3 - "runs/$1" <<'END' || fail "$1: other items: $(cat "runs/$1/result.json")"
import json, sys
meters = json.load(open(f"{sys.argv[1]}/result.json"))["meters"]
sums = 2 * sum((i + k) % 1000 for i in range(12) for k in range(100000))
assert meters["sink_0.count"]["value"] == 12 and meters["sink_0.sum"]["value"] == sums, meters
END
}
# stayed NAME EDGE: bytes of an edge that stayed on the GPU, of 4,800,000.
stayed() {
    awk -F, -v edge="$2" '$1 == edge { sum += $12 } END { print sum }' "runs/$1/ledger.csv"
}
# counted NAME: what the ledger has besides times and those bytes.
counted() {
    cut -d, -f1-2,4-9 "runs/$1/ledger.csv" | sort
}
first='source>relay:arrays'
second='relay>sink:doubled'
whole=4800000

go cpu
[ "$(stayed cpu $first)" = 0 ] || fail "arrays of the CPU stayed on a device"
go here --set variables.device=cuda
[ "$(stayed here $first) $(stayed here $second)" = "$whole $whole" ] || fail "here: $(cat runs/here/ledger.csv)"
go clock --set variables.device=cuda --set clock=virtual
[ "$(stayed clock $first)" = $whole ] || fail "on the virtual clock: $(cat runs/clock/ledger.csv)"
# From one process to another the first items are bytes, until the receiver has tried a name.
go far --set variables.device=cuda --workers 3
for edge in $first $second; do
    bytes=$(stayed far "$edge")
    [ "$bytes" -ge $((whole / 3)) ] && [ "$bytes" -lt $whole ] || fail "far: $bytes bytes stayed on the GPU"
done
# Another place gets bytes.
go elsewhere --set variables.device=cuda --set variables.elsewhere=true --workers 3
[ "$(stayed elsewhere $first) $(stayed elsewhere $second)" = '0 0' ] || fail "elsewhere: $(cat runs/elsewhere/ledger.csv)"
# A codec takes the bytes from the GPU. A receiver on the CPU does so, too, and one on another GPU copies.
go codec --set variables.device=cuda --set edges.0.codec=zstd
[ "$(stayed codec $first)" = 0 ] || fail "a codec had no bytes"
go mixed --set variables.device=cuda --set actors.relay.config.device=cpu
go mixed_far --set variables.device=cuda --set actors.relay.config.device=cpu --workers 3
[ "$(stayed mixed_far $first)" = 0 ] || fail "names came to a CPU"
EXO_CUDA_EMULATOR='gpus=2' go two --set variables.device=cuda --set actors.relay.config.device=cuda:1
EXO_CUDA_EMULATOR='gpus=2' go two_far --set variables.device=cuda --set actors.relay.config.device=cuda:1 --workers 3
for name in here clock far elsewhere mixed two two_far; do
    [ "$(counted cpu)" = "$(counted $name)" ] || fail "$name has other counts: $(counted $name)"
done

# What is wrong
EXO_CUDA_EMULATOR='gpus=0' bad 1 'relay_0: there is no GPU' run arrays.yaml --name w1 --set actors.relay.config.device=cuda
EXO_CUDA_EMULATOR='fail_at=20' bad 1 'cudaErrorLaunchFailure' run arrays.yaml --name w2 --set variables.device=cuda
EXO_CUDA_EMULATOR='fail_at=20' bad 1 'cudaErrorLaunchFailure' run arrays.yaml --name w3 --set variables.device=cuda --workers 3
EXOGYM_CUDA_MEMORY=8MiB bad 1 '_0: no memory for a' run arrays.yaml --name w4 --set variables.device=cuda # device, or array of an actor that was sooner
ok why runs/w4
has out 'EXOGYM_CUDA_MEMORY lets this process have 8388608 bytes there, of which it has '
bad 1 "there is no device 'cude'" run arrays.yaml --dry-run --set variables.device=cude
EXOGYM=$here
finish
