/* SPDX-License-Identifier: MIT */
/* Measures the network engine alone. First every rank sends messages of one size to the ranks of
 * its local index on other nodes, through rings of slots with credits, as rows between nodes go.
 * Then two ranks send one message to and fro, while all others sleep. Rank 0 prints a JSON line for
 * each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/host/error.h"
#include "rail.h"
#include "workload/clock.h"
#include "workload/figures.h"
#include "workload/options.h"

enum { MAX_MESSAGES = 10000000, MAX_SLOTS = 65536, MAX_BYTES = 1 << 26, MAX_ROUNDS = 1000 };

struct options {
    int64_t message_bytes;
    int32_t num_slots; /* of a ring */
    int32_t num_messages;
    int32_t num_rounds;
};

/* Memory of a rank: what it sends, then a ring for each peer, and one for the latency: a credit
 * word, a word per slot, and the slots. */
struct layout {
    uint64_t slot_bytes, ring_bytes, total_bytes;
};

struct bench {
    struct options options;
    struct layout layout;
    struct rail rail;
    int32_t node, num_nodes;
};

/* One direction each of the traffic with a peer; all counts since the start of the program. */
struct flow {
    int32_t peer;
    uint64_t own_ring, peer_ring; /* offsets: the ring here, for what the peer sends, and there */
    uint64_t num_sent, num_received;
};

static struct layout layout_of(const struct options *options, int32_t num_peers)
{
    const uint64_t slot_bytes = ((uint64_t)options->message_bytes + 63) / 64 * 64;
    const uint64_t ring_bytes =
        ((uint64_t)(1 + options->num_slots) * sizeof(uint64_t) + 63) / 64 * 64 +
        (uint64_t)options->num_slots * slot_bytes;
    return (struct layout){slot_bytes, ring_bytes,
                           slot_bytes + (uint64_t)(num_peers + 1) * ring_bytes};
}

static uint64_t word_offset(uint64_t ring, uint64_t slot)
{
    return ring + (1 + slot) * sizeof(uint64_t);
}

static uint64_t slot_offset(const struct bench *bench, uint64_t ring, uint64_t slot)
{
    return ring + bench->layout.ring_bytes -
           ((uint64_t)bench->options.num_slots - slot) * bench->layout.slot_bytes;
}

static weft_result send_message(struct bench *bench, struct flow *flow)
{
    const uint64_t slot = flow->num_sent++ % (uint64_t)bench->options.num_slots;
    const struct wp_access put = {.operation = WP_ACCESS_PUT_SIGNAL,
                                  .rank = flow->peer,
                                  .source = weft__net_place(0, 0),
                                  .target =
                                      weft__net_place(0, slot_offset(bench, flow->peer_ring, slot)),
                                  .num_bytes = (uint64_t)bench->options.message_bytes,
                                  .word = weft__net_place(0, word_offset(flow->peer_ring, slot)),
                                  .add = 1};
    return weft__net_post(bench->rail.net, &put, NULL);
}

static weft_result return_credit(struct bench *bench, struct flow *flow)
{
    const struct wp_access credit = {.operation = WP_ACCESS_PUT_SIGNAL,
                                     .rank = flow->peer,
                                     .word = weft__net_place(0, flow->peer_ring),
                                     .add = 1};
    flow->num_received++;
    return weft__net_post(bench->rail.net, &credit, NULL);
}

static int has_arrived(const struct bench *bench, const struct flow *flow)
{
    const uint64_t num_slots = (uint64_t)bench->options.num_slots;
    const uint64_t offset = word_offset(flow->own_ring, flow->num_received % num_slots);
    return atomic_load_explicit(rail_word(&bench->rail, offset), memory_order_acquire) >
           flow->num_received / num_slots;
}

static uint64_t num_credits(const struct bench *bench, const struct flow *flow)
{
    return atomic_load_explicit(rail_word(&bench->rail, flow->own_ring), memory_order_acquire);
}

/* Sends and takes what can be, up to `goal` messages each way; *is_done when the peer has taken
 * all. */
