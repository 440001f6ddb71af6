# SPDX-License-Identifier: MIT
# The tables of bench/tables: `kind` is the table; its input are results, one JSON object per line.

function field(name,    text) {
    if (!match($0, "\"" name "\": \"?[^\",}]*")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/^"[^"]*": "?/, "", text)
    return text
}

# Three digits, as no figure is repeatable to more.
function rounded(value) {
    if (value == "") return ""
    value += 0
    if (value >= 100) return sprintf("%.0f", value)
    if (value >= 10) return sprintf("%.1f", value)
    return sprintf("%.2f", value)
}

function least(key, value) {
    if (!(key in best) || value + 0 < best[key] + 0) best[key] = value
}

# Figures by all that tells them apart. What has no such field has "" for it.
{
    name = field("name"); shape = field("num_tokens") " " field("bytes")
    if (field("wrong") + 0 > 0) {
        print FILENAME ": a wrong result: " $0 >"/dev/stderr"
        failed = 1
    }
    if (field("trace") != "") {
        if (field("layer") == "median")
            trace[name " " field("trace") " " field("num_tokens")] = \
                field("value") "|" field("imbalance") "|" field("vs_uniform")
        next
    }
    if (field("busbw") != "") { # a collective
        if (name ~ /^weft_/ && (field("asked") != "auto" || field("num_blocks") != 0)) next
        us[name " " field("kernel") " " field("bytes")] = field("value")
        if (!(field("bytes") in seen)) {
            seen[field("bytes")] = 1
            bytes[++num_sizes] = field("bytes")
        }
        next
    }
    if (name ~ /^weft_ll_/) { # of low latency, the kernel is also the layout
        if (field("num_experts") == 256 && field("num_sms") == 0)
            ll[name " " field("kernel") " " (/by expert/ ? "expert" : "rank") " " shape] = field("value")
        next
    }
    us[name " " field("kernel") " " field("num_sms") " " shape] = field("value")
    gbps[name " " field("kernel") " " field("num_sms") " " shape] = field("gb_per_s")
    if (name ~ /^(push|pull_sum)_rows_us$/) least(name " " shape, field("value"))
    figure[name] = field("value"); unit[name] = field("unit")
}

function weft(name, kernel, sms, shape) {
    return rounded(us["weft_" name "_us " kernel " " sms " " shape])
}

# One operation, by the library's choice of SMs; bound: the kernel that only moves the rows.
function ep_row(label, name, shape, bound, nccl,    key) {
    key = "weft_" name "_us graph 0 " shape
    if (!(key in us)) key = "weft_" name "_us stream 0 " shape
    print "| " label " | " weft(name, "stream", 0, shape) " | " \
        weft(name, "graph", 0, shape) " | " rounded(gbps[key]) " | " rounded(best[bound " " shape]) " | " \
        rounded(us[nccl " nccl 0 " shape]) " |"
}

function ep_table(    i, n, tokens, bf16, fp8) {
    print "| us | in a stream | in a graph | GB/s | bound | NCCL, same run |"
    print "| --- | --- | --- | --- | --- | --- |"
    n = split("4096 128", tokens, " ")
    for (i = 1; i <= n; i++) {
        bf16 = tokens[i] " 14336"; fp8 = tokens[i] " 7168+224"
        ep_row(tokens[i] " tokens: dispatch BF16", "dispatch", bf16, "push_rows_us",
            "nccl_dispatch_us")
        ep_row("combine BF16", "combine", bf16, "pull_sum_rows_us", "nccl_combine_us")
        ep_row("both", "layer", bf16, "", "")
        ep_row("dispatch FP8 and scales", "dispatch", fp8, "push_rows_us", "nccl_dispatch_us")
        ep_row("layout, notify, dispatch BF16, counts on the host", "dispatch_counted", bf16)
        ep_row("layout, notify, dispatch BF16, with a capacity", "dispatch_capacity", bf16)
    }
}

function swap(list, i, j,    kept) {
    kept = list[i]
    list[i] = list[j]
    list[j] = kept
}

