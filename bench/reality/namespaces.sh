# shellcheck shell=bash
# Hosts in network namespaces, joined by a hub. Bash scripts source this file (. namespaces.sh);
# they need root.
#
#   net_up N UP DOWN LATENCY   makes hosts 0 .. N-1. UP and DOWN are rates in tc's notation
#                              (20mbit), or lists with one for each host (20mbit,5mbit). LATENCY is
#                              one way, in ms, between any two hosts. The variable LOSS (0.001) is
#                              the share of lost packets
#   in_host I COMMAND...       runs a command in host I
#   host_ip I                  the address of host I
#   host_netns I               the name of the namespace of host I
#   net_down                   ends all processes in the hosts, and removes the hosts. It also runs
#                              when the script ends, by itself or by a signal
#
#        host I                                hub                                host J
#   program - eth0 (tbf UP) -- hI (tbf DOWN) <- routes - delay (tun) <- routes - hJ -- eth0 (tbf UP)
#
# A packet waits for the sender's rate up, then for the latency, then for the receiver's rate down.
# tbf is a token bucket: after a pause, a burst of BURST bytes passes at once. So BURST is small:
# two packets and 0.25 ms of the rate. From 150 Mbit/s on it is 70,000 bytes, so that TCP's segments
# stay together in pieces of up to 64 kB; a small machine cannot handle them one by one. The queue
# of each rate holds QUEUE_MS of data (at least 30,000 bytes) and drops further packets, as a home
# router does. CONGESTION is TCP's congestion control (default: cubic, as on most machines).
#
# REALTIME is a prefix of the commands of the router and of timed programs, so that they do not wait
# for other programs of the machine. The default is `chrt -f 10` if that is allowed, else empty.
#
# DELAY is what delays packets: the path of bench_reality_delay, or netem where the kernel has it.
# With netem the queue of the rate down has no limit.

: "${CONGESTION:=cubic}" "${QUEUE_MS:=100}" "${LOSS:=0}" "${DELAY:=$PWD/build/release/bench/bench_reality_delay}"

[ -n "${REALTIME+set}" ] || { chrt -f 10 true 2>/dev/null && REALTIME="chrt -f 10" || REALTIME=; }

net_name=exo$$
net_hosts=0
net_delay=

host_netns() { printf '%s_%s\n' "$net_name" "$1"; }
host_ip() { printf '10.78.%s.2\n' "$1"; }

in_host() {
    local host=$1
    shift
    ip netns exec "$(host_netns "$host")" "$@"
}

# net_item LIST I: the I-th element of a list; of a shorter list, its last one.
net_item() {
    local list
    IFS=, read -r -a list <<<"$1"
    printf '%s\n' "${list[$2]:-${list[-1]}}"
}

# net_bits RATE: a rate in tc's notation (20mbit, 1.5gbit, 800kbit) in bits per second.
net_bits() {
    awk -v r="${1,,}" 'BEGIN { f = r ~ /gbit/ ? 1e9 : r ~ /mbit/ ? 1e6 : r ~ /kbit/ ? 1e3 : 1; printf "%d\n", r * f }'
}

# net_limit NAMESPACE DEVICE RATE: limits the rate at which a device sends.
net_limit() {
    local bits burst limit
    bits=$(net_bits "$3")
    burst=${BURST:-$((bits < 150000000 ? 3100 + bits / 32000 : 70000))}
    limit=$((bits * QUEUE_MS / 8000 > 30000 ? bits * QUEUE_MS / 8000 : 30000))
    tc -n "$1" qdisc replace dev "$2" root handle 1: tbf rate "$bits" burst "$burst" limit "$limit"
}

