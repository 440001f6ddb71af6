/* SPDX-License-Identifier: MIT */
#include "coll_report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "job.h"
#include "workload/output.h"

/* The lines for one size: the choice, and what else could do it, what is expected to be fastest
 * first. */
struct told {
    uint64_t bytes; /* as nccl-tests counts */
    weft_coll_explanation chosen;
    weft_coll_explanation others[NUM_ALGORITHMS];
    int num_others;
};

static int by_expected_us(const void *a, const void *b)
{
    const weft_coll_explanation *left = a, *right = b;
    if (left->expected_us != right->expected_us)
        return left->expected_us < right->expected_us ? -1 : 1;
    return (int)left->algorithm - (int)right->algorithm;
}

static void find_others(const struct coll_run *run, uint64_t bytes, struct told *told)
{
    for (int i = WEFT_ALGORITHM_AUTO + 1; i < NUM_ALGORITHMS; i++) {
        weft_coll_explanation other = WEFT_INIT(weft_coll_explanation);
        if (i != (int)told->chosen.algorithm &&
            weft_coll_explain(run->coll, run->options->op, (weft_algorithm)i, bytes, &other) ==
                WEFT_OK)
            told->others[told->num_others++] = other;
    }
    qsort(told->others, (size_t)told->num_others, sizeof told->others[0], by_expected_us);
}

static weft_result find(const struct coll_run *run, uint64_t max_bytes, struct told *told)
{
    const struct collective collective = coll_run_at(run, max_bytes);
    const uint64_t bytes = collective_algorithm_bytes(&collective);
    *told = (struct told){.bytes = collective_bytes(&collective),
                          .chosen = WEFT_INIT(weft_coll_explanation)};
    const weft_result result =
        weft_coll_explain(run->coll, run->options->op, WEFT_ALGORITHM_AUTO, bytes, &told->chosen);
    if (result == WEFT_OK)
        find_others(run, bytes, told);
    return result;
}

/* ---------------------------------------------------------------- JSON */

static const char *const reason_names[] = {
    [WEFT_COLL_ONLY_ONE] = "only_one", [WEFT_COLL_PINNED] = "pinned",
    [WEFT_COLL_TABLE] = "table",       [WEFT_COLL_SHIPPED_TABLE] = "shipped_table",
    [WEFT_COLL_FORMULA] = "formula",   [WEFT_COLL_MODEL] = "model",
};

static json_t *us_or_null(double us)
{
    return us > 0 ? json_real(us) : json_null();
}

static json_t *others_of(const struct told *told)
{
    json_t *others = json_array();
    for (int i = 0; i < told->num_others; i++) {
        const weft_coll_explanation *other = &told->others[i];
        json_array_append_new(others, json_pack("{s:s, s:o}", "algo",
                                                weft_coll_algorithm_name(other->algorithm),
                                                "expected_us", us_or_null(other->expected_us)));
    }
    return others;
}

static json_t *table_of(const weft_coll_explanation *chosen)
{
    if (chosen->table_line == 0)
        return json_null();
    return json_pack(
        "{s:s, s:i, s:o}", "name", chosen->table, "line", chosen->table_line, "max_bytes",
        chosen->table_max_bytes == UINT64_MAX ? json_null()
                                              : json_integer((json_int_t)chosen->table_max_bytes));
}

static json_t *network_of(const weft_coll_explanation *chosen)
{
    if (chosen->net_latency_us <= 0)
        return json_null();
    return json_pack("{s:f, s:b, s:o, s:i}", "latency_us", chosen->net_latency_us, "is_measured",
                     chosen->net_is_measured, "gbps",
                     chosen->net_gbps > 0 ? json_real(chosen->net_gbps) : json_null(), "hops",
                     chosen->num_hops);
}

static void print_json(const struct coll_run *run, const struct told *told)
{
    const weft_coll_explanation *chosen = &told->chosen;
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:s, s:s, s:o, s:i, s:i, s:o, s:o, s:I, s:f, s:o, s:o}", "op",
        collective_names[run->options->op], "machine",
        job_machine_names[weft_comm_machine(run->comm)], "ranks", run->options->job.num_ranks,
        "nodes", run->num_nodes, "bytes", (json_int_t)told->bytes, "algo",
        weft_coll_algorithm_name(chosen->algorithm), "reason", reason_names[chosen->reason],
        "table", table_of(chosen), "blocks", chosen->num_blocks, "warps", chosen->num_warps,
        "expected_us", us_or_null(chosen->expected_us), "latency_us",
        us_or_null(chosen->latency_us), "link_bytes", (json_int_t)chosen->link_bytes, "link_gbps",
        chosen->link_gbps, "network", network_of(chosen), "others", others_of(told));
    job_print_json(object, weft_comm_machine(run->comm));
}

/* ---------------------------------------------------------------- text */

