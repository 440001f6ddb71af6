/* SPDX-License-Identifier: MIT */
/* The model of how long collectives take between nodes: its form, and how far it is from what was
 * measured. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll/model.h"
#include "harness/cmocka.h"
#include "launch/names.h"
#include "workload/collective.h"

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
            const int is_known = algorithm != WEFT_ALGORITHM_AUTO &&
                                 collective_is_served_between_nodes((weft_collective)collective,
                                                                    (weft_algorithm)algorithm);
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

/* Nodes of 2 ranks and 2 rails, and rows that a core sends in 105000 / 1.75 GB/s = 60 us, and reads
 * or writes in 7 us. A row is 5 chunks, or 10 of a tree, and a hop takes 15 + 25 us. */
enum { ROW_BYTES = 105000 };

static struct weft__coll_between of_two_ranks(int32_t num_nodes, double ranks_per_core)
{
    return (struct weft__coll_between){.wire = {.latency_us = 15, .ranks_per_core = ranks_per_core},
                                       .num_nodes = num_nodes,
                                       .most_local = 2,
                                       .num_rails = 2,
                                       .num_channels = 1,
                                       .window = 5,
                                       .chunk_bytes = ROW_BYTES / 5,
                                       .tree_chunk_bytes = ROW_BYTES / 10};
}

struct figures {
    double sent_rows, latency_us, transfer_us;
};

static void check_figures(const struct weft__coll_between *nodes, struct weft__coll_work work,
                          struct figures figures)
{
    struct weft__coll_expectation is;
    work.num_ranks = nodes->num_nodes * nodes->most_local;
    assert_true(weft__coll_expect_between(nodes, &work, &is));
    if ((double)is.link_bytes != figures.sent_rows * (double)work.row_bytes ||
        fabs(is.latency_us - figures.latency_us) > 1e-6 ||
        fabs(is.transfer_us - figures.transfer_us) > 1e-6)
        fail_msg("%s by %s over %d nodes: %g rows, %.9g us and %.9g us; worked out by hand: %g, "
                 "%.9g and %.9g",
                 collective_names[work.collective], collective_algorithm_names()[work.algorithm],
                 nodes->num_nodes, (double)is.link_bytes / (double)work.row_bytes, is.latency_us,
                 is.transfer_us, figures.sent_rows, figures.latency_us, figures.transfer_us);
}

/*
 * Eight ranks share a core, so a node has 1/4 of one, and that has no rest: ranks begin after 8 x 23 = 184 us, a message
 * on each rail takes 2 x 25 x 4 = 200 us, a row that is sent 60 x 4 = 240 us, one that is touched 7 x 4 = 28 us, and
 * a chunk behind a ring's first 0.4 x 4 = 1.6 us.
 */
