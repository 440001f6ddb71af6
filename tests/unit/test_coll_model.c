/* SPDX-License-Identifier: MIT */
/* The model of how long collectives take: its form, and how far it is from what was measured. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll/model_nodes.h"
#include "harness/cmocka.h"
#include "ops/names.h"
#include "workload/collective.h"

static const struct weft__coll_site four_gpus = {WEFT_MACHINE_CUDA, 4, 0, 350};

static double expect_us(const struct weft__coll_site *site, struct weft__coll_work work)
{
    struct weft__coll_expectation expectation;
    const struct weft__coll_costs costs = weft__coll_costs_at(site);
    work.num_ranks = site->num_ranks;
    if (!weft__coll_expect(&costs, &work, &expectation))
        return 0;
    return expectation.latency_us + expectation.transfer_us;
}

/* ------------------------------------------------------------------ its form */

TEST(knows_all_but_multicast_and_rails)
{
    for (int collective = 0; collective < WEFT__NUM_COLLECTIVES; collective++) {
        for (int algorithm = 0; algorithm < WEFT__NUM_ALGORITHMS; algorithm++) {
            const struct weft__coll_work work = {(weft_collective)collective,
                                                 (weft_algorithm)algorithm, 1024, 0};
            const int is_known =
                collective_is_served((weft_collective)collective, (weft_algorithm)algorithm) &&
                algorithm != WEFT_ALGORITHM_AUTO && algorithm != WEFT_ALGORITHM_MULTICAST;
            assert_int_equal(expect_us(&four_gpus, work) > 0, is_known);
        }
    }
}

static void check_growth(const struct weft__coll_site *site, struct weft__coll_work work)
{
    double last_us = 0;
    for (work.row_bytes = 0; work.row_bytes < UINT64_C(1) << 40;
         work.row_bytes = 2 * work.row_bytes + 1) {
        const double us = expect_us(site, work);
        assert_true(isfinite(us) && us >= last_us);
        last_us = us;
    }
}

TEST(more_bytes_take_longer)
{
    static const struct weft__coll_site sites[] = {
        {WEFT_MACHINE_CUDA, 1, 0, 350},  {WEFT_MACHINE_CUDA, 2, 0, 20},
        {WEFT_MACHINE_CUDA, 32, 0, 900}, {WEFT_MACHINE_CPU, 1, 1, 0},
        {WEFT_MACHINE_CPU, 4, 2, 0},     {WEFT_MACHINE_CPU, 32, 128, 0},
        {WEFT_MACHINE_CPU, 2, 0, 0}, /* a host that does not tell its cores */
    };
    for (size_t i = 0; i < sizeof sites / sizeof sites[0]; i++)
        for (int collective = 0; collective < WEFT__NUM_COLLECTIVES; collective++)
            for (int algorithm = 0; algorithm < WEFT__NUM_ALGORITHMS; algorithm++)
                check_growth(&sites[i], (struct weft__coll_work){(weft_collective)collective,
                                                                 (weft_algorithm)algorithm, 0, 0});
}

TEST(faster_links_and_more_cores_help)
{
    const struct weft__coll_work gather = {WEFT_ALL_GATHER, WEFT_ALGORITHM_PUSH, 64 << 20, 0};
    struct weft__coll_site faster = four_gpus;
    faster.link_gbps *= 2;
    const double us = expect_us(&four_gpus, gather), faster_us = expect_us(&faster, gather);
    assert_true(faster_us > 0.5 * us && faster_us < 0.52 * us); /* all but the start */
    const struct weft__coll_site two_cores = {WEFT_MACHINE_CPU, 4, 2, 0};
    const struct weft__coll_site four_cores = {WEFT_MACHINE_CPU, 4, 4, 0};
    const struct weft__coll_site eight_cores = {WEFT_MACHINE_CPU, 4, 8, 0};
    assert_true(expect_us(&four_cores, gather) < 0.51 * expect_us(&two_cores, gather));
    assert_true(expect_us(&eight_cores, gather) == expect_us(&four_cores, gather));
}

