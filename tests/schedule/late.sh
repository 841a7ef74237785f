#!/usr/bin/env bash
# The pauses of schedule.c find the fault of late.c. About one seed in 20 does.
set -u
for ((seed = 1; seed <= 1000; seed++)); do
    said=$(EXO_SCHEDULE_SEED=$seed EXO_SCHEDULE_PAUSE_MS=400 LD_PRELOAD=$EXO_BUILD/tests/schedule.so "$EXO_BUILD/tests/test_late")
    status=$?
    if [ $status = 1 ] && [ "$said" = "it was done before it had counted" ]; then
        echo "found with seed $seed"
        exit 0
    elif [ $status != 0 ]; then
        echo "test_late ended with status $status: $said"
        exit 1
    fi
done
echo "no seed up to 1000 has found the planted fault"
exit 1
