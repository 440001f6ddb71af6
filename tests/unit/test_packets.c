/* SPDX-License-Identifier: MIT */
/* Packets of the cpu machine, between real ranks: rows arrive and are reduced whatever is in them,
 * slots are empty afterwards, and a packet that does not come ends the wait. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "machine/cpu/cpu_launch.h"
#include "machine/cpu/cpu_rows.h"
#include "row_values.h"

enum {
    NUM_WARPS = 2,
    MAX_RANKS = 4,
    MAX_ROW_BYTES = 3 * 4096 + 16, /* some tiles of every type */
    MAX_MISALIGNMENT = 16,
    MAX_PLACES = 2,
    NUM_ROUNDS = 300,
    SLOTS_PER_ROW = (MAX_ROW_BYTES + WP_PACKET_BYTES - 1) / WP_PACKET_BYTES,
    SEQUENCE = 1000000, /* of the first round */
    EXCHANGE = 4096
};

enum operation {
    ALL_GATHER,
    REDUCE,
    REDUCE_IN_PLACE,
    NUM_OPERATIONS,
    SUM_OF_SOME = NUM_OPERATIONS
};

/* One row to send and what comes of all ranks' rows; warps do not share rows. */
struct warp_row {
    char *src;
    char *dst;  /* of ALL_GATHER [num_ranks][row_bytes] */
    char *copy; /* the same, if each row goes to two places */
    uint64_t slot;
};

struct exchange_args {
    struct wp_packets packets;
    enum operation operation; /* sums of some on all ranks, or on none */
    uint32_t senders;         /* of these, a bit for each */
    int32_t num_places;       /* to which each row of ALL_GATHER goes: none, dst, or copy, too */
    struct wp_reduction reduction;
    uint64_t num_elements;
    uint64_t *word;                      /* of rank 0, by which it is told what comes, */
    enum wp_status *statuses;            /* and what it gets, */
    struct wp_packet_progress *progress; /* with what is not there at first */
    struct warp_row rows[NUM_WARPS];
};

/* ------------------------------------------------------------------ the program */

static enum wp_status gather(struct wp_warp *warp, const struct exchange_args *args,
                             const struct warp_row *row, uint64_t row_bytes)
{
    for (int32_t rank = 0; rank < args->packets.num_ranks; rank++) {
        if (rank == args->packets.rank)
            continue;
        const void *const dsts[MAX_PLACES] = {row->dst + (uint64_t)rank * row_bytes,
                                              row->copy + (uint64_t)rank * row_bytes};
        const struct wp_expected_row expected = wp_packets_expect(
            warp, &args->packets, rank, row->slot + (uint64_t)rank * SLOTS_PER_ROW, row_bytes);
        const enum wp_status status =
            wp_packets_receive_each(warp, &args->packets, &expected, dsts, args->num_places, NULL);
        if (status != WP_STATUS_OK)
            return status;
    }
    return WP_STATUS_OK;
}

/* The senders send to all, themselves too. */
static enum wp_status sum_of_some(struct wp_warp *warp, const struct exchange_args *args,
                                  const struct warp_row *row, uint64_t row_bytes)
{
    const struct wp_packet_targets to = {0, args->packets.num_ranks,
                                         row->slot + (uint64_t)args->packets.rank * SLOTS_PER_ROW,
                                         WP_PACKETS_TO_ALL, 0};
    const struct wp_packet_rows from = {args->senders, row->slot, SLOTS_PER_ROW};
    const struct wp_packet_row loaded = wp_packets_load(warp, row->src, row_bytes);
    const int sends = args->senders >> args->packets.rank & 1;
    if (sends)
        wp_packets_send(warp, &args->packets, to, &loaded);
    return wp_packets_sum(warp, &args->packets, &from, row->dst, args->reduction.dtype,
                          args->num_elements, NULL);
}