TEST(what_each_algorithm_takes_of_busy_cores)
{
    enum { RAILS = WEFT_ALGORITHM_RAILS, TREE = WEFT_ALGORITHM_TREE };
    static const struct {
        weft_collective collective;
        int algorithm, num_nodes;
        double hops;
        struct figures figures;
    } cases[] = {
        /* 1 message. 1 sent, 2 x 2 touched, and 2 rings of half a row: 240 + 112 + 2 x 1.5 x 1.6 */
        {WEFT_ALL_REDUCE, RAILS, 2, 1, {1, 384, 356.8}},
        /* 2 messages, hops 2 x 3. 2 sent, 2 x 2 touched, 2 rings of 1 row: 480 + 112 + 2 x 4 x
         * 1.6 */
        {WEFT_ALL_REDUCE, RAILS, 4, 6, {2, 584, 604.8}},
        /* 3 messages. 3 x 2 sent, 2 x 8 touched, 2 rings of 3 rows: 1440 + 448 + 2 x 14 x 1.6 */
        {WEFT_REDUCE_SCATTER, RAILS, 4, 3, {6, 784, 1932.8}},
        {WEFT_ALL_GATHER, RAILS, 4, 3, {6, 784, 1932.8}},
        /* 6 pairs. 2 x 2 x 6 sent, 2 x 8 touched, 2 rings of 12: 5760 + 448 + 2 x 59 x 1.6 */
        {WEFT_ALL_TO_ALL, RAILS, 4, 6, {24, 1384, 6396.8}},
        /* 2 messages. 1 sent, 2 touched, 2 rings of half a row: 240 + 56 + 2 x 1.5 x 1.6 */
        {WEFT_BROADCAST, RAILS, 4, 3, {1, 584, 300.8}},
        {WEFT_REDUCE, RAILS, 4, 3, {1, 584, 300.8}},
        /* 3 messages. 3 x 2 sent, 8 touched, 2 rings of 3 rows: 1440 + 224 + 2 x 14 x 1.6 */
        {WEFT_GATHER, RAILS, 4, 3, {6, 784, 1708.8}},
        {WEFT_SCATTER, RAILS, 4, 3, {6, 784, 1708.8}},
        /* 3 messages, hops 1 + 2 x 3. 3 sent, 2 x 2 touched, 3 x 2 rings of half a row: 720 + 112 +
         * 6 x 4 x 1.6 */
        {WEFT_ALL_REDUCE, TREE, 8, 7, {3, 784, 870.4}},
        /* 2 messages, hops 1.5 x 4 - 1. 2 sent, 2 touched, 2 x 2 rings of half a row: 480 + 56 + 4
         * x 4 x 1.6 */
        {WEFT_BROADCAST, TREE, 16, 5, {2, 584, 561.6}},
        {WEFT_BROADCAST, TREE, 2, 1, {2, 584, 561.6}}, /* at least one hop */
        /* 3 messages, hops 1 + 1.5 x 2. As much as a broadcast. */
        {WEFT_REDUCE, TREE, 4, 4, {2, 784, 561.6}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct weft__coll_between nodes = of_two_ranks(cases[i].num_nodes, 8);
        const struct weft__coll_work work = {cases[i].collective,
                                             (weft_algorithm)cases[i].algorithm, ROW_BYTES, 0};
        assert_true(weft__coll_hops(&work, nodes.num_nodes) == cases[i].hops);
        check_figures(&nodes, work, cases[i].figures);
    }
}

/* A broadcast, whose ranks have a core each. */
TEST(what_is_longest_counts)
{
    struct weft__coll_work work = {WEFT_BROADCAST, WEFT_ALGORITHM_RAILS, ROW_BYTES, 0};
    struct weft__coll_between nodes = of_two_ranks(4, 0);
    /* 3 hops, which take longer than 2 x 2 messages by 2 cores; half a row and, ahead of it, 2
     * chunks on the path: 30 + 2 x 12, for 30 + 7 + 2 x 1.5 x 0.4 / 2 of cores */
    check_figures(&nodes, work, (struct figures){1, 23 + 3 * 40, 54});
    nodes.wire.latency_us = 0; /* 10 are assumed */
    check_figures(&nodes, work, (struct figures){1, 23 + 3 * 35, 54});
    nodes.wire.port_gbps = 1; /* 105 us for the row */
    check_figures(&nodes, work, (struct figures){1, 23 + 3 * 35, 105});
    nodes.wire.latency_us = 975;
    nodes.window = 2; /* chunks: half a row is 2.5, so a quarter of a window waits for 2 hops */
    check_figures(&nodes, work, (struct figures){1, 23 + 3000, 500});
    nodes = of_two_ranks(16, 0);
    work.algorithm = WEFT_ALGORITHM_TREE;
    /* 5 hops; half a row to each of 2, and 4 chunks: 60 + 4 x 6, for 60 + 7 + 4 x 4 x 0.4 / 2 of
     * cores */
    check_figures(&nodes, work, (struct figures){2, 23 + 5 * 40, 84});
}

/* One rail has one core send: 60 us, and two touch 2 rows: 7 us. Of its 2 rings each has half a
 * row, so 1.5 chunks more: 2 x 1.5 x 0.4 / 2. A path takes 30 + 2 x 12 us. */
TEST(rings_of_a_rail_share_its_row)
{
    struct weft__coll_between nodes = of_two_ranks(4, 0);
    nodes.num_rails = 1;
    nodes.num_channels = 2;
    check_figures(&nodes,
                  (struct weft__coll_work){WEFT_BROADCAST, WEFT_ALGORITHM_RAILS, ROW_BYTES, 0},
                  (struct figures){1, 143, 67.6});
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

static int ascending(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
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