TEST(bytes_over_the_links)
{
    static const struct {
        weft_collective collective;
        weft_algorithm algorithm;
        uint64_t link_bytes; /* of rows of 4096 among 4 */
    } cases[] = {
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT, 3 * 4096},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT, 2 * 3 * 1024},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT_PACKETS, 2 * 3 * 1024},
        {WEFT_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT_PULL, 3 * 4096},
        {WEFT_BROADCAST, WEFT_ALGORITHM_PUSH, 3 * 4096},
        {WEFT_REDUCE, WEFT_ALGORITHM_TWOSHOT, 2 * 3 * 1024},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_RING, 2 * 3 * 1024},
        {WEFT_ALL_GATHER, WEFT_ALGORITHM_RING, 3 * 4096},
        {WEFT_BROADCAST, WEFT_ALGORITHM_RELAY, 4096},
        {WEFT_REDUCE, WEFT_ALGORITHM_RING, 4096},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_TREE, 2 * 4096},
        {WEFT_BROADCAST, WEFT_ALGORITHM_TREE, 4096},
        {WEFT_REDUCE, WEFT_ALGORITHM_TREE, 4096},
    };
    const struct weft__coll_costs costs = weft__coll_costs_at(&four_gpus);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct weft__coll_work work = {cases[i].collective, cases[i].algorithm, 4096, 4};
        struct weft__coll_expectation expectation;
        assert_true(weft__coll_expect(&costs, &work, &expectation));
        assert_int_equal(expectation.link_bytes, cases[i].link_bytes);
    }
}

/* ------------------------------------------------------------------ between nodes */

/* As a weft_coll on machine cpu has them, on hosts of two cores. */
static struct weft__coll_between between(int32_t num_nodes, int32_t num_local, double latency_us)
{
    return (struct weft__coll_between){
        .wire = {.latency_us = latency_us, .ranks_per_core = num_nodes * num_local / 2.0},
        .num_nodes = num_nodes,
        .most_local = num_local,
        .num_rails = num_local,
        .num_channels = 1,
        .window = 5,
        .chunk_bytes = 128 << 10,
        .tree_chunk_bytes = 16 << 10};
}

static double between_us(const struct weft__coll_between *nodes, struct weft__coll_work work)
{
    struct weft__coll_expectation expectation;
    work.num_ranks = nodes->num_nodes * nodes->most_local;
    if (!weft__coll_expect_between(nodes, &work, &expectation))
        return 0;
    return expectation.latency_us + expectation.transfer_us;
}

TEST(knows_rails_and_trees_between_nodes)
{
    const struct weft__coll_between nodes = between(4, 2, 10);
    for (int collective = 0; collective < WEFT__NUM_COLLECTIVES; collective++) {
        for (int algorithm = 0; algorithm < WEFT__NUM_ALGORITHMS; algorithm++) {
            struct weft__coll_work work = {(weft_collective)collective, (weft_algorithm)algorithm,
                                           1024, 0};
            const int is_known =
                algorithm == WEFT_ALGORITHM_RAILS ||
                (algorithm == WEFT_ALGORITHM_TREE &&
                 collective_is_served((weft_collective)collective, (weft_algorithm)algorithm));
            assert_int_equal(between_us(&nodes, work) > 0, is_known);
            double last_us = 0;
            for (work.row_bytes = 0; is_known && work.row_bytes < UINT64_C(1) << 40;
                 work.row_bytes = 2 * work.row_bytes + 1) {
                const double us = between_us(&nodes, work);
                assert_true(isfinite(us) && us >= last_us);
                last_us = us;
            }
        }
    }
}