static enum wp_status exchange(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    const struct warp_row *row = &args->rows[wp_warp_idx(warp)];
    const uint64_t row_bytes = args->num_elements * wp_dtype_bytes(args->reduction.dtype);
    const struct wp_packet_targets to = {0, args->packets.num_ranks,
                                         row->slot + (uint64_t)args->packets.rank * SLOTS_PER_ROW,
                                         WP_PACKETS_TO_OTHERS, 0};
    if (args->operation == SUM_OF_SOME)
        return sum_of_some(warp, args, row, row_bytes);
    const struct wp_packet_row loaded = wp_packets_load(warp, row->src, row_bytes);
    wp_packets_send(warp, &args->packets, to, &loaded);
    if (args->operation == ALL_GATHER)
        return gather(warp, args, row, row_bytes);
    const struct wp_packet_sources from = {row->slot, SLOTS_PER_ROW, row->src};
    void *dst = args->operation == REDUCE ? row->dst : row->src;
    return wp_packets_reduce(warp, &args->packets, &from, dst, args->reduction, args->num_elements);
}

/* Nobody sends to this one. */
static enum wp_status receive_one(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    return wp_packets_receive(warp, &args->packets, 1, args->rows[0].slot, args->rows[0].dst,
                              WP_PACKET_BYTES, NULL);
}

static enum wp_status send_row(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    const struct wp_packet_targets to = {0, args->packets.num_ranks, args->rows[0].slot,
                                         WP_PACKETS_TO_OTHERS, 0};
    const struct wp_packet_row row = wp_packets_load(warp, args->rows[0].src, args->num_elements);
    wp_packets_send(warp, &args->packets, to, &row);
    return WP_STATUS_OK;
}

static const struct weft__program send_row_program = {"send_row", send_row};
static const struct weft__program exchange_program = {"exchange", exchange};
static const struct weft__program receive_one_program = {"receive_one", receive_one};

/* ------------------------------------------------------------------ a rank */

struct rank {
    struct ranks_context *context;
    weft_comm *comm;
    struct weft__cpu_runner *runner;
    uint64_t *slots;         /* [2][NUM_WARPS][num_ranks][SLOTS_PER_ROW], the rounds in turn */
    uint64_t num_half_slots; /* of a round */
    char *areas[MAX_RANKS];
    char src[NUM_WARPS][MAX_ROW_BYTES + MAX_MISALIGNMENT];
    char dst[NUM_WARPS][MAX_RANKS * MAX_ROW_BYTES + MAX_MISALIGNMENT];
    char copy[NUM_WARPS][MAX_RANKS * MAX_ROW_BYTES + MAX_MISALIGNMENT];
    char expected[MAX_ROW_BYTES];
    _Alignas(8) char all[MAX_RANKS][MAX_ROW_BYTES];
};

static int open_rank(struct rank **opened, struct ranks_context *context, uint32_t timeout_ms)
{
    struct rank *rank = *opened = calloc(1, sizeof **opened);
    CHECK(rank != NULL, "no memory");
    rank->context = context;
    rank->comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .timeout_ms = timeout_ms,
                                               .machine = WEFT_MACHINE_CPU));
    rank->num_half_slots = (uint64_t)NUM_WARPS * (uint64_t)context->num_ranks * SLOTS_PER_ROW;
    void *area;
    const size_t area_bytes = 4 * rank->num_half_slots * sizeof(uint64_t); /* slots and escapes */
    CHECK_OK(weft_heap_alloc(rank->comm, area_bytes, &area));
    rank->slots = memset(area, 0, area_bytes);
    for (int32_t peer = 0; peer < context->num_ranks; peer++)
        rank->areas[peer] = weft_heap_ptr(rank->comm, area, peer);
    CHECK_OK(weft__cpu_runner_create(rank->comm, &rank->runner));
    CHECK_OK(weft_comm_host_barrier(rank->comm));
    return 0;
}

static int close_rank(struct rank *rank)
{
    weft__cpu_runner_destroy(rank->runner);
    free(rank);
    return 0;
}

static struct wp_packets packets_of(const struct rank *rank, uint64_t round)
{
    return (struct wp_packets){
        .rank = rank->context->rank,
        .num_ranks = rank->context->num_ranks,
        .areas = rank->areas,
        .slots_offset = round % 2 * rank->num_half_slots * sizeof(uint64_t),
        .escapes_offset = (2 + round % 2) * rank->num_half_slots * sizeof(uint64_t),
        .sequence = SEQUENCE + round,
        .exchange = EXCHANGE,
    };
}

