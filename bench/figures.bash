# SPDX-License-Identifier: MIT
# What the scripts that measure share: a figure is a JSON object with name, value, unit and configuration. They set
# `results` to the file that figures are added to.

cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
[ -n "$cpu" ] || cpu=$(uname -m)
machine="\"cpu\": \"$cpu\", \"cores\": $(nproc), \"date\": \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\""

# Tells on a terminal what is measured now, until something else is printed.
tell() { [ ! -t 2 ] || printf '\r%s\033[K' "$*" >&2; }

# Completes each figure with the machine that it was measured on.
record() { sed -u "s/}\$/, $machine}/" | tee -a "$results" | print_figures; }

field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^\",}]*\).*/\1/p"; }

print_figures() {
    local line
    while IFS= read -r line; do
        tell
        printf '%-26s %12s  %-16s %s\n' "$(field name <<<"$line")" "$(field value <<<"$line")" \
            "$(field unit <<<"$line")" "$(sed -n 's/.*"configuration": "\([^"]*\)".*/\1/p' <<<"$line")"
    done
}

median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
