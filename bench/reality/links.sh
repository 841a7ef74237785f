#!/usr/bin/env bash
# Compares the model of links with the kernel: messages over TCP between network namespaces with
# limited rates (namespaces.sh), measured and predicted. Prints the lines of messages.c, and the
# median and the worst of the errors. Needs root; takes a quarter of an hour.
#
#     bench/reality/links.sh [--build FOLDER] [--repeats N] [CONFIGURATION...]
#
# A CONFIGURATION is N:UP:DOWN:LATENCY_MS:LOSS:PATTERN:BYTES[,PATTERN:BYTES...], such as
# 2:100mbit:100mbit:10:0:one:1000000,one:10000. The default is the list below. Messages with a LOSS
# other than 0 have their own summary: the model predicts a mean, and single messages scatter.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=build/release repeats=3
while [[ ${1:-} == --* ]]; do
    case $1 in
    --build) build=$2 ;;
    --repeats) repeats=$2 ;;
    *)
        echo "links.sh: what is $1?" >&2
        exit 2
        ;;
    esac
    shift 2
done
configurations=("$@")
# shellcheck disable=SC2054
[ $# -gt 0 ] || configurations=(
    2:10mbit:10mbit:5:0:one:50000,one:1000000
    2:10mbit:50mbit:0:0:one:200000,one:2000000
    2:20mbit:100mbit:20:0:one:10000,one:500000,one:5000000
    2:50mbit:50mbit:50:0:one:100000,one:5000000
    2:100mbit:100mbit:1:0:one:100000,one:10000000
    2:100mbit:100mbit:10:0:one:10000,one:1000000,one:10000000
    2:100mbit:100mbit:50:0:one:1000000,one:10000000
    2:200mbit:100mbit:10:0:one:1000000,one:10000000
    2:500mbit:500mbit:5:0:one:1000000,one:10000000
    2:500mbit:500mbit:25:0:one:10000000
    4:100mbit:50mbit:10:0:in:500000,in:3000000
    8:20mbit:100mbit:10:0:in:100000,in:1000000
    8:100mbit:100mbit:5:0:in:200000,in:2000000
    4:50mbit:100mbit:10:0:out:500000,out:2000000
    8:100mbit:100mbit:20:0:out:100000,out:1000000
    8:100mbit:20mbit:10:0:out:500000
    8:100mbit:10mbit:10:0:out:500000
    2:20mbit:100mbit:10:0:all:1000000,all:10000000
    3:50mbit:50mbit:5:0:all:300000,all:5000000
    4:20mbit:100mbit:20:0:all:1000000,all:10000000
    4:100mbit:100mbit:10:0:all:10000000
    8:25mbit:25mbit:10:0:all:1000000,all:5000000
    8:20mbit:100mbit:40:0:all:5000000
    2:10mbit:10mbit:20:0.001:one:3000000
    2:50mbit:50mbit:20:0.001:one:10000000
    2:50mbit:50mbit:20:0.01:one:3000000
)

# shellcheck disable=SC2034
DELAY=${DELAY:-$PWD/$build/bench/bench_reality_delay}
# shellcheck source=bench/reality/namespaces.sh
. bench/reality/namespaces.sh

rows=$(mktemp)
echo "# $(uname -sr), $(nproc) cores, tcp_congestion_control=$CONGESTION, tbf's queue $QUEUE_MS ms, $repeats repeats"
echo "#       Mbit/s      ms                              ms: median of"
echo "#pat  n     up   down latency   loss     bytes event   measured  predicted    error    first .. last"
for configuration in "${configurations[@]}"; do
    IFS=: read -r n up down latency LOSS messages <<<"$configuration"
    net_up "$n" "$up" "$down" "$latency" || {
        echo "links.sh: no network for $configuration" >&2
        exit 1
    }
    IFS=, read -r -a list <<<"$messages"
    for message in "${list[@]}"; do
        # shellcheck disable=SC2086
        $REALTIME "$build/bench/bench_reality_messages" "$net_name" "$n" "$(net_bits "$up")" "$(net_bits "$down")" "$latency" \
            "$LOSS" "$repeats" "${message%:*}" "${message#*:}" | tee -a "$rows"
    done
    net_down
done

# summary WHAT CONDITION: prints the errors of the rows for which an awk condition holds.
summary() {
    awk "$2"' { e = $11 < 0 ? -$11 : $11 + 0; print e }' "$rows" | sort -n | awk -v what="$1" '
        { e[NR] = $1 }
        END { if (NR) printf "%-16s %3d messages: median error %.1f %%, worst %.1f %%, within 10 %%: %d\n", what, NR, NR % 2 ? e[(NR + 1) / 2] : (e[NR / 2] + e[NR / 2 + 1]) / 2, e[NR], within(e, NR) }
        function within(e, n, i, c) { for (i = 1; i <= n; i++) c += e[i] <= 10; return c }'
}
for event in cold warm idle; do
    summary "$event" "\$6 == 0 && \$8 == \"$event\""
done
for pattern in one in out all; do
    summary "$pattern" "\$6 == 0 && \$1 == \"$pattern\""
done
summary "all without loss" "\$6 == 0"
summary "with loss" "\$6 > 0"
rm -f "$rows"
