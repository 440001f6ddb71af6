# SPDX-License-Identifier: MIT
# Several hosts on this machine: network namespaces, each with a name of its own (UTS), joined by veth pairs and
# a bridge. All of it, the bridge too, is in a network and a process namespace of the script's own: whatever ends
# the script ends all that it has started, and nothing outside is touched or left behind.
#
# A script sources this first, with its own arguments, sets `scratch` to a directory and `weft` to the tool, calls
# open_hosts, and then
#   on_host K COMMAND...             runs a command on host K, whose address is host_address K
#   run_on_host K N R PROGRAM...     runs weft run as host K of N, with R ranks
#   mpirun_on_hosts N R ARGUMENT...  Open MPI's mpirun on host 0, with R ranks on each of N hosts

# The whole script once more, inside.
if [ -z "${WEFT_HOSTS_INSIDE-}" ]; then
    for needed in ip unshare nsenter; do
        command -v $needed >/dev/null || { echo "skipped: no $needed here"; exit 77; }
    done
    unshare --net --uts --mount --pid --fork true 2>/dev/null ||
        { echo "skipped: namespaces need root"; exit 77; }
    WEFT_HOSTS_INSIDE=1 exec unshare --net --mount --pid --fork --kill-child --mount-proc -- \
        bash "$0" "$@"
fi
WEFT_SECRET=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')
export WEFT_SECRET
network=10.77.0 # the one that jobs use, and where they meet
port=4700
host_pids=()
host_cores=() # of hosts that have their own

host_address() { echo "$network.$(($1 + 1))"; }
on_host() { # HOST COMMAND...
    local pid=${host_pids[$1]} cores=${host_cores[$1]-}
    shift
    nsenter --target "$pid" --net --uts --mount -- ${cores:+taskset --cpu-list "$cores"} "$@"
}

# A process that keeps the namespaces of a host. /sys is mounted again, as it shows its mounter's interfaces.
open_host() { # HOST
    local name=host$1 pipe=$scratch/host$1
    mkfifo "$pipe"
    unshare --net --uts --mount sh -c \
        "mount -t sysfs none /sys && hostname $name && echo ready >'$pipe' && exec sleep infinity" &
    host_pids[$1]=$!
    read -r _ <"$pipe"
    on_host "$1" ip link set lo up
}

# N hosts with an interface eth0 each.
open_hosts() { # N
    local host
    ip link set lo up
    ip link add name hosts type bridge
    ip link set hosts up
    for ((host = 0; host < $1; host++)); do
        open_host $host
        ip link add "host$host" type veth peer name eth0 netns "${host_pids[host]}"
        ip link set "host$host" master hosts up
        on_host $host ip address add "$(host_address $host)/24" dev eth0
        on_host $host ip link set eth0 up
    done
}

# Each host has an equal share of the cores to itself, if there are enough.
share_out_cores() {
    local host num=${#host_pids[@]} cores
    cores=$(($(nproc) / num))
    [ $cores -gt 0 ] || return 0
    for ((host = 0; host < num; host++)); do
        host_cores[host]=$((host * cores))-$(((host + 1) * cores - 1))
    done
}

# A second network between all hosts, which loses and delays packets; jobs use it from then on.
join_by_lossy_link() { # LOSSY_LINK LOSS_PERCENT JITTER_MS SEED
    local host pipe=$scratch/lossy_link
    mkfifo "$pipe"
    "$@" "${host_pids[@]}" >"$pipe" &
    read -r _ <"$pipe" || { echo "skipped: no TUN interfaces here"; exit 77; }
    network=10.78.0
    for host in "${!host_pids[@]}"; do
        on_host "$host" ip address add "$(host_address "$host")/24" dev lossy
        on_host "$host" ip link set lossy up
    done
}

cut_host() { ip link set "host$1" down; }
# Hosts forget that they looked for each other in vain: Linux refuses to connect while such a search, begun by the
# sockets that the cut left over, has not ended, though the link is up again ("No route to host").
mend_host() {
    local host
    ip link set "host$1" up
    for host in "${!host_pids[@]}"; do
        on_host "$host" ip neighbour flush dev eth0
    done
}

# weft run on one of several hosts; what its ranks write goes to $scratch/out.HOST and err.HOST.
run_on_host() { # HOST NUM_HOSTS RANKS_PER_HOST PROGRAM...
    local host=$1 num_hosts=$2 num_ranks=$3
    shift 3
    on_host "$host" "$weft" run --rendezvous "$(host_address 0):$port" --nodes "$num_hosts" \
        --node-rank "$host" -n "$num_ranks" -- "$@" \
        >"$scratch/out.$host" 2>"$scratch/err.$host"
}

# Open MPI starts its daemons through a stand-in for ssh, and tells hosts apart by their names.
open_mpi() {
    local host
    {
        echo '#!/bin/sh'
        echo 'case $1 in'
        for host in "${!host_pids[@]}"; do
            echo "host$host) pid=${host_pids[host]} cores=${host_cores[host]-} ;;"
        done
        echo 'esac'
        echo 'shift'
        echo 'exec nsenter --target "$pid" --net --uts --mount -- \'
        echo '    ${cores:+taskset --cpu-list "$cores"} sh -c "$*"'
    } >"$scratch/mpi_agent"
    chmod +x "$scratch/mpi_agent"
    echo '127.0.0.1 localhost' >"$scratch/mpi_names"
    for host in "${!host_pids[@]}"; do
        echo "$(host_address "$host") host$host" >>"$scratch/mpi_names"
    done
    for host in "${!host_pids[@]}"; do
        on_host "$host" mount --bind "$scratch/mpi_names" /etc/hosts
    done
}
mpirun_on_hosts() { # NUM_HOSTS RANKS_PER_HOST ARGUMENT...
    local num_hosts=$1 num_ranks=$2 host list=
    shift 2
    [ -e "$scratch/mpi_agent" ] || open_mpi
    for ((host = 0; host < num_hosts; host++)); do
        list+=${list:+,}host$host:$num_ranks
    done
    on_host 0 "$(command -v mpirun.openmpi || echo mpirun)" --allow-run-as-root --oversubscribe --host $list -n $((num_hosts * num_ranks)) \
        --mca plm_rsh_agent "$scratch/mpi_agent" --mca oob_tcp_if_include eth0 \
        --mca btl_tcp_if_include eth0 "$@"
}
