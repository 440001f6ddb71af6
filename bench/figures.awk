# SPDX-License-Identifier: MIT
# Makes figures, one JSON object per line, of what `weft ep --json` and `weft coll --json` print on
# GPUs. With -v trace=NAME the lines are of layers of that trace, then of uniform routing of its
# shape; each figure has imbalances, and a figure more has the medians over the layers.

function field(name,    text) {
    if (!match($0, "\"" name "\": ?\"?[^\",}]*")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/^"[^"]*": ?"?/, "", text)
    return text
}

function ratio(a, b) { return b + 0 > 0 ? a / b : 0 }

function figure_name(op) {
    if (trace != "") return "weft_trace_" op "_us"
    if (op == "dispatch_combine") op = "layer"
    if (op == "ll_layer" && field("phases") == 2) op = "ll_layer_phases"
    return "weft_" op "_us"
}

function rows() {
    if (field("mean_bytes_logical") == 0) return "0"
    if (field("dtype") ~ /^bytes:/) return substr(field("dtype"), 7)
    return field("format") == "dtype" ? 2 * field("hidden") : field("format")
}

function kernel() {
    return (field("graph_calls") > 0 ? "graph" : "stream") \
        (field("layout") != "null" ? ", by " field("layout") : "")
}

function print_figure(name, us, us_min, us_max, more) {
    printf "{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": \"cuda, %d " \
        "ranks, tokens per rank %d, rows of %s bytes, top-%d of %d experts, %s%s%s\", " \
        "\"num_ranks\": %d, \"num_tokens\": %d, \"num_experts\": %d, \"bytes\": \"%s\", " \
        "\"kernel\": \"%s\", \"num_sms\": %d, \"us_min\": %.3f, \"us_max\": %.3f, %s}\n", name, us,
        field("ranks"), field("tokens"), rows(), field("topk"), field("experts"), kernel(),
        (field("blocks") > 0 ? ", " field("blocks") " SMs" : ""), about, field("ranks"),
        field("tokens"), field("experts"), rows(), kernel(), field("blocks"), us_min, us_max, more
    fflush()
}

# A collective, out of place.
field("busbw") != "" {
    if (field("in_place") == "true") next
    op = field("op"); way = field("graph_calls") > 0 ? "graph" : "stream"
    printf "{\"name\": \"weft_%s_us\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": " \
        "\"cuda, %d ranks, %s, %d bytes, %s, %s\", \"op\": \"%s\", \"algo\": \"%s\", " \
        "\"asked\": \"%s\", \"num_ranks\": %d, \"bytes\": %d, \"dtype\": \"%s\", \"kernel\": " \
        "\"%s\", \"num_blocks\": %d, \"num_warps\": %d, \"us_min\": %.3f, \"us_max\": %.3f, " \
        "\"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": %d}\n", op, field("us_median"),
        field("ranks"), field("dtype"), field("bytes"), field("algo"), way, op, field("algo"),
        field("asked"), field("ranks"), field("bytes"), field("dtype"), way, field("blocks"),
        field("warps"), field("us_min"), field("us_max"), field("algbw"), field("busbw"),
        field("errors")
    fflush()
    next
}

{
    op = field("op"); us = field("us_median")
    rates = sprintf("\"gb_per_s\": %.2f, \"nvlink_gb_per_s\": %.2f, \"wrong\": %d",
        field("mean_bytes_logical") / us / 1000, field("mean_bytes_remote") / us / 1000,
        field("errors"))
}

trace == "" { print_figure(figure_name(op), us, field("us_min"), field("us_max"), rates); next }

# Uniform routing comes last, and is what the layers are compared with.
{ line[++num_lines] = $0 }
field("trace") == "null" { uniform[op] = field("bytes_remote") / us }

function print_of_trace(layer, v, us_min, us_max) {
    about = ", layer " layer " of " trace
    print_figure(figure_name(op), v[1], us_min, us_max, sprintf("\"trace\": \"%s\", \"layer\": " \
        "\"%s\", \"wrong\": %d, \"gb_per_s\": %.3f, \"nvlink_gb_per_s\": %.3f, \"imbalance\": " \
        "%.3f, \"nvlink_imbalance\": %.3f, \"vs_uniform\": %.3f", trace, layer, wrong, v[2], v[3],
        v[4], v[5], v[6]))
}

function print_layer(    i, v) {
    op = field("op"); wrong = field("errors"); v[1] = field("us_median")
    v[2] = field("bytes_logical") / v[1] / 1000
    v[3] = field("bytes_remote") / v[1] / 1000
    v[4] = ratio(field("bytes_logical"), field("mean_bytes_logical"))
    v[5] = ratio(field("bytes_remote"), field("mean_bytes_remote"))
    v[6] = ratio(uniform[op], field("bytes_remote") / v[1])
    if (field("trace") == "null") {
        print_of_trace("uniform", v, field("us_min"), field("us_max"))
        return
    }
    print_of_trace(field("trace_layer"), v, field("us_min"), field("us_max"))
    num_layers[op]++
    num_wrong[op] += wrong
    for (i = 1; i <= 6; i++) insert(op " " i, num_layers[op], v[i])
}

# Into sorted[column, 1 .. n - 1].
function insert(column, n, value) {
    value += 0
    for (; n > 1 && sorted[column, n - 1] > value; n--) sorted[column, n] = sorted[column, n - 1]
    sorted[column, n] = value
}

END {
    for (i = 1; i <= num_lines; i++) {
        $0 = line[i]
        print_layer()
    }
    for (op in num_layers) {
        n = num_layers[op]; wrong = num_wrong[op]
        for (i = 1; i <= 6; i++)
            v[i] = (sorted[op " " i, int((n + 1) / 2)] + sorted[op " " i, int(n / 2) + 1]) / 2
        print_of_trace("median", v, sorted[op " 1", 1], sorted[op " 1", n])
    }
}