TEST(messages_that_follow_each_other)
{
    static const struct {
        weft_collective collective;
        weft_algorithm algorithm;
        int32_t num_nodes;
        double hops;
        uint64_t sent_bytes; /* of rows of 1000 with 2 ranks on each node */
    } cases[] = {
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_RAILS, 2, 1, 1000},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_RAILS, 8, 14, 2000},
        {WEFT_ALL_REDUCE, WEFT_ALGORITHM_TREE, 8, 7, 3000},
        {WEFT_ALL_GATHER, WEFT_ALGORITHM_RAILS, 8, 7, 14000},
        {WEFT_ALL_TO_ALL, WEFT_ALGORITHM_RAILS, 8, 28, 4 * 28000},
        {WEFT_BROADCAST, WEFT_ALGORITHM_RAILS, 16, 15, 1000},
        {WEFT_BROADCAST, WEFT_ALGORITHM_TREE, 16, 5, 2000},
        {WEFT_BROADCAST, WEFT_ALGORITHM_TREE, 2, 1, 2000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct weft__coll_between nodes = between(cases[i].num_nodes, 2, 1e6);
        const struct weft__coll_work work = {cases[i].collective, cases[i].algorithm, 1000,
                                             2 * cases[i].num_nodes};
        struct weft__coll_expectation expectation;
        assert_true(weft__coll_hops(&work, nodes.num_nodes) == cases[i].hops);
        assert_true(weft__coll_expect_between(&nodes, &work, &expectation));
        assert_int_equal(expectation.link_bytes, cases[i].sent_bytes);
        assert_int_equal((expectation.latency_us + 1e5) / 1e6,
                         cases[i].hops); /* nothing else counts */
    }
}

TEST(ports_and_far_nodes_hold_up_what_is_long)
{
    const struct weft__coll_work work = {WEFT_BROADCAST, WEFT_ALGORITHM_RAILS, 1 << 30, 0};
    struct weft__coll_between nodes = between(4, 1, 10);
    const double us = between_us(&nodes, work);
    nodes.wire.port_gbps = 0.1;
    assert_true(between_us(&nodes, work) > 10.7e6 && us < 6e6);
    nodes = between(4, 1, 10000); /* a ring's window in each round trip */
    assert_true(between_us(&nodes, work) > 2 * 10000.0 * 1600);
}

/* ------------------------------------------------------------------ what was measured */

enum { MAX_POINTS = 1024 };

struct off {
    int num_points;
    double factors[MAX_POINTS]; /* of expected and measured, the larger by the smaller */
};

static int index_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Lines of pinned algorithms, for one number of ranks, or 0: any. */
static void take_line(const char *text, struct weft__coll_site site, const char *kernel,
                      struct off *off)
{
    const char *op = NULL, *algorithm = NULL, *asked = NULL, *how = NULL;
    json_int_t bytes = 0;
    double measured_us = 0;
    int num_ranks = 0;
    json_t *line = json_loads(text, 0, NULL);
    const int is_one = json_unpack(line, "{s:s, s:s, s:s, s:s, s:I, s:F, s:i}", "op", &op, "algo",
                                   &algorithm, "asked", &asked, "kernel", &how, "bytes", &bytes,
                                   "value", &measured_us, "num_ranks", &num_ranks) == 0 &&
                       strcmp(how, kernel) == 0 &&
                       index_of(collective_algorithm_names(), asked) > 0 &&
                       num_ranks == site.num_ranks;
    if (is_one) {
        struct collective collective = {.kind = (weft_collective)index_of(collective_names, op),
                                        .source = {.dtype = WEFT_UINT8},
                                        .num_ranks = num_ranks};
        collective.count = collective_count(&collective, (uint64_t)bytes);
        const double us =
            expect_us(&site, (struct weft__coll_work){
                                 collective.kind,
                                 (weft_algorithm)index_of(collective_algorithm_names(), algorithm),
                                 collective_algorithm_bytes(&collective), 0});
        assert_true(us > 0 && off->num_points < MAX_POINTS);
        off->factors[off->num_points++] = fmax(us / measured_us, measured_us / us);
    }
    json_decref(line);
}