static int launch(struct rank *rank, const struct weft__program *program, int32_t num_warps,
                  const struct exchange_args *args, struct wp_failure *failure)
{
    const struct weft__launch launch = {
        .program = program,
        .args = args,
        .args_bytes = sizeof *args,
        .grid = {.num_blocks = 1, .num_warps = num_warps},
        .comm = rank->comm,
    };
    CHECK_OK(weft__cpu_run(rank->runner, &launch, failure));
    return 0;
}

/* ------------------------------------------------------------------ rows */

/* Values of the type, and often words that a slot cannot hold as they are. */
static void fill(weft_dtype dtype, void *row, uint64_t num_elements, uint64_t seed)
{
    uint64_t state = seed;
    fill_row(dtype, row, (int64_t)num_elements, &state);
    const uint64_t num_words = num_elements * wp_dtype_bytes(dtype) / sizeof(uint64_t);
    for (uint64_t i = 0; i < num_words; i++) {
        const uint64_t words[] = {WP_PACKET_KEY(0), WP_PACKET_KEY(0) ^ WP_PACKET_ESCAPE, 0,
                                  WP_PACKET_ESCAPE};
        if (next_random(&state) % 16 == 0)
            memcpy((char *)row + i * sizeof(uint64_t), &words[next_random(&state) % 4],
                   sizeof(uint64_t));
    }
}

static uint64_t row_seed(uint64_t round, int32_t rank, int32_t warp)
{
    return (round * MAX_RANKS + (uint64_t)rank) * NUM_WARPS + (uint64_t)warp + 1;
}

static struct exchange_args draw_round(struct rank *rank, uint64_t round)
{
    static const uint64_t row_bytes[] = {1, 7, 8, 9, 16, 100, 513, 4096, 4099, MAX_ROW_BYTES};
    uint64_t state = round; /* the same on all ranks, but alignment and what is in place */
    (void)next_random(&state);
    struct exchange_args args = {
        .packets = packets_of(rank, round),
        .reduction = {(weft_dtype)(1 + next_random(&state) % 8),
                      (enum wp_reduction_op)(next_random(&state) % 6), 0},
    };
    if (round % 4 == 3) {
        static const weft_dtype dtypes[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32};
        args.reduction = (struct wp_reduction){dtypes[round / 4 % 3], WP_REDUCTION_SUM, 0};
        args.senders = (uint32_t)next_random(&state) & ((1u << rank->context->num_ranks) - 1);
    }
    const uint64_t element_bytes = wp_dtype_bytes(args.reduction.dtype);
    const uint64_t drawn = next_random(&state), length = round % 4 == 3 ? round / 8 : drawn;
    args.num_elements = (row_bytes[length % 10] + element_bytes - 1) / element_bytes;
    state += (uint64_t)rank->context->rank;
    args.operation =
        round % 4 == 3 ? SUM_OF_SOME : (enum operation)(next_random(&state) % NUM_OPERATIONS);
    args.num_places = (int32_t)(round % (MAX_PLACES + 1));
    for (int32_t warp = 0; warp < NUM_WARPS; warp++) {
        args.rows[warp] = (struct warp_row){
            .src = rank->src[warp] + next_random(&state) % MAX_MISALIGNMENT,
            .dst = rank->dst[warp] + next_random(&state) % MAX_MISALIGNMENT,
            .copy = rank->copy[warp] + next_random(&state) % MAX_MISALIGNMENT,
            .slot = (uint64_t)warp * (uint64_t)rank->context->num_ranks * SLOTS_PER_ROW,
        };
        fill(args.reduction.dtype, args.rows[warp].src, args.num_elements,
             row_seed(round, rank->context->rank, warp));
    }
    return args;
}

static int check_gathered(struct rank *rank, const struct exchange_args *args,
                          const struct warp_row *row)
{
    const uint64_t bytes = args->num_elements * wp_dtype_bytes(args->reduction.dtype);
    const char *places[MAX_PLACES] = {row->dst, row->copy};
    CHECK(memcmp(row->src, rank->all[rank->context->rank], bytes) == 0, "the row sent is another");
    for (int32_t r = 0; r < rank->context->num_ranks; r++)
        for (int32_t i = 0; i < MAX_PLACES && i < args->num_places && r != rank->context->rank; i++)
            CHECK(memcmp(places[i] + (uint64_t)r * bytes, rank->all[r], bytes) == 0,
                  "row of rank %d, place %d, sequence %llu", r, i,
                  (unsigned long long)args->packets.sequence);
    return 0;
}

