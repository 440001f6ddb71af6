# SPDX-License-Identifier: MIT
# Jobs on several hosts (hosts.bash) and what is expected of them. A test sources this with its own arguments, of
# which the first is the tool.

. "$(dirname "${BASH_SOURCE[0]}")/hosts.bash"
. "$(dirname "${BASH_SOURCE[0]}")/../tool/lib.bash"

export WEFT_MACHINE=cpu

# A job of hosts 0 to NUM_HOSTS - 1; job_pids are the processes of weft run, host by host. A job has a port of
# its own.
start_job() { # NUM_HOSTS RANKS_PER_HOST PROGRAM...
    local host
    port=$((port + 1))
    job_pids=()
    rm -f "$scratch"/{out,err}.[0-9]
    job_name="job of $1 hosts of $2: ${*:3}"
    for ((host = 0; host < $1; host++)); do
        : >"$scratch/out.$host"
        run_on_host $host "$@" &
        job_pids[host]=$!
    done
}

# Until so many lines of the job's ranks match.
await_lines() { # COUNT REGEX
    local deadline=$((SECONDS + 300)) count
    while count=$(cat "$scratch"/out.* | grep -Ec -- "$2"); [ "$count" -lt "$1" ]; do
        if [ $SECONDS -ge $deadline ]; then
            fail_job "$count lines, not $1, match within 300 s: $2"
            return 1
        fi
        sleep 0.05
    done
}

fail_job() {
    cat "$scratch"/out.* >"$scratch/out"
    cat "$scratch"/err.* >"$scratch/err"
    fail "$job_name: $*"
}

# Waits for the job's end: the status of weft run on each of its hosts, "any" for whichever.
expect_job() { # STATUS...
    local host=0 status
    for wanted in "$@"; do
        status=0
        wait "${job_pids[host]}" || status=$?
        [ "$wanted" = any ] || [ $status -eq "$wanted" ] ||
            fail_job "status $status, not $wanted, on host $host"
        host=$((host + 1))
    done
}

# How many lines of the job's ranks, on a host or (*) on all, match.
job_said() { # HOST COUNT REGEX
    local count
    count=$(cat "$scratch"/out.$1 | grep -Ec -- "$3") || true
    [ "$count" -eq "$2" ] || fail_job "$count lines of host $1, not $2, match: $3"
}

# Another interface of a host, which leads to no other.
add_side_interface() { # HOST
    on_host "$1" ip link add side type veth peer name nowhere
    on_host "$1" ip address add "10.79.0.$(($1 + 1))/24" dev side
    on_host "$1" ip link set side up
    on_host "$1" ip link set nowhere up
}
# TCP's listening sockets of a host, as /proc/net/tcp* has them (state 0A): ADDRESS:PORT in hexadecimal digits, the bytes
# of the address from the last to the first.
listening_sockets() { # HOST
    on_host "$1" awk '$4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6
}
# That there are some, and none at another address than the one at which the hosts of jobs reach each other.
expect_to_listen_on_network() { # HOST
    local bytes sockets
    IFS=. read -ra bytes <<<"$(host_address "$1")"
    sockets=$(listening_sockets "$1")
    [ -n "$sockets" ] || fail_job "nobody listens on host $1"
    ! grep -v "^$(printf '%02X%02X%02X%02X:' "${bytes[3]}" "${bytes[2]}" "${bytes[1]}" "${bytes[0]}")" \
        <<<"$sockets" || fail_job "host $1 listens there, beside $(host_address "$1")"
}
expect_to_listen_nowhere() { # HOST
    [ -z "$(listening_sockets "$1")" ] || fail_job "somebody listens on host $1"
}
# Garbage for each port of a host. (None that begins with UCX's own constant: docs/network.md.)
send_garbage() { # GARBAGE FROM_HOST TO_HOST COUNT
    local socket
    for socket in $(listening_sockets "$3"); do
        expect 0 on_host "$2" "$1" "$(host_address "$3")" $((16#${socket##*:})) "$4" "${SEED:-1}"
    done
}

# What strikes a rank or a host; the news are timed from here on.
strike() { # COMMAND...
    struck_ms=$(uptime_ms)
    "$@"
}
uptime_ms() {
    local seconds
    read -r seconds _ </proc/uptime
    echo "${seconds/./}0"
}
# That the ranks of a host, or (*) of all, which have been told of a failure, were told in time.
told_within() { # HOST LIMIT_MS
    local last_ms
    last_ms=$(cat "$scratch"/out.$1 | sed -n 's/^.*told of rank .*, at \([0-9]*\) ms$/\1/p' |
        sort -n | tail -n 1)
    [ -n "$last_ms" ] && [ $((last_ms - struck_ms)) -le "$2" ] ||
        fail_job "host $1 was told after $((${last_ms:-0} - struck_ms)) ms, not within $2"
}