static int ascending(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static struct off compare(const char *path, struct weft__coll_site site, const char *kernel)
{
    struct off off = {0};
    char line[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        take_line(line, site, kernel, &off);
    assert_int_equal(fclose(file), 0);
    assert_true(off.num_points > 50);
    qsort(off.factors, (size_t)off.num_points, sizeof off.factors[0], ascending);
    print_message("%s, %d ranks: %d points, off by %.3f in the median, %.3f at one in ten, %.3f at "
                  "worst\n",
                  path, site.num_ranks, off.num_points, off.factors[off.num_points / 2],
                  off.factors[off.num_points * 9 / 10], off.factors[off.num_points - 1]);
    return off;
}

/* docs/performance.md has these figures. */
TEST(is_near_what_gpus_took)
{
    struct weft__coll_site site = four_gpus;
    struct off off = compare(WEFT_RESULTS_DIR "/2026-11-22-h200x4-collectives.json", site, "graph");
    assert_true(off.factors[off.num_points / 2] < 1.08 && off.factors[off.num_points - 1] < 1.3);
    site.num_ranks = 2;
    off = compare(WEFT_RESULTS_DIR "/2026-11-21-h200x2.json", site, "graph");
    assert_true(off.factors[off.num_points / 2] < 1.12 && off.factors[off.num_points - 1] < 1.3);
}

TEST(is_near_what_cores_took)
{
    struct weft__coll_site site = {WEFT_MACHINE_CPU, 2, 2, 0};
    for (; site.num_ranks <= 4; site.num_ranks += 2) {
        const struct off off =
            compare(WEFT_RESULTS_DIR "/2026-11-23-epyc-2cores-collectives.json", site, "stream");
        assert_true(off.factors[off.num_points / 2] < 1.3 &&
                    off.factors[off.num_points * 9 / 10] < 2.2);
    }
}

/* Lines of bench/results: how far off. */
static void take_line_of_nodes(const char *text, struct off *off)
{
    const char *op = NULL, *algorithm = NULL;
    json_int_t bytes = 0;
    double measured_us = 0, latency_us = 0;
    int num_nodes = 0, num_local = 0;
    json_t *line = json_loads(text, 0, NULL);
    assert_int_equal(json_unpack(line, "{s:s, s:s, s:I, s:F, s:F, s:i, s:i}", "op", &op, "algo",
                                 &algorithm, "bytes", &bytes, "value", &measured_us, "latency_us",
                                 &latency_us, "num_nodes", &num_nodes, "num_local", &num_local),
                     0);
    struct weft__coll_between nodes = between(num_nodes, num_local, latency_us);
    if (strcmp(algorithm, "rails") == 0 && bytes <= 1 << 20) /* ranks share cores */
        nodes.num_rails = 1;
    struct collective collective = {.kind = (weft_collective)index_of(collective_names, op),
                                    .source = {.dtype = WEFT_UINT8},
                                    .num_ranks = num_nodes * num_local};
    collective.count = collective_count(&collective, (uint64_t)bytes);
    const double us = between_us(
        &nodes,
        (struct weft__coll_work){collective.kind,
                                 (weft_algorithm)index_of(collective_algorithm_names(), algorithm),
                                 collective_algorithm_bytes(&collective), 0});
    assert_true(us > 0 && off->num_points < MAX_POINTS);
    off->factors[off->num_points++] = fmax(us / measured_us, measured_us / us);
    json_decref(line);
}

TEST(is_near_what_nodes_took)
{
    struct off off = {0};
    char line[4096];
    FILE *file = fopen(WEFT_RESULTS_DIR "/2026-11-23-epyc-2cores-nodes.json", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        take_line_of_nodes(line, &off);
    assert_int_equal(fclose(file), 0);
    qsort(off.factors, (size_t)off.num_points, sizeof off.factors[0], ascending);
    const double median = off.factors[off.num_points / 2],
                 at_a_tenth = off.factors[off.num_points * 9 / 10];
    print_message(
        "nodes: %d points, off by %.3f in the median, %.3f at one in ten, %.3f at worst\n",
        off.num_points, median, at_a_tenth, off.factors[off.num_points - 1]);
    assert_true(off.num_points > 500 && median < 1.6 && at_a_tenth < 3.2);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