static int check_reduced(struct rank *rank, const struct exchange_args *args,
                         const struct warp_row *row)
{
    const void *srcs[MAX_RANKS], *dsts[] = {rank->expected};
    int32_t num_srcs = 0;
    for (int32_t r = 0; r < rank->context->num_ranks; r++)
        if (args->operation < SUM_OF_SOME || (args->senders >> r & 1) != 0)
            srcs[num_srcs++] = rank->all[r];
    memset(rank->expected, 0, sizeof rank->expected);
    if (num_srcs > 0)
        weft__cpu_rows()->reduce(dsts, 1, srcs, num_srcs, args->reduction,
                                 (int64_t)args->num_elements);
    CHECK(memcmp(args->operation == REDUCE_IN_PLACE ? row->src : row->dst, rank->expected,
                 args->num_elements * wp_dtype_bytes(args->reduction.dtype)) == 0,
          "dtype %d, op %d, %llu elements", args->reduction.dtype, args->reduction.op,
          (unsigned long long)args->num_elements);
    return 0;
}

static int check_round(struct rank *rank, uint64_t round, const struct exchange_args *args)
{
    for (int32_t warp = 0; warp < NUM_WARPS; warp++) {
        for (int32_t r = 0; r < rank->context->num_ranks; r++)
            fill(args->reduction.dtype, rank->all[r], args->num_elements, row_seed(round, r, warp));
        const struct warp_row *row = &args->rows[warp];
        if (args->operation == ALL_GATHER ? check_gathered(rank, args, row)
                                          : check_reduced(rank, args, row))
            return 1;
    }
    const uint64_t *half = rank->slots + round % 2 * rank->num_half_slots;
    for (uint64_t i = 0; i < rank->num_half_slots; i++)
        CHECK(half[i] == 0, "slot %llu is not empty", (unsigned long long)i);
    return 0;
}

/* ------------------------------------------------------------------ tests */

static int exchange_rows(struct ranks_context *context)
{
    struct rank *rank;
    if (open_rank(&rank, context, 0))
        return 1;
    const uint64_t num_rounds = (uint64_t)tests_grid_size(NUM_ROUNDS, 60);
    for (uint64_t round = 0; round < num_rounds; round++) {
        struct wp_failure failure;
        const struct exchange_args args = draw_round(rank, round);
        if (launch(rank, &exchange_program, NUM_WARPS, &args, &failure))
            return 1;
        CHECK(failure.kind == WP_FAILURE_NONE, "failure %d", failure.kind);
        if (check_round(rank, round, &args))
            return 1;
        if (args.operation >= SUM_OF_SOME) /* who has sent nothing is not known to be so far */
            CHECK_OK(weft_comm_host_barrier(rank->comm));
    }
    CHECK_OK(weft_comm_host_barrier(rank->comm));
    return close_rank(rank);
}

TEST(rows_arrive_and_are_reduced)
{
    for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks++)
        assert_int_equal(ranks_run(RANKS_PROCESSES, num_ranks, exchange_rows, NULL), 0);
    assert_int_equal(ranks_run(RANKS_THREADS, 2, exchange_rows, NULL), 0);
}

/* Rank 1 tells of two rows, and sends the first one. */
static enum wp_status receive_told(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    for (uint64_t row = 0; row < 2; row++) {
        const struct wp_packet_told told = {args->word, SEQUENCE, SEQUENCE + 2 - row};
        args->statuses[row] =
            wp_packets_receive_told(warp, &args->packets, 1, args->rows[0].slot + row, &told,
                                    args->rows[0].dst, WP_PACKET_BYTES, NULL);
    }
    return WP_STATUS_OK;
}

static enum wp_status tell_and_send(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    wp_credit(warp, 0, args->word, SEQUENCE + 1);
    return send_row(warp, args);
}

static const struct weft__program receive_told_program = {"receive_told", receive_told};
static const struct weft__program tell_and_send_program = {"tell_and_send", tell_and_send};

