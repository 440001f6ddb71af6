/* SPDX-License-Identifier: MIT */
#include "topo_times.h"

#include <stdio.h>

#include "coll/model.h"
#include "coll_report.h"
#include "workload/collective.h"

static struct weft__coll_site site_of(const struct weft__channels *rings)
{
    return (struct weft__coll_site){.machine = WEFT_MACHINE_CUDA,
                                    .num_ranks = rings->num_gpus,
                                    .link_gbps = weft__channels_gbps(rings)};
}

/* Of as many bytes, as nccl-tests counts, as whole elements make. */
static struct collective collective_of(const struct topo_times *times,
                                       const struct weft__channels *rings, uint64_t bytes)
{
    struct collective collective = {.kind = (weft_collective)times->op,
                                    .source = {.dtype = WEFT_BF16},
                                    .num_ranks = rings->num_gpus};
    collective.count = collective_count(&collective, bytes);
    return collective;
}

/* Of one size by all algorithms that the model knows and that can move it: 0 of the others. */
struct row {
    uint64_t bytes;
    double expected_us[NUM_ALGORITHMS];
    weft_algorithm fastest; /* AUTO: the model knows none */
};

static uint64_t most_row_bytes(const struct weft__channels *rings, weft_algorithm algorithm)
{
    const uint64_t packet_bytes =
        weft__coll_default_packet_bytes(WEFT_MACHINE_CUDA, rings->num_gpus);
    return weft__coll_max_row_bytes(algorithm, packet_bytes, rings->num_gpus);
}

static struct row row_of(const struct topo_times *times, const struct weft__channels *rings,
                         uint64_t bytes)
{
    const struct weft__coll_site site = site_of(rings);
    const struct weft__coll_costs costs = weft__coll_costs_at(&site);
    const struct collective collective = collective_of(times, rings, bytes);
    struct row row = {.bytes = collective_bytes(&collective), .fastest = WEFT_ALGORITHM_AUTO};
    for (int i = WEFT_ALGORITHM_AUTO + 1; i < NUM_ALGORITHMS; i++) {
        const struct weft__coll_work work = {collective.kind, (weft_algorithm)i,
                                             collective_algorithm_bytes(&collective),
                                             rings->num_gpus};
        struct weft__coll_expectation expectation;
        if (work.row_bytes > most_row_bytes(rings, work.algorithm) ||
            !weft__coll_expect(&costs, &work, &expectation))
            continue;
        row.expected_us[i] = expectation.latency_us + expectation.transfer_us;
        if (row.fastest == WEFT_ALGORITHM_AUTO || row.expected_us[i] < row.expected_us[row.fastest])
            row.fastest = (weft_algorithm)i;
    }
    return row;
}

static double bus_gbps(const struct topo_times *times, const struct weft__channels *rings,
                       const struct row *row)
{
    enum { BYTES_PER_US = 1000 }; /* at 1 GB/s */
    const struct collective collective = collective_of(times, rings, row->bytes);
    return (double)row->bytes / row->expected_us[row->fastest] / BYTES_PER_US *
           collective_bus_factor(&collective);
}

/* ------------------------------------------------------------------ text */

static int is_known(const struct topo_times *times, weft_algorithm algorithm)
{
    return weft__coll_is_modelled((weft_collective)times->op, algorithm);
}

static void print_heading(const struct topo_times *times, const struct weft__channels *rings)
{
    printf(
        "\nWhat the model expects of %s among %d GPUs, of which each sends %.0f GB/s (the rings\n"
        "together), in us. Nothing has run.\n  %10s",
        collective_names[times->op], rings->num_gpus, weft__channels_gbps(rings), "size (B)");
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        if (is_known(times, (weft_algorithm)i))
            printf(" %15s", weft_coll_algorithm_name((weft_algorithm)i));
    printf("  %-15s %s\n", "fastest", "busbw (GB/s)");
}

static void print_row(const struct topo_times *times, const struct weft__channels *rings,
                      const struct row *row)
{
    printf("  %10llu", (unsigned long long)row->bytes);
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        if (row->expected_us[i] > 0)
            printf(" %15.1f", row->expected_us[i]);
        else if (is_known(times, (weft_algorithm)i))
            printf(" %15s", "-");
    printf("  %-15s %.1f\n", weft_coll_algorithm_name(row->fastest), bus_gbps(times, rings, row));
}

void topo_print_times(const struct topo_times *times, const struct weft__channels *rings)
{
    uint64_t bytes = times->sizes.min;
    int num_rows = 0;
    do {
        const struct row row = row_of(times, rings, bytes);
        if (num_rows++ == 0)
            print_heading(times, rings);
        print_row(times, rings, &row);
    } while (option_steps_next(&times->sizes, &bytes));
}

/* ------------------------------------------------------------------ JSON */

static json_t *row_as_json(const struct topo_times *times, const struct weft__channels *rings,
                           const struct row *row)
{
    json_t *expected = json_object();
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        if (row->expected_us[i] > 0)
            json_object_set_new(expected, weft_coll_algorithm_name((weft_algorithm)i),
                                json_real(row->expected_us[i]));
    return json_pack("{s:I, s:o, s:s, s:f}", "bytes", (json_int_t)row->bytes, "expected_us",
                     expected, "fastest", weft_coll_algorithm_name(row->fastest), "busbw_gbps",
                     bus_gbps(times, rings, row));
}

json_t *topo_times_as_json(const struct topo_times *times, const struct weft__channels *rings)
{
    json_t *rows = json_array();
    uint64_t bytes = times->sizes.min;
    do {
        const struct row row = row_of(times, rings, bytes);
        json_array_append_new(rows, row_as_json(times, rings, &row));
    } while (option_steps_next(&times->sizes, &bytes));
    return json_pack("{s:s, s:i, s:f, s:o}", "op", collective_names[times->op], "ranks",
                     rings->num_gpus, "link_gbps", weft__channels_gbps(rings), "sizes", rows);
}