static weft_result advance(struct bench *bench, struct flow *flow, uint64_t goal, int *is_done)
{
    weft_result result = WEFT_OK;
    while (result == WEFT_OK && flow->num_received < goal && has_arrived(bench, flow))
        result = return_credit(bench, flow);
    const uint64_t credits = num_credits(bench, flow);
    while (result == WEFT_OK && flow->num_sent < goal &&
           flow->num_sent - credits < (uint64_t)bench->options.num_slots)
        result = send_message(bench, flow);
    *is_done = flow->num_received == goal && credits == goal;
    return result;
}

static weft_result exchange(struct bench *bench, struct flow *flows, uint64_t goal)
{
    for (;;) {
        int num_done = 0, is_done;
        for (int32_t i = 0; i < bench->rail.num_peers; i++) {
            WEFT__TRY(advance(bench, &flows[i], goal, &is_done));
            num_done += is_done;
        }
        if (num_done == bench->rail.num_peers)
            return WEFT_OK;
        WEFT__TRY(rail_progress(&bench->rail));
    }
}

/* Microseconds of the slowest rank. */
static weft_result slowest(struct bench *bench, double *us)
{
    double *all = malloc((size_t)bench->rail.num_ranks * sizeof(*all));
    if (all == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for times");
    const weft_result result = rail_all_gather(&bench->rail, us, sizeof(*us), all);
    for (int32_t rank = 0; result == WEFT_OK && rank < bench->rail.num_ranks; rank++)
        *us = all[rank] > *us ? all[rank] : *us;
    free(all);
    return result;
}

static void print_line(const struct bench *bench, const char *op, const char *unit, double *values)
{
    if (bench->rail.rank != 0)
        return;
    /* Not before messages have gone: they make the connections. */
    if (weft__net_transport(bench->rail.net)[0] == '\0')
        (void)weft__net_find_transports(bench->rail.net);
    const struct figures figures = figures_of(values, (size_t)bench->options.num_rounds);
    printf("{\"op\": \"%s\", \"engine\": \"%s\", \"transport\": \"%s\", \"ranks\": %d, \"nodes\": "
           "%d, \"bytes\": %" PRId64 ", \"slots\": %d, \"rounds\": %d, \"%s\": %.4f, \"%s_min\": "
           "%.4f, \"%s_max\": %.4f}\n",
           op, weft__net_engine_name(bench->rail.net), weft__net_transport(bench->rail.net),
           bench->rail.num_ranks, bench->num_nodes, bench->options.message_bytes,
           bench->options.num_slots, bench->options.num_rounds, unit, figures.median, unit,
           figures.min, unit, figures.max);
}

/* GB/s that leave a node. The first round connects and warms up. */
static weft_result measure_rate(struct bench *bench, struct flow *flows)
{
    const struct options *options = &bench->options;
    const double node_bytes = (double)options->message_bytes * options->num_messages *
                              bench->rail.num_peers * bench->rail.num_ranks / bench->num_nodes;
    double gbps[MAX_ROUNDS];
    for (int32_t round = -1; round < options->num_rounds; round++) {
        double us = 0;
        WEFT__TRY(slowest(bench, &us)); /* all start together */
        const double start_us = clock_us();
        WEFT__TRY(exchange(bench, flows, (uint64_t)(round + 2) * (uint64_t)options->num_messages));
        us = clock_us() - start_us;
        WEFT__TRY(slowest(bench, &us));
        if (round >= 0)
            gbps[round] = node_bytes / us / 1000;
    }
    print_line(bench, "net_rate", "gbps", gbps);
    return WEFT_OK;
}

static weft_result wait_for_message(struct bench *bench, struct flow *flow)
{
    while (!has_arrived(bench, flow))
        WEFT__TRY(rail_progress(&bench->rail));
    flow->num_received++;
    return WEFT_OK;
}

/* Without credits: every message answers the one before. */
static weft_result go_to_and_fro(struct bench *bench, struct flow *flow, double *us)
{
    const int32_t num_trips = bench->options.num_messages;
    double *times = malloc((size_t)num_trips * sizeof(*times));
    weft_result result = WEFT_OK;
    if (times == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for times");
    for (int32_t i = 0; i < num_trips && result == WEFT_OK; i++) {
        const double start_us = clock_us();
        if (bench->node == 0)
            result = send_message(bench, flow);
        if (result == WEFT_OK)
            result = wait_for_message(bench, flow);
        if (bench->node != 0 && result == WEFT_OK)
            result = send_message(bench, flow);
        times[i] = clock_us() - start_us;
    }
    if (result == WEFT_OK)
        *us = figures_of(times, (size_t)num_trips).median / 2;
    free(times);
    return result;
}

static uint64_t ring_offset(const struct bench *bench, int32_t place)
{
    return bench->layout.slot_bytes + (uint64_t)place * bench->layout.ring_bytes;
}

/* One way, the median of a round; between rank 0 and its peer on node 1. */
static weft_result measure_latency(struct bench *bench)
{
    const struct rail *rail = &bench->rail;
    const uint64_t ring = ring_offset(bench, rail->num_peers);
    struct flow flow = {.peer = rail->peers[0], .own_ring = ring, .peer_ring = ring};
    const int takes_part = rail->rank == 0 || (bench->node == 1 && flow.peer == 0);
    double latencies_us[MAX_ROUNDS];
    for (int32_t round = 0; round < bench->options.num_rounds; round++) {
        latencies_us[round] = 0;
        if (takes_part)
            WEFT__TRY(go_to_and_fro(bench, &flow, &latencies_us[round]));
        WEFT__TRY(slowest(bench, &latencies_us[round]));
    }
    print_line(bench, "net_latency", "us", latencies_us);
    return WEFT_OK;
}

static weft_result measure(struct bench *bench)
{
    const struct rail *rail = &bench->rail;
    struct flow *flows = calloc((size_t)rail->num_peers, sizeof(*flows));
    if (flows == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d peers", rail->num_peers);
    for (int32_t i = 0; i < rail->num_peers; i++) {
        /* Peers are in the order of nodes, the own one left out: so is this rank among those of the
         * peer. */
        const int32_t own_place = bench->node - (rail->peers[i] < rail->rank);
        flows[i] = (struct flow){.peer = rail->peers[i],
                                 .own_ring = ring_offset(bench, i),
                                 .peer_ring = ring_offset(bench, own_place)};
    }
    weft_result result = measure_latency(bench);
    if (result == WEFT_OK)
        result = measure_rate(bench, flows);
    free(flows);
    return result;
}

#define AT(member) OPTION_AT(struct options, member)

static const struct option_row option_table[] = {
    {OPTION_INTEGER, "bytes", "N", "Of a message", "14336", AT(message_bytes), 1, MAX_BYTES},
    {OPTION_INTEGER, "slots", "N", "Of a ring", "16", AT(num_slots), 1, MAX_SLOTS},
    {OPTION_INTEGER, "messages", "N", "To each peer in a round", "1000", AT(num_messages), 1,
     MAX_MESSAGES},
    {OPTION_INTEGER, "rounds", "N", "That count", "5", AT(num_rounds), 1, MAX_ROUNDS},
    {0}};

static weft_result run(struct bench *bench, weft_comm *comm)
{
    weft_team_info local = WEFT_INIT(weft_team_info), rail = WEFT_INIT(weft_team_info);
    WEFT__TRY(weft_team_query(comm, WEFT_TEAM_LOCAL, &local));
    WEFT__TRY(weft_team_query(comm, WEFT_TEAM_RAIL, &rail));
    bench->node = local.team_idx;
    bench->num_nodes = local.num_teams;
    if (bench->num_nodes * local.num_ranks != weft_comm_num_ranks(comm) || bench->num_nodes < 2)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "%d ranks on %d nodes; there must be several nodes, of as many ranks",
                           weft_comm_num_ranks(comm), bench->num_nodes);
    bench->layout = layout_of(&bench->options, rail.num_ranks - 1);
    weft_result result = rail_open(&bench->rail, comm, bench->layout.total_bytes);
    if (result == WEFT_OK)
        result = measure(bench);
    rail_close(&bench->rail);
    return result;
}

int main(int argc, char **argv)
{
    static const struct option_set set = {option_table, "What weft's network engine does alone.",
                                          NULL};
    static struct bench bench;
    weft_comm *comm;
    options_parse(&set, &bench.options, argc, argv);
    weft_result result = weft_comm_create_from_env(NULL, &comm);
    if (result == WEFT_OK) {
        result = run(&bench, comm);
        weft_comm_destroy(comm);
    }
    if (result != WEFT_OK)
        fprintf(stderr, "net: %s\n", weft_last_error());
    return result == WEFT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
