#!/usr/bin/env bash
# All three stages, one after the other, and the picture.
#
#     examples/32_rlhf/run.sh [--quick] [--seed N] [TEXT]
#
# TEXT is tiny Shakespeare, by default that of `exogym data get shakespeare`. --quick takes tiny models
# and few steps, to see that it runs. EXOGYM is the command, by default build/release/exogym. Runs are
# written to ./runs.
set -euo pipefail
example=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exogym=${EXOGYM:-$example/../../build/release/exogym}
options=(--overwrite) seed=0
text=${EXOGYM_DATA:-$HOME/.local/share/exogym}/shakespeare/tinyshakespeare.txt

while [ $# -gt 0 ]; do
    case $1 in
    --quick) options+=(--preset quick) ;;
    --seed)
        seed=$2
        shift
        ;;
    *) text=$1 ;;
    esac
    shift
done
[ -r "$text" ] || {
    echo "run.sh: cannot read '$text': run 'exogym data get shakespeare', or name the file" >&2
    exit 1
}

python3 "$example/prepare.py" "$text" runs/rlhf_data
"$exogym" run "$example/1_sft.yaml" "${options[@]}" --set seed=$((42 + seed))
"$exogym" run "$example/2_reward.yaml" "${options[@]}" --set seed=$((142 + seed))
"$exogym" run "$example/3_ppo.yaml" "${options[@]}" --set seed=$((242 + seed))
cat runs/rlhf_sft/final_sft_0.json runs/rlhf_reward/final_reward_0.json runs/rlhf_ppo/final_trainer_0.json
if command -v gnuplot >/dev/null; then
    "$exogym" plot runs/rlhf_ppo -o runs/reward_kl.png --title "reward model's score against KL"
fi
