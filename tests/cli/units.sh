#!/usr/bin/env bash
# systemd's units for a cluster that stays: systemd takes them, finds little that they leave open,
# and they use options that the programs have.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

command -v systemd-analyze >/dev/null || {
    echo "systemd is not installed: skipped"
    exit 77
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for program in exogym-head exogym-worker; do
    unit=$(basename "$(compgen -G "$EXO_BUILD/systemd/$program*.service")")
    # The program lies where the build has it.
    sed "s#^ExecStart=[^ ]*/$program #ExecStart=$EXO_BUILD/$program #" "$EXO_BUILD/systemd/$unit" >"$folder/$unit"
    grep -q "^ExecStart=$EXO_BUILD/$program " "$folder/$unit" || fail "$unit does not start $program"
    systemd-analyze verify --man=no "$folder/${unit/@./@w1.}" >"$folder/said" 2>&1 || fail "$unit: $(cat "$folder/said")"
    ! grep -F "$unit" "$folder/said" || fail "$unit: systemd has something to say of it"
    # 0 (nothing is left open) to 10; sockets are open, and count.
    systemd-analyze security --no-pager --offline=true --threshold=20 "$folder/$unit" >"$folder/said" 2>&1 ||
        fail "$unit leaves more open than before: $(grep -E '✗|exposure' "$folder/said")"
    "$EXO_BUILD/$program" --help >"$folder/help"
    while read -r option; do
        grep -q -- "$option\b" "$folder/help" || fail "$unit: $program has no $option"
    done < <(grep -v '^\[' "$folder/$unit" | grep -oE -- '(^| )--[a-z-]+' | sort -u)
done
# Whoever writes memory and runs it: oneDNN, in workers.
grep -qx 'MemoryDenyWriteExecute=yes' "$folder/exogym-head.service" || fail "the head may write code"
! grep -q '^MemoryDenyWriteExecute=yes' "$folder/exogym-worker@.service" || fail "oneDNN cannot work in this worker"