# A namespace can only use a congestion control that is allowed to all users, so CONGESTION is
# allowed for a moment.
net_settings() {
    local allowed st
    allowed=$(sysctl -n net.ipv4.tcp_allowed_congestion_control)
    [[ " $allowed " = *" $CONGESTION "* ]] ||
        sysctl -q -w net.ipv4.tcp_allowed_congestion_control="$allowed $CONGESTION" || return
    ip netns exec "$1" sysctl -q -w net.ipv4.tcp_congestion_control="$CONGESTION" net.ipv4.tcp_no_metrics_save=1 \
        net.ipv4.tcp_wmem='4096 16384 4194304' net.ipv4.tcp_rmem='4096 131072 6291456'
    st=$?
    sysctl -q -w net.ipv4.tcp_allowed_congestion_control="$allowed"
    return $st
}

# net_remove NAME: ends all processes in a namespace, and removes it.
net_remove() {
    local pids
    [ -e "/run/netns/$1" ] || return 0
    pids=$(ip netns pids "$1")
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null
    ip netns del "$1"
}

# Removes the namespaces of scripts that were killed before they could clean up.
net_sweep() {
    local path name pid
    for path in /run/netns/exo[0-9]*_*; do
        name=${path##*/}
        pid=${name#exo}
        pid=${pid%%_*}
        [ ! -e "$path" ] || kill -0 "$pid" 2>/dev/null || net_remove "$name"
    done
}

net_up() {
    local n=$1 up=$2 down=$3 latency=$4 hub=${net_name}_hub i host
    net_hosts=$n
    net_sweep
    trap net_down EXIT
    trap 'exit 1' INT TERM HUP
    ip netns add "$hub" || return 1
    ip netns exec "$hub" sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
        net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
    for ((i = 0; i < n; i++)); do
        host=$(host_netns "$i")
        ip netns add "$host" && net_settings "$host" &&
            ip -n "$hub" link add "h$i" type veth peer name eth0 netns "$host" &&
            ip -n "$hub" addr add "10.78.$i.1/24" dev "h$i" && ip -n "$host" addr add "$(host_ip "$i")/24" dev eth0 &&
            ip -n "$hub" link set "h$i" up && ip -n "$host" link set eth0 up && ip -n "$host" link set lo up &&
            ip -n "$host" route add default via "10.78.$i.1" &&
            net_limit "$host" eth0 "$(net_item "$up" "$i")" && net_limit "$hub" "h$i" "$(net_item "$down" "$i")" || return
    done
    net_latency "$hub" "$latency"
}

net_latency() {
    local hub=$1 latency=$2 i line
    if [ "$LOSS" != 0 ]; then # so that single segments are lost, not several at once
        for ((i = 0; i < net_hosts; i++)); do
            ip -n "$(host_netns "$i")" link set eth0 gso_max_segs 1 || return
        done
    fi
    if [ "$DELAY" = netem ]; then
        for ((i = 0; i < net_hosts; i++)); do
            tc -n "$hub" qdisc add dev "h$i" parent 1:1 handle 10: netem delay "${latency}ms" \
                loss "$(awk -v l="$LOSS" 'BEGIN { print 100 * l }')%" limit 100000 || return
        done
        return
    fi
    if [ ! -e /dev/net/tun ]; then
        mkdir -p /dev/net && mknod /dev/net/tun c 10 200 || return
    fi
    coproc net_router { exec $REALTIME ip netns exec "$hub" "$DELAY" delay0 "$(awk -v l="$latency" 'BEGIN { print 1000 * l }')" "$LOSS"; }
    net_delay=$! # the coprocess
    read -r -t 10 -u "${net_router[0]}" line && [ "$line" = ready ] || return
    ip -n "$hub" link set delay0 txqueuelen 10000 up && ip -n "$hub" route add default dev delay0 table 100 &&
        for ((i = 0; i < net_hosts; i++)); do
            ip -n "$hub" rule add iif "h$i" lookup 100 || return
        done
}

net_down() {
    local i
    if [ -n "$net_delay" ]; then
        kill "$net_delay" 2>/dev/null
        wait "$net_delay" 2>/dev/null || echo "the router had no room for some packets" >&2
        net_delay=
    fi
    for ((i = 0; i < net_hosts; i++)); do
        net_remove "$(host_netns "$i")"
    done
    net_remove "${net_name}_hub"
    net_hosts=0
}