static void print_network(const struct coll_run *run, const weft_coll_explanation *any)
{
    printf(" on %d nodes, a message takes %.1f us from one to another (%s)", run->num_nodes,
           any->net_latency_us, any->net_is_measured ? "measured at the start" : "assumed");
    if (any->net_gbps > 0)
        printf(", ports of %.2f GB/s", any->net_gbps);
}

static void print_heading(const struct coll_run *run, const weft_coll_explanation *any)
{
    const weft_machine machine = weft_comm_machine(run->comm);
    weft_device_info device = WEFT_INIT(weft_device_info);
    printf("# %s, machine %s", collective_names[run->options->op], job_machine_names[machine]);
    if (weft_device_query(machine, weft_comm_device(run->comm), &device) == WEFT_OK)
        printf(" (%s)", device.name);
    printf(", %d ranks", run->options->job.num_ranks);
    if (any->link_gbps > 0)
        printf(", links of %.0f GB/s", any->link_gbps);
    if (any->net_latency_us > 0)
        print_network(run, any);
    printf(
        "\n# Nothing has run. The choice is by what was measured: a pin, else WEFT_TUNING, else a\n"
        "# table or limits of the library, or, of broadcasts over many nodes, by a model.\n");
    if (run->num_nodes > 1)
        printf("# Times are what the model expects, in us.\n#\n"
               "# %10s %-15s %8s = %6s + %8s  %-28s %s\n",
               "size (B)", "algorithm", "expected", "start", "bytes", "chosen by",
               "others, expected");
    else
        printf("#\n# %10s %-15s  %-28s %s\n", "size (B)", "algorithm", "chosen by", "others");
}

static void print_reason(const weft_coll_explanation *chosen)
{
    char text[256], size[COLL_SIZE_CHARS] = "any size";
    if (chosen->table_max_bytes != UINT64_MAX)
        coll_size_text(chosen->table_max_bytes, size);
    switch (chosen->reason) {
    case WEFT_COLL_ONLY_ONE:
        snprintf(text, sizeof text, "no other, over nodes");
        break;
    case WEFT_COLL_MODEL:
        snprintf(text, sizeof text, "the model, %d messages on end", chosen->num_hops);
        break;
    case WEFT_COLL_PINNED:
        snprintf(text, sizeof text, "--algo");
        break;
    case WEFT_COLL_TABLE:
    case WEFT_COLL_SHIPPED_TABLE:
        snprintf(text, sizeof text, "%s%s:%d, up to %s",
                 chosen->reason == WEFT_COLL_TABLE ? "" : "the library's table of ", chosen->table,
                 chosen->table_line, size);
        break;
    default:
        snprintf(text, sizeof text, "limits of the library");
    }
    printf("  %-28s", text);
}

static void print_text(const struct coll_run *run, const struct told *told)
{
    const weft_coll_explanation *chosen = &told->chosen;
    printf("  %10llu %-15s", (unsigned long long)told->bytes,
           weft_coll_algorithm_name(chosen->algorithm));
    if (chosen->expected_us > 0)
        printf(" %8.1f = %6.1f + %8.1f", chosen->expected_us, chosen->latency_us,
               chosen->expected_us - chosen->latency_us);
    else if (run->num_nodes > 1)
        printf(" %8s   %6s   %8s", "?", "", "");
    print_reason(chosen);
    for (int i = 0; i < told->num_others; i++) {
        printf("%s %s", i > 0 ? "," : "", weft_coll_algorithm_name(told->others[i].algorithm));
        if (told->others[i].expected_us > 0)
            printf(" %.1f", told->others[i].expected_us);
    }
    putchar('\n');
}

/* ---------------------------------------------------------------- both */

static weft_result explain_all(const struct coll_run *run)
{
    const struct coll_options *options = run->options;
    uint64_t bytes = options->sizes.min;
    int num_told = 0;
    do {
        struct told told;
        const weft_result result = find(run, bytes, &told);
        if (result != WEFT_OK)
            return result;
        if (options->format == COLL_FORMAT_JSON) {
            print_json(run, &told);
            continue;
        }
        if (num_told++ == 0)
            print_heading(run, &told.chosen);
        print_text(run, &told);
    } while (option_steps_next(&options->sizes, &bytes));
    return WEFT_OK;
}

int coll_explain(const struct coll_options *options, weft_comm *comm)
{
    struct coll_run run = {.options = options, .comm = comm, .rank = weft_comm_rank(comm)};
    coll_run_find_nodes(&run);
    weft_result result = coll_run_open_coll(&run);
    if (result != WEFT_OK) {
        job_report_and_abort("weft coll", comm, result);
        return job_status_of(result);
    }
    if (run.rank == 0)
        result = explain_all(&run);
    if (result != WEFT_OK)
        job_report_failure("weft coll", NULL, result);
    coll_run_close(&run);
    if (result == WEFT_OK && run.rank == 0 && output_flush() != 0)
        return STATUS_FAILURE;
    return job_status_of(result);
}
