#!/usr/bin/env bash
# What plugins refer to, beside what a program exports to them (include/exogym/export.h).
#
#     tools/check_plugins.sh PROGRAM PLUGIN...
#
# A plugin with a function of the library that the program does not export is built without a word, and cannot be loaded.
set -u
program=$1
shift
[ -n "$(nm -D --defined-only "$program" | grep ' exo_')" ] || { echo "$program exports nothing"; exit 1; }
bad=0
for plugin; do
    lacks=$(comm -23 <(nm -D --undefined-only "$plugin" | awk '$2 ~ /^exo_/ { print $2 }' | sort) \
        <(nm -D --defined-only "$program" "$plugin" | awk '{ print $NF }' | sort))
    [ -z "$lacks" ] && continue
    printf '%s: %s exports no %s: EXO_API is missing, or the plugin has to do without\n' "$plugin" "$program" "${lacks//$'\n'/, }"
    bad=1
done
exit $bad
