#!/usr/bin/env bash
# A job that Slurm starts: a controller and one node on this host, with sockets and state in this
# test's folder, and the script of examples/17_cluster. The hash is that of one process. Skipped
# where Slurm, MPI, or the rights to run a node are missing.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
for program in slurmctld slurmd srun sbatch sinfo python3; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || exit 77
done
[ -e "$EXO_BUILD/exogym-mpi.so" ] && [ "$(id -u)" = 0 ] || exit 77
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # MPI keeps memory until the process ends
export PATH=$PATH:/usr/sbin OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/none
CryptoType=crypto/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=10 State=UP OverSubscribe=FORCE
END
mkdir state spool

started=()
slurmctld -D >ctl.out 2>&1 </dev/null &
started+=($!)
slurmd -D >node.out 2>&1 </dev/null &
started+=($!)
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$folder"' EXIT

# idle: waits until the node takes jobs. Skips the test if this host cannot be a node.
end=$((SECONDS + 60))
until [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; do
    kill -0 "${started[@]}" 2>/dev/null && [ $SECONDS -lt $end ] || {
        echo "this host cannot be a node of Slurm: $(tail -n 3 slurmctld.log slurmd.log ctl.out node.out 2>&1)"
        exit 77
    }
    sleep 0.1
done
srun --mpi=list 2>&1 | grep -q pmix || exit 77

sed -i -e '/^compare:/d' -e '/^presets:/d' -e 's/^nodes: 2/nodes: 4/' -e 's/^strategy: {/strategy: {name: diloco, H: 3, /' job.yaml
ok run job.yaml --name one --no-plot
sha256=$(json runs/one/diloco/result.json sha256)

# The script of the example, in a batch job of four tasks.
mkdir t
export TMPDIR=$folder/t PATH=$(dirname "$EXOGYM"):$PATH
sbatch --wait --quiet --ntasks=4 --output=batch.out "$EXO_SOURCE/examples/17_cluster/slurm.sh" job.yaml --name batch --no-plot --set engine=mpi ||
    fail "the batch job: $(tail -5 batch.out)"
[ "$(json runs/batch/diloco/result.json sha256)" = "$sha256" ] || fail "other bits under Slurm: $(tail -5 batch.out)"

# srun alone.
srun --mpi=pmix --ntasks=4 exogym run job.yaml --name alone --no-plot >out 2>err || fail "srun: $(tail -5 err)"
[ "$(json runs/alone/diloco/result.json sha256)" = "$sha256" ] || fail 'srun: other bits'

# Without MPI, srun would start four runs of their own.
srun --mpi=none --ntasks=4 exogym run job.yaml --name none >out 2>err && fail 'srun without MPI succeeds'
has err 'srun started several tasks without MPI'
[ ! -e runs/none ] || fail 'srun without MPI wrote runs'

finish