TEST_ON_RANKS(a_word_tells_what_does_not_come, RANKS_PROCESSES, 2)
{
    struct rank *rank;
    struct wp_failure failure;
    if (open_rank(&rank, context, 0))
        return 1;
    const uint64_t last = 2 * rank->num_half_slots - 1;
    enum wp_status statuses[2] = {WP_STATUS_FAILED, WP_STATUS_FAILED};
    struct exchange_args args = {.packets = packets_of(rank, 0),
                                 .num_elements = WP_PACKET_BYTES,
                                 .word = (uint64_t *)(void *)rank->areas[0] + last,
                                 .statuses = statuses,
                                 .rows[0] = {.src = rank->src[0], .dst = rank->dst[0]}};
    memset(rank->src[0], 7, WP_PACKET_BYTES);
    if (launch(rank, context->rank == 0 ? &receive_told_program : &tell_and_send_program, 1, &args,
               &failure))
        return 1;
    CHECK(failure.kind == WP_FAILURE_NONE, "failure %d", failure.kind);
    CHECK(context->rank != 0 || (statuses[0] == WP_STATUS_OK && statuses[1] == WP_STATUS_ABSENT),
          "statuses %d and %d", (int)statuses[0], (int)statuses[1]);
    CHECK(context->rank != 0 || memcmp(rank->dst[0], "\7\7\7\7\7\7\7\7", WP_PACKET_BYTES) == 0,
          "the row is not there");
    CHECK_OK(weft_comm_host_barrier(rank->comm));
    return close_rank(rank);
}

/* ------------------------------------------------------------------ packets that do not come in
 * time */

static enum wp_status sum_what_comes(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    const struct wp_packet_rows from = {args->senders, args->rows[0].slot, SLOTS_PER_ROW};
    args->statuses[0] = wp_packets_sum(warp, &args->packets, &from, args->rows[0].dst, WEFT_FP32,
                                       args->num_elements, args->progress);
    return WP_STATUS_OK;
}

static enum wp_status clear_slots(struct wp_warp *warp, const void *arguments)
{
    const struct exchange_args *args = arguments;
    wp_packets_clear(warp, &args->packets, args->rows[0].slot, SLOTS_PER_ROW);
    return WP_STATUS_OK;
}

static const struct weft__program sum_what_comes_program = {"sum_what_comes", sum_what_comes};
static const struct weft__program clear_slots_program = {"clear_slots", clear_slots};

/* What a call ends with, and what the first element is then. */
static int check_sum(struct rank *rank, struct exchange_args *args, enum wp_status status,
                     float expected)
{
    struct wp_failure failure;
    float sum;
    if (launch(rank, &sum_what_comes_program, 1, args, &failure))
        return 1;
    memcpy(&sum, args->rows[0].dst, sizeof sum);
    CHECK(args->statuses[0] == status && failure.kind == WP_FAILURE_NONE, "status %d, failure %d",
          (int)args->statuses[0], failure.kind);
    CHECK(sum == expected, "%g, not %g", (double)sum, (double)expected);
    return 0;
}

/* Rank 0 sums rows of ranks 1 and 2, of which that of rank 2 comes when it has been missed: all
 * that is taken together is taken then. Of the next two rows one never comes, and the other is
 * cleared. */
TEST_ON_RANKS(a_row_that_comes_late_is_summed_with_those_that_have_come, RANKS_PROCESSES, 3)
{
    enum { SHORT_MS = 20, NUM_FLOATS = WP_PACKET_BYTES / sizeof(float) };
    struct rank *rank;
    struct wp_failure failure;
    struct wp_packet_progress progress = {0, 0};
    enum wp_status found;
    if (open_rank(&rank, context, 0))
        return 1;
    struct exchange_args args = {.packets = packets_of(rank, 0),
                                 .senders = 1u << 1 | 1u << 2,
                                 .num_elements = context->rank == 0 ? NUM_FLOATS : WP_PACKET_BYTES,
                                 .statuses = &found,
                                 .progress = &progress,
                                 .rows[0] = {.src = rank->src[0], .dst = rank->dst[0]}};
    args.packets.absent_after_ms = SHORT_MS;
    for (size_t i = 0; i < NUM_FLOATS; i++)
        ((float *)(void *)rank->src[0])[i] = (float)context->rank;
    args.rows[0].slot = context->rank == 0 ? 0 : (uint64_t)context->rank * SLOTS_PER_ROW;
    for (int32_t sender = 1; sender < 3; sender++) {
        if (context->rank == sender && launch(rank, &send_row_program, 1, &args, &failure))
            return 1;
        ranks_barrier(context);
        const int is_late = sender == 1;
        if (context->rank == 0 &&
            check_sum(rank, &args, is_late ? WP_STATUS_ABSENT : WP_STATUS_OK, is_late ? 0 : 3))
            return 1;
        CHECK(context->rank != 0 || progress.missing == (is_late ? 1u << 2 : 0u), "missing: %u",
              (unsigned)progress.missing);
        CHECK(context->rank != 0 || (rank->slots[SLOTS_PER_ROW] != 0) == is_late,
              "the slot of rank 1");
        progress.missing = 0;
        ranks_barrier(context);
    }
    if (context->rank == 1 && launch(rank, &send_row_program, 1, &args, &failure))
        return 1;
    ranks_barrier(context);
    args.rows[0].slot = SLOTS_PER_ROW;
    if (context->rank == 0 && launch(rank, &clear_slots_program, 1, &args, &failure))
        return 1;
    CHECK(context->rank != 0 || rank->slots[SLOTS_PER_ROW] == 0, "the slot is cleared");
    CHECK_OK(weft_comm_host_barrier(rank->comm));
    return close_rank(rank);
}

