#!/usr/bin/env bash
# Collectives that follow measured links: nodes on workers measure them, also over emulated ones whose
# rates are known, and over tcp; links.json says what was found, and a job that names it has the same
# bits in one process and on workers.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

export TMPDIR=$folder

cat >job.yaml <<'YAML'
exogym: 1
name: measured
seed: 3
model: {name: mlp, hidden: 32}
data: {name: synthetic, count: 1024}
nodes: 4
train: {max_steps: 6, batch_size: 32, val_size: 64}
strategy: ddp
equal_bits: false
collectives: {way: ring, links: measured}
YAML
cat job.yaml - >slow.yaml <<'YAML'
hosts: {h0: {}, h1: {}, h2: {}, h3: {}}
links:
  default: {bandwidth: 1 Gbit/s, latency: 0.1 ms}
  slow: {from: h1, to: h2, bandwidth: 1 Gbit/s, latency: 0.1 ms, schedule: [{at: 0 s, factor: 0.01}]}
YAML

# ring FILE: the order of the ring, on one line, such as 0,2,1,3
ring() {
    sed -n 's/.*"ring": \[\(.*\)\].*/\1/p' "$1" | tr -d ' '
}
# avoids FILE: the nodes 1 and 2 are not neighbours
avoids() {
    case ",$(ring "$1"),$(ring "$1" | cut -d, -f1)," in
    *,1,2,* | *,2,1,*) return 1 ;;
    esac
}
hash_of() {
    grep -o '"sha256": "[0-9a-f]*"' "$1"
}

# Measured over links whose rates are known. What is declared does not say that one is slow: only its
# schedule does. Another program may have kept a message for long, so it may measure several times.
for ((i = 0; i < 20; i++)); do
    ok run slow.yaml --no-plot --workers 4 --overwrite
    has err 'measured links: '
    avoids runs/measured/ddp/links.json && break
done
avoids runs/measured/ddp/links.json || fail "the ring has the slow link: $(cat runs/measured/ddp/links.json)"
[[ $(ring runs/measured/ddp/links.json) =~ ^[0-3],[0-3],[0-3],[0-3]$ ]] || fail "no ring: $(cat runs/measured/ddp/links.json)"
has runs/measured/ddp/config.json '"links": "measured"'
cp runs/measured/ddp/links.json known.json
hash_of runs/measured/ddp/result.json >wanted
[ -s wanted ] || fail 'no hash'

# Pinned: the same ring and so the same bits, in one process and on any number of workers, and as a
# new run of the run's own config.json.
for where in '' '--workers 2' '--workers 4 --transport curve'; do
    # shellcheck disable=SC2086
    ok run job.yaml --no-plot --overwrite --set collectives.links=known.json $where
    has err 'links of the file: '
    cmp -s known.json runs/measured/ddp/links.json || fail "links.json differs $where"
    hash_of runs/measured/ddp/result.json | cmp -s wanted - || fail "other bits $where"
done
cp runs/measured/ddp/config.json again.json
ok run again.json --no-plot --overwrite --workers 2
hash_of runs/measured/ddp/result.json | cmp -s wanted - || fail 'other bits with config.json'
# The order of ranks has other bits: the ring of the file was used.
ok run job.yaml --no-plot --overwrite --set collectives=ring
hash_of runs/measured/ddp/result.json | cmp -s wanted - && fail 'the bits do not depend on the ring'

# Measured on real connections, in shared memory and over tcp; with a chosen way, and with all bits
# equal: then `auto` takes no way that changes the bits.
ok run job.yaml --no-plot --overwrite --set collectives=direct --set equal_bits=true
hash_of runs/measured/ddp/result.json >wanted
for transport in ipc curve; do
    ok run job.yaml --no-plot --overwrite --workers 4 --transport $transport --set collectives.way=auto --set equal_bits=true
    has err 'measured links: '
    hash_of runs/measured/ddp/result.json | cmp -s wanted - || fail "auto has other bits over $transport"
    [ "$(grep -c '\[0, ' runs/measured/ddp/links.json)" -ge 2 ] || fail "links.json: $(cat runs/measured/ddp/links.json)"
    ok run job.yaml --no-plot --overwrite --workers 2 --transport $transport --set collectives.way=hierarchical
    has err 'measured links: '
done

# A resumed run measures again; an elastic one measures once.
ok run job.yaml --no-plot --overwrite --workers 2
ok run job.yaml --no-plot --workers 2 --resume --set train.max_steps=9
has err 'measured links: '
ok run job.yaml --no-plot --overwrite --workers 4 --set train.elastic.min_nodes=2
has err 'measured links: '

# refused TEXT OPTIONS...: the job ends with an error that has the text.
refused() {
    local text=$1
    shift
    "$EXOGYM" run job.yaml --no-plot --overwrite "$@" >out 2>err && fail "$*: it runs"
    grep -qF -- "$text" err || fail "$*: $(cat err)"
}
refused 'links are measured between workers'
refused 'on the virtual clock there is nothing to measure' --set clock=virtual
refused 'the way tree does not depend on links' --set collectives.way=tree --workers 2
refused 'the way direct does not depend on links' --set collectives.way=direct --workers 2
refused 'ring sums in another order' --set equal_bits=true --workers 2
refused 'none.json: No such file' --set collectives.links=none.json
refused 'the links are of 4 nodes, and the job has 3' --set collectives.links=known.json --set nodes=3
echo '{"nodes": 4, "rates_bit_per_s": [], "latencies_s": []}' >bad.json
refused 'bad.json: rates_bit_per_s and latencies_s: expected a positive rate' --set collectives.links=bad.json
echo '{' >bad.json
refused 'bad.json: line 2: ' --set collectives.links=bad.json
refused "unknown key 'link'" --set collectives.link=measured
finish
