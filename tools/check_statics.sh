#!/usr/bin/env bash
# check_statics.sh ARCHIVE: no object of the archive has a variable that outlives a call and can be
# written. What threads of a test share is then in sight: the program owns it, and gives it to who
# needs it. Prints each such variable and ends with 1 if there is one.
set -uo pipefail
# What is only relocated when a program starts (.data.rel.ro) is constant afterwards.
found=$(objdump -t "$1" | awk '
    /file format/ { file = $1; sub(/:$/, "", file) }
    / O / && / (\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ && !/ \.data\.rel\.ro/ { print file ": " $NF }') || {
    echo "check_statics: $1 cannot be read"
    exit 1
}
[ -z "$found" ] || {
    printf 'Variables that can be written:\n%s\n' "$found"
    exit 1
}