function trace_table(    key, i, j, n, part, value, sorted) {
    print "| median of the layers | us | imbalance | time over what imbalance explains |"
    print "| --- | --- | --- | --- |"
    for (key in trace) sorted[++n] = key
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) swap(sorted, j, j - 1)
    for (i = 1; i <= n; i++) {
        split(sorted[i], part, " ")
        split(trace[sorted[i]], value, "|")
        sub(/^weft_trace_/, "", part[1])
        sub(/_us$/, "", part[1])
        sub(/\.trace$/, "", part[2])
        print "| " part[1] ", " part[2] ", " part[3] " tokens | " rounded(value[1]) " | " \
            rounded(value[2]) " | " rounded(value[3]) " |"
    }
}

function size_name(bytes) {
    bytes += 0
    if (bytes >= 1073741824) return bytes / 1073741824 " GiB"
    if (bytes >= 1048576) return bytes / 1048576 " MiB"
    return bytes / 1024 " KiB"
}

function collectives_row(label, name,    i, line) {
    line = "| " label " |"
    for (i = 1; i <= num_sizes; i++) line = line " " rounded(us[name " " bytes[i]]) " |"
    print line
}

function collectives_table(    i, n, op, label, line, rule) {
    line = "| us |"
    rule = "| --- |"
    for (i = 1; i <= num_sizes; i++) {
        line = line " " size_name(bytes[i]) " |"
        rule = rule " --- |"
    }
    print line
    print rule
    n = split("all_reduce reduce_scatter all_gather all_to_all broadcast", op, " ")
    for (i = 1; i <= n; i++) {
        label = op[i]
        gsub(/_/, "-", label)
        collectives_row("**" label "**", "weft_" op[i] "_us graph")
        collectives_row("NCCL", "nccl_" op[i] "_us nccl_graph")
        collectives_row("NCCL, windows", "nccl_" op[i] "_us nccl_window_graph")
    }
}

# A decode step, in graphs; below, the normal operations for the same tokens.
function decode_row(label, name, layout, row,    i, line) {
    line = "| " label " |"
    for (i = 1; i <= 4; i++)
        line = line " " rounded(ll["weft_ll_" name "_us graph " layout " " decode_tokens[i] " " row]) " |"
    print line
}

function normal_row(label, name, row,    i, line) {
    line = "| " label " |"
    for (i = 1; i <= 4; i++) line = line " " weft(name, "graph", 0, decode_tokens[i] " " row) " |"
    print line
}

function decode_table() {
    split("1 8 64 128", decode_tokens, " ")
    print "| us | 1 token | 8 | 64 | 128 |"
    print "| --- | --- | --- | --- | --- |"
    decode_row("by rank: dispatch and release", "dispatch_release", "rank", 14336)
    decode_row("combine", "combine", "rank", 14336)
    decode_row("step", "layer", "rank", 14336)
    decode_row("step with rows of FP8", "layer", "rank", "fp8")
    decode_row("by expert: dispatch and release", "dispatch_release", "expert", 14336)
    decode_row("combine", "combine", "expert", 14336)
    decode_row("step", "layer", "expert", 14336)
    decode_row("step with rows of FP8", "layer", "expert", "fp8")
    normal_row("normal: layout, notify, dispatch", "dispatch_capacity", 14336)
    normal_row("combine", "combine", 14336)
}

# Microseconds, or milliseconds where they are many.
function with_unit(value, unit) {
    return unit == "us" && value + 0 >= 10000 ? rounded(value / 1000) " ms" : rounded(value) " " unit
}

# "label|weft's figure|what it is compared with|its figure|ratio"
function compared(row,    part) {
    split(row, part, "|")
    if (!(part[2] in figure)) return
    print "| " part[1] " | " with_unit(figure[part[2]], unit[part[2]]) " | " \
        (part[3] == "" ? "" : part[3] " " with_unit(figure[part[4]], unit[part[4]])) " | " \
        rounded(figure[part[5]]) " |"
}

