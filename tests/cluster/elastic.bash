# What the scripts of elastic runs share. Source it after common.bash.
names=(w1 w2 w3)
at=()      # options of workers and of the job, where the cluster is not reached by ipc
first=1000 # the step at which a job has begun: a pattern
RANDOM=${EXO_CHAOS_SEED:=$(($$ % 32768))}
echo "EXO_CHAOS_SEED=$EXO_CHAOS_SEED"

# job STRATEGY STEPS OPTIONS: job.yaml. The options are those of `elastic`; $more is a line of it.
job() {
    cat >job.yaml <<YAML
exogym: 1
name: elastic
seed: 11
model: {name: mlp, hidden: ${hidden:-32}}
data: {name: synthetic, count: 1024}
nodes: 3
train: {max_steps: $2, batch_size: 32, val_size: 64, val_interval: ${often:-1000}, checkpoint_interval: 5000, elastic: {$3}}
strategy: {name: $1, optimizer: {name: adamw, lr: 1e-3}}
${more:-}
YAML
}

# count_samples STRATEGY STEPS OPTIONS: job.yaml, of a model that counts samples. There are as many as
# the steps take, or $spare times as many, where batches of lost nodes are skipped.
count_samples() {
    local samples=$((${spare:-1} * 3 * $2 + 4))
    python3 -c "import array; array.array('I', range($samples)).tofile(open('count.bin', 'wb'))"
    cat >job.yaml <<YAML
exogym: 1
name: elastic
seed: 11
plugins: [$EXO_BUILD/tests/plugins/tally.so]
model: {name: tally, vocabulary: $samples}
data: {name: tokens, path: count.bin, dtype: uint32, block: 1, end_pc: 1.0}
nodes: 3
train: {max_steps: $2, batch_size: 1, val_size: 0, shuffle: false, checkpoint_interval: $(($2 / 30)), elastic: {$3}}
strategy: {name: $1, optimizer: {name: sgd, lr: 1}}
YAML
}

# begun NAME: whether the run has made its first steps.
begun() {
    grep -q "step $first/" "$1.err"
}

# train NAME OPTIONS...: starts the job in the background; it has begun when this returns. Its nodes are in
# the namespace $space.
train() {
    local name=$1
    shift
    "$EXOGYM" run job.yaml --json --no-plot --save-dir "$name" --head "${EXOGYM_HEAD:-ipc://$place/head}" "$@" >"$name.out" 2>"$name.err" &
    run_pid=$!
    started+=($!)
    space=elastic/$(sed -n 's/^strategy: {name: \([a-z_]*\).*/\1/p' job.yaml)/$run_pid
    until_true 200 eval "begun $name || gone $run_pid"
    begun "$name" || fail "the job does not begin: $(tail -3 "$name.err")"
}

# events NAME EVENT: the rows of its members.csv with that event.
events() {
    cat "$1"/elastic/*/members.csv 2>/dev/null | grep -c ",$2," || :
}

# lost NAME COUNT, full NAME COUNT: whether so many nodes were lost; whether that, and all are back.
# They start no programs, because they are called again and again.
lost() {
    local rows=() row count=0 file
    for file in "$1"/elastic/*/members.csv; do
        [ ! -e "$file" ] || mapfile -t rows <"$file"
    done
    for row in "${rows[@]}"; do
        [[ $row != *,left,* ]] || count=$((count + 1))
    done
    last=${rows[*]: -1}
    [ "$count" -ge "$2" ]
}

full() {
    lost "$1" "$2" && [[ $last == *,3 ]]
}

# outlives NAME STEPS WRITE: the run NAME of the job that `WRITE STEPS` writes `lives`, and a node came
# back. A fast machine may end it before: then with twice the steps.
outlives() {
    local steps=$2 most=$((4 * $2))
    while :; do
        "$3" "$steps"
        lives "$1"
        [ "$(events "$1" joined)" = 0 ] || return 0
        steps=$((2 * steps))
        [ "$steps" -le "$most" ] || fail "$1: no node came back"
        rm -r "$1"
    done
}

# host_of RANK: the worker that has the node of the run, as the test calls it: a head that has not
# heard of a death yet calls the next worker of that name w1-2.
host_of() {
    x list actors --json | awk -v RS='{' "/\"node_$1\"/ && /\"alive\"/" |
        sed -n 's/.*"node": "\([^-"]*\).*/\1/p'
}

# hosts_of RANK...: the worker of each of these nodes that lives.
hosts_of() {
    local rank
    for rank in "$@"; do
        host_of "$rank"
    done | grep .
}

# present NAME: the ranks that train now.
present() {
    cat "$1"/elastic/*/members.csv 2>/dev/null |
        awk -F, '$4 == "left" {gone[$5] = 1} $4 == "joined" {delete gone[$5]}
                 END {for (r = 0; r < 3; r++) if (!(r in gone)) print r}'
}

# scatter NAME: moves nodes until two workers at least have some, so that the run outlives the death of
# one worker.
scatter() {
    local before
    until [ "$(hosts_of 0 1 2 | sort -u | wc -l)" -ge 2 ]; do
        before=$(events "$1" left)
        x kill node_0 -n "$space" >kill.out 2>&1 || :
        until_true 120 full "$1" $((before + 1)) || fail "node_0 does not come back: $(tail -3 "$1.err")"
    done
}

# strike NAME: kills one of the workers that have present nodes of the run, and starts it again. If
# one worker has all of them, one node is ended alone, which comes back elsewhere. Sets `struck` to
# the moment; false: there are too few nodes. A run that is late may call a node present that has died.
strike() {
    local hosts ranks victim living
    mapfile -t ranks < <(present "$1")
    mapfile -t hosts < <(hosts_of "${ranks[@]}")
    living=${#hosts[@]}
    mapfile -t hosts < <(printf '%s\n' "${hosts[@]}" | sort -u)
    if [ ${#hosts[@]} -lt 2 ]; then
        struck=$(now_ms)
        [ "$living" -ge 2 ] && x kill "node_${ranks[0]}" -n "$space" >kill.out 2>&1
        return
    fi
    victim=${hosts[$((RANDOM % ${#hosts[@]}))]}
    struck=$(now_ms)
    slay "$victim"
    worker "$victim" "${at[@]}"
}