/* Two words that a slot cannot hold as they are, and a short packet. */
TEST_ON_RANKS(slots_hold_what_packets_h_says, RANKS_PROCESSES, 2)
{
    const uint64_t words[] = {WP_PACKET_KEY(0), WP_PACKET_KEY(0) ^ WP_PACKET_ESCAPE,
                              WP_PACKET_ESCAPE};
    const uint64_t last_bytes = 3;
    struct rank *rank;
    if (open_rank(&rank, context, 0))
        return 1;
    struct exchange_args args = {.packets = packets_of(rank, 0),
                                 .num_elements = 2 * WP_PACKET_BYTES + last_bytes};
    args.rows[0].src = memcpy(rank->src[0], words, sizeof words);
    struct wp_failure failure;
    if (context->rank == 0 && launch(rank, &send_row_program, 1, &args, &failure))
        return 1;
    ranks_barrier(context);
    if (context->rank == 1) {
        const uint64_t *escapes = rank->slots + 2 * rank->num_half_slots;
        CHECK(rank->slots[0] == WP_PACKET_ESCAPE, "word that would be empty");
        CHECK(escapes[0] == 2 * SEQUENCE + WP_ESCAPE_EMPTY, "its escape word");
        CHECK(rank->slots[1] == WP_PACKET_ESCAPE, "word that would be an escape");
        CHECK(escapes[1] == 2 * SEQUENCE + WP_ESCAPE_ESCAPE, "its escape word");
        CHECK(rank->slots[2] == (0xffffff ^ WP_PACKET_KEY(0)), "short packet");
        CHECK(escapes[2] == 0 && rank->slots[3] == 0, "nothing more");
    }
    return close_rank(rank);
}

static int check_timeout(struct rank *rank, uint64_t round, uint64_t expected)
{
    struct wp_failure failure;
    struct exchange_args args = {.packets = packets_of(rank, round)};
    args.rows[0].dst = rank->dst[0];
    if (launch(rank, &receive_one_program, 1, &args, &failure))
        return 1;
    CHECK(failure.kind == WP_FAILURE_TIMEOUT, "failure %d", failure.kind);
    CHECK(failure.site.phase == WP_PHASE_DATA && failure.site.rank == 1 &&
              failure.site.sequence == SEQUENCE + round && failure.site.exchange == EXCHANGE,
          "phase %d, rank %d", failure.site.phase, failure.site.rank);
    CHECK(failure.expected == expected, "expected %llu", (unsigned long long)failure.expected);
    return 0;
}

/* A packet, then what an escape stands for. */
TEST_ON_RANKS(waits_for_packets_end, RANKS_PROCESSES, 2)
{
    struct rank *rank;
    if (open_rank(&rank, context, 100))
        return 1;
    if (context->rank == 0) {
        if (check_timeout(rank, 0, 1))
            return 1;
        rank->slots[rank->num_half_slots] = WP_PACKET_ESCAPE;
        if (check_timeout(rank, 1, 2 * (SEQUENCE + 1)))
            return 1;
    }
    ranks_barrier(context);
    return close_rank(rank);
}