function cpu_table() {
    print "| | weft | beside it, same run | times as fast |"
    print "| --- | --- | --- | --- |"
    compared("dispatch, 8 ranks|dispatch_us|memcpy|memcpy_dispatch_us|dispatch_vs_memcpy")
    compared("combine|combine_us|memcpy, no sums|memcpy_combine_us|combine_vs_memcpy")
    compared("layer: layout, notify, dispatch, combine|layer_us|Open MPI|layer_mpi_us|layer_vs_mpi")
    all_reduce("all-reduce fp32, 4 ranks, 1 KiB", "1k")
    all_reduce("64 KiB", "64k")
    all_reduce("1 MiB", "1m")
    all_reduce("8 MiB", "8m")
    compared("dispatch of 1 token per rank, 8 ranks|dispatch_1token_us")
    compared("the same, 2 ranks|dispatch_1token_us_2ranks")
    compared("processor time while 7 ranks wait for an eighth|idle_cpu_percent")
    compared("the same on 2 virtual nodes|idle_cpu_percent_2nodes")
}

function all_reduce(label, size,    name) {
    name = "all_reduce_" size
    compared(label "|" name "_us|Open MPI|" name "_mpi_us|" name "_vs_mpi")
}

# Rows that leave a host, and the rate of the engine alone.
function rail(label, operation, ranks,    name) {
    name = "hosts_rail_" operation "_" ranks
    compared(label "|" name "_gbps|engine|hosts_net_57536_" ranks "_gbps|" name "_vs_net")
}

function hosts_table(    ranks, name) {
    print "| | weft | beside it, same run | ratio |"
    print "| --- | --- | --- | --- |"
    name = "hosts_layer"
    compared("layer, 2 hosts of 4 ranks|" name "_us|Open MPI|" name "_mpi_us|" name "_vs_mpi")
    for (ranks = 1; ranks <= 4; ranks += 3) {
        name = "hosts_dispatch_1token_" ranks
        compared("hosts of " ranks ": dispatch of 1 token per rank|" name "_us|engine, one way|" \
            "hosts_net_14336_" ranks "_us|" name "_vs_net")
        rail("rows that leave a host in dispatch", "dispatch", ranks)
        rail("the same in combine", "combine", ranks)
    }
}

function hosts_collectives_table(    i, k, name, labels, sizes, words, operations) {
    split("all_reduce all_gather reduce_scatter broadcast", operations, " ")
    split("64k 1m 64m", sizes, " "); split("64 KiB|1 MiB|64 MiB", labels, "|")
    print "| | weft | beside it, same run | times as fast |"
    print "| --- | --- | --- | --- |"
    for (i = 1; i <= 4; i++) for (k = 1; k <= 3; k++) {
        name = "hosts_" operations[i] "_" sizes[k]; words = operations[i]
        gsub("_", "-", words)
        compared(words ", " labels[k] "|" name "_us|Open MPI|" name "_mpi_us|" name "_vs_mpi")
    }
}

# For those who read no further.
function headline_table(    bytes) {
    bytes = 65536
    print "| | weft | others, same run | on | by |"
    print "| --- | --- | --- | --- | --- |"
    print "| dispatch of 4096 tokens per rank, BF16 | **" weft("dispatch", "stream", 0, "4096 14336") " us**, " \
        rounded(gbps["weft_dispatch_us stream 0 4096 14336"]) " GB/s | NCCL " \
        rounded(us["nccl_dispatch_us nccl 0 4096 14336"]) " us | 4x H200, NVLink | `bench/run-cuda` |"
    print "| all-reduce of 64 KiB, BF16, in a graph | **" rounded(us["weft_all_reduce_us graph " bytes]) \
        " us** | NCCL " rounded(us["nccl_all_reduce_us nccl_graph " bytes]) " us, with windows " \
        rounded(us["nccl_all_reduce_us nccl_window_graph " bytes]) " | 4x H200, NVLink | `bench/run-cuda` |"
    print "| MoE layer, 8 ranks of 512 tokens, BF16 | **" with_unit(figure["layer_us"], "us") \
        "** | Open MPI " with_unit(figure["layer_mpi_us"], "us") " | 2 cores of a Xeon | `make bench` |"
}

END {
    if (failed) exit 1
    if (kind == "headline") headline_table()
    else if (kind == "ep") ep_table()
    else if (kind == "traces") trace_table()
    else if (kind == "collectives") collectives_table()
    else if (kind == "cpu") cpu_table()
    else if (kind == "hosts") hosts_table()
    else if (kind == "hosts-collectives") hosts_collectives_table()
    else if (kind == "decode") decode_table()
    else { print "no table " kind >"/dev/stderr"; exit 1 }
}
