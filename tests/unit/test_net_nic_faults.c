/* SPDX-License-Identifier: MIT */
/* Troubles of the NIC to which a rank's programs post (WEFT_NET_INITIATOR), for each operation:
 * every rank ends in time, with an error that names a rank, and the NIC's own reason where it has
 * one. Low latency with masks goes on. What ranks themselves suffer, tests/fault shows, with the
 * model, too. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "net/nic/adapter.h"
#include "oracle/coll_call.h"
#include "oracle/ep_check.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"
#include "oracle/ll_seat.h"
#include "workload/try.h"

/* Each rank is alone on its node, so that NICs make all adds. */
enum { NUM_RANKS = 3, VICTIM = 1, TIMEOUT_MS = 1500, LAST_S = 30, ROUNDS_IN_TROUBLE = 20 };
enum { SMALL_DEPTH = 8, ROW_BYTES = 3000, COLL_ELEMENTS = 3000, STAGING_BYTES = 1 << 20 };

/* ---------------------------------------------------------------- the linker puts this in the
 * way */

static struct weft__nic_trouble trouble;
static uint32_t depth;

weft_result __real_weft__nic_adapter_create(const struct weft__nic_adapter_config *config,
                                            struct weft__nic_adapter **adapter);
weft_result __wrap_weft__nic_adapter_create(const struct weft__nic_adapter_config *config,
                                            struct weft__nic_adapter **adapter);
weft_result __wrap_weft__nic_adapter_create(const struct weft__nic_adapter_config *config,
                                            struct weft__nic_adapter **adapter)
{
    struct weft__nic_adapter_config changed = *config;
    changed.trouble = trouble;
    changed.depth = depth;
    return __real_weft__nic_adapter_create(&changed, adapter);
}

/* ---------------------------------------------------------------- operations */

struct area {
    uint64_t num_rows, num_tickets, ticket;
    unsigned char row[ROW_BYTES], source[ROW_BYTES], fetched[ROW_BYTES];
};

struct seat {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    struct area *area;
    weft_coll *coll;
    struct ep_rank rank; /* of collectives and expert parallelism */
    struct coll_call call;
    struct ep_buffers buffers;
    struct ll_seat ll;
};

struct operation {
    const char *name;
    int (*open)(struct seat *seat, const weft_comm_config *config);
    weft_result (*issue)(struct seat *seat, int32_t round);
    int (*close)(struct seat *seat);
    const char *stuck;       /* the victim is told so, if its NIC does nothing more */
    uint64_t num_open_units; /* more than `open` posts to a queue */
};

static int open_area(struct seat *seat, const weft_comm_config *config)
{
    void *memory;
    CHECK_OK(ranks_comm_create(seat->context, config, &seat->comm));
    CHECK_OK(weft_stream_create(seat->comm, &seat->stream));
    CHECK_OK(weft_heap_alloc(seat->comm, sizeof *seat->area, &memory));
    memset(memory, 0, sizeof *seat->area);
    seat->area = memory;
    CHECK_OK(weft_comm_host_barrier(seat->comm));
    return 0;
}

static int close_area(struct seat *seat)
{
    CHECK_OK(weft_stream_destroy(seat->stream));
    CHECK_OK(weft_heap_free(seat->comm, seat->area));
    CHECK_OK(weft_comm_destroy(seat->comm));
    return 0;
}

static int32_t next_rank(const struct seat *seat)
{
    return (seat->context->rank + 1) % NUM_RANKS;
}

static weft_result meet(struct seat *seat, int32_t round)
{
    (void)round;
    return weft_comm_barrier(seat->comm, seat->stream);
}

static weft_result put(struct seat *seat, int32_t round)
{
    struct area *area = seat->area;
    (void)round;
    TRY(weft_rma_put(seat->comm,
                     WEFT_ARGS(weft_rma_args, .dst = area->row, .src = area->source,
                               .bytes = ROW_BYTES, .rank = next_rank(seat)),
                     seat->stream));
    return weft_rma_quiet(seat->comm, seat->stream);
}

static weft_result put_signal(struct seat *seat, int32_t round)
{
    struct area *area = seat->area;
    (void)round;
    TRY(weft_rma_put_signal(seat->comm,
                            WEFT_ARGS(weft_rma_args, .dst = area->row, .src = area->source,
                                      .bytes = ROW_BYTES, .word = &area->num_rows, .value = 1,
                                      .rank = next_rank(seat)),
                            seat->stream));
    return weft_rma_quiet(seat->comm, seat->stream);
}

static weft_result get(struct seat *seat, int32_t round)
{
    struct area *area = seat->area;
    (void)round;
    return weft_rma_get(seat->comm,
                        WEFT_ARGS(weft_rma_args, .dst = area->fetched, .src = area->source,
                                  .bytes = ROW_BYTES, .rank = next_rank(seat)),
                        seat->stream);
}

static weft_result fetch_add(struct seat *seat, int32_t round)
{
    struct area *area = seat->area;
    (void)round;
    return weft_rma_fetch_add(seat->comm,
                              WEFT_ARGS(weft_rma_args, .before = &area->ticket,
                                        .word = &area->num_tickets, .value = 1,
                                        .rank = next_rank(seat)),
                              seat->stream);
}

static int open_coll(struct seat *seat, const weft_comm_config *config)
{
    struct coll_case spec =
        coll_case_random(5, NUM_RANKS, COLL_ALL_REDUCE, WEFT_FP32, WEFT_SUM, COLL_ELEMENTS);
    spec.nodes = (struct coll_nodes){NUM_RANKS, 1, 0, COLL_NODE_AFTER_NODE};
    if (ep_rank_open_with(&seat->rank, seat->context, config, STAGING_BYTES))
        return 1;
    seat->comm = seat->rank.comm;
    seat->stream = seat->rank.stream;
    CHECK_OK(ranks_coll_create(seat->comm, &seat->coll));
    return coll_call_create(&seat->rank, &spec, &seat->call);
}

static weft_result all_reduce(struct seat *seat, int32_t round)
{
    (void)round;
    return coll_call_issue(&seat->call, seat->context->rank, seat->coll, seat->stream);
}

static int close_coll(struct seat *seat)
{
    if (coll_call_destroy(&seat->rank, &seat->call))
        return 1;
    CHECK_OK(weft_coll_destroy(seat->coll));
    return ep_rank_close(&seat->rank);
}

enum { EP_HIDDEN = 64 };

struct plan {
    int32_t operation;
    struct weft__nic_trouble trouble; /* of the victim */
    const char *told;                 /* NULL: nobody fails */
    struct ep_world *world;
};

static int open_ep(struct seat *seat, const weft_comm_config *config)
{
    const struct plan *plan = seat->context->argument;
    if (ep_rank_open_with(&seat->rank, seat->context, config,
                          ep_buffers_arena_bytes(plan->world, EP_HIDDEN)) ||
        ep_rank_enter(&seat->rank, plan->world) || ep_route(&seat->rank) ||
        ep_buffers_create(&seat->rank, EP_HIDDEN, &seat->buffers))
        return 1;
    seat->comm = seat->rank.comm;
    seat->stream = seat->rank.stream;
    CHECK_OK(ep_operation_run(&seat->rank, &seat->buffers, EP_DISPATCH));
    return 0;
}

static weft_result exchange_rows(struct seat *seat, int32_t round)
{
    (void)round;
    TRY(ep_operation_issue(&seat->rank, &seat->buffers, EP_DISPATCH));
    return ep_operation_issue(&seat->rank, &seat->buffers, EP_COMBINE);
}

static int close_ep(struct seat *seat)
{
    if (ep_buffers_destroy(&seat->rank, &seat->buffers))
        return 1;
    CHECK_OK(weft_ep_handle_destroy(seat->rank.handle));
    CHECK_OK(weft_ep_destroy(seat->rank.ep));
    return ep_rank_close(&seat->rank);
}

static struct ll_case problem = {LL_SIZES(NUM_RANKS, 8, 3, 6, 512), LL_TYPES(BF16, BF16, INT32),
                                 LL_GRID(2, 2), LL_EXPERTS, .node_ranks = 1};

static int open_ll(struct seat *seat, const weft_comm_config *config)
{
    if (ll_seat_open(&seat->ll, seat->context, &problem, config) || ll_fill_step(&seat->ll, 0))
        return 1;
    seat->comm = seat->ll.comm;
    seat->stream = seat->ll.stream;
    return 0;
}

static weft_result decode(struct seat *seat, int32_t round)
{
    (void)round;
    TRY(ll_issue_dispatch(&seat->ll, 0, WEFT_LL_SEND_AND_RECEIVE));
    TRY(weft_stream_synchronize(seat->stream));
    return ll_issue_combine(&seat->ll, 0, WEFT_LL_SEND_AND_RECEIVE, 0);
}

static int close_ll(struct seat *seat)
{
    return ll_seat_close(&seat->ll);
}

#define BY_RANK_2 "rank 1 waited for rank 2 to "
static const struct operation operations[] = {
    {"barrier", open_area, meet, close_area, "rank ", 0},
    {"put and quiet", open_area, put, close_area, BY_RANK_2, 0},
    {"put with signal", open_area, put_signal, close_area, BY_RANK_2, 0},
    {"get", open_area, get, close_area, BY_RANK_2, 0},
    {"fetch-add", open_area, fetch_add, close_area, BY_RANK_2, 0},
    {"all-reduce", open_coll, all_reduce, close_coll, "rank ", 0},
    {"low latency", open_ll, decode, close_ll, "rank ", 0},
    {"dispatch and combine", open_ep, exchange_rows, close_ep, "rank ", 40},
};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

/* ---------------------------------------------------------------- runs */

static const char as_stuck[] = "that of the operation";

static weft_comm_config prepare(const struct ranks_context *context,
                                const struct weft__nic_trouble *of_victim)
{
    static const struct weft__nic_trouble none;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    setenv("WEFT_NET_INITIATOR", "model", 1);
    trouble = context->rank == VICTIM ? *of_victim : none;
    depth = SMALL_DEPTH;
    config.num_nodes = NUM_RANKS;
    config.timeout_ms = tests_deadline_ms(TIMEOUT_MS);
    return config;
}

/* Until it fails, or long after it should have: a rank may be told while it does nothing. */
static weft_result run_until_failure(struct seat *seat, const struct operation *operation,
                                     int32_t num_rounds)
{
    const double begin_s = clock_s();
    for (int32_t round = 0; round < num_rounds && clock_s() < begin_s + LAST_S; round++) {
        TRY(operation->issue(seat, round));
        TRY(weft_stream_synchronize(seat->stream));
        TRY(weft_comm_status(seat->comm, NULL));
    }
    return WEFT_OK;
}

static int suffer(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    const struct operation *operation = &operations[plan->operation];
    const weft_comm_config config = prepare(context, &plan->trouble);
    const char *text = plan->told;
    struct seat seat = {.context = context};
    if (text == as_stuck) /* ranks may wait in a circle: then any may be named */
        text = context->rank == VICTIM ? operation->stuck : "rank ";
    else if (text != NULL && context->rank != VICTIM)
        text = "rank 1";
    if (operation->open(&seat, &config))
        return 1;
    const weft_result result =
        run_until_failure(&seat, operation, text != NULL ? INT32_MAX : ROUNDS_IN_TROUBLE);
    CHECK((result == WEFT_OK) == (text == NULL), "%s gave \"%s\"", operation->name,
          result == WEFT_OK ? "success" : weft_last_error());
    CHECK(text == NULL || strstr(weft_last_error(), text) != NULL, "\"%s\" lacks \"%s\"",
          weft_last_error(), text);
    if (result == WEFT_OK)
        CHECK_OK(weft_comm_host_barrier(seat.comm)); /* who leaves answers no more */
    (void)weft_stream_synchronize(seat.stream);
    return operation->close(&seat);
}

/* Each operation, or every `step`-th from the first one on. */
static void run(struct plan plan, int32_t first, int32_t step)
{
    const struct ep_case spec = {.seed = 80,
                                 .num_ranks = NUM_RANKS,
                                 .num_nodes = NUM_RANKS,
                                 .max_tokens = 16,
                                 .num_topk = 3,
                                 .num_experts = 6,
                                 .num_blocks = 1,
                                 .num_warps = 2,
                                 .num_staging_slots = 2,
                                 .staging_slot_bytes = 1 << 14};
    plan.world = ep_world_create(&spec);
    for (plan.operation = first; plan.operation < NUM_OPERATIONS; plan.operation += step) {
        plan.trouble.first =
            operations[plan.operation].num_open_units + (uint64_t)plan.operation % 3;
        if (ranks_run(RANKS_PROCESSES, NUM_RANKS, suffer, &plan) != 0)
            fail_msg("%s, trouble %d, syndrome 0x%02x, from unit %d on",
                     operations[plan.operation].name, plan.trouble.kind, plan.trouble.syndrome,
                     (int)plan.trouble.first);
    }
    ep_world_destroy(plan.world);
}

/* ---------------------------------------------------------------- syndromes */

struct failure {
    enum weft__nic_syndrome syndrome;
    const char *told;
};

static const struct failure failures[] = {
    {WEFT__NIC_LOCAL_LENGTH, "length error at the initiator (0x01, vendor 0x81), QP 0x10"},
    {WEFT__NIC_LOCAL_OPERATION, "malformed request (0x02, vendor 0x81), QP 0x10"},
    {WEFT__NIC_LOCAL_PROTECTION, "local memory that is not registered for it (0x04"},
    {WEFT__NIC_FLUSHED, "flushed after an earlier error (0x05"},
    {WEFT__NIC_MEMORY_WINDOW, "memory window error (0x06"},
    {WEFT__NIC_BAD_RESPONSE, "bad response (0x10"},
    {WEFT__NIC_LOCAL_ACCESS, "access error at the initiator (0x11"},
    {WEFT__NIC_REMOTE_REQUEST, "invalid request at the target (0x12"},
    {WEFT__NIC_REMOTE_ACCESS, "remote memory that is not registered for it (0x13"},
    {WEFT__NIC_REMOTE_OPERATION, "the target failed (0x14"},
    {WEFT__NIC_RETRIES,
     "cannot be reached: transport retries exceeded (0x15, vendor 0x81), QP 0x10"},
    {WEFT__NIC_RECEIVER_RETRIES, "the target has no receive: retries exceeded (0x16"},
    {WEFT__NIC_REMOTE_ABORTED, "the target aborted (0x22"},
};

enum { NUM_FAILURES = sizeof failures / sizeof *failures };

TEST(a_completion_with_an_error_is_told_in_words)
{
    const int32_t step = tests_grid_size(1, 4);
    for (int32_t i = 0; i < NUM_FAILURES; i++)
        run((struct plan){.trouble = {WEFT__NIC_TROUBLE_FAILS, failures[i].syndrome, 0},
                          .told = failures[i].told},
            i % step, step);
}

/* ---------------------------------------------------------------- completions */

TEST(late_completions_are_awaited)
{
    run((struct plan){.trouble = {.kind = WEFT__NIC_TROUBLE_IS_LATE}}, 0, 1);
}

/* The queue is full for ever, or what it was given is never done. */
TEST(completions_that_do_not_come_end_by_the_deadline)
{
    run((struct plan){.trouble = {.kind = WEFT__NIC_TROUBLE_IS_SILENT}, .told = as_stuck}, 0,
        tests_grid_size(1, 2));
}

TEST(a_nic_that_stands_still_ends_by_the_deadline)
{
    const int32_t step = tests_grid_size(1, 2);
    run((struct plan){.trouble = {.kind = WEFT__NIC_TROUBLE_STANDS_STILL}, .told = as_stuck},
        step - 1, step);
}

/* ---------------------------------------------------------------- masks */

static void note_loss(struct ranks_context *context, int32_t round)
{
    _Atomic int32_t *last_loss = context->shared;
    for (int32_t seen = atomic_load(last_loss); seen < round;)
        if (atomic_compare_exchange_weak(last_loss, &seen, round))
            break;
}

/* The put must not be lost, and its queue was given up, or its rank. */
static int check_put_fails(struct seat *seat)
{
    struct area *area = seat->area;
    weft_result result = weft_rma_put(seat->comm,
                                      WEFT_ARGS(weft_rma_args, .dst = area->row,
                                                .src = area->source, .bytes = ROW_BYTES, .rank = 0),
                                      seat->stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(seat->stream);
    CHECK(result != WEFT_OK && strstr(weft_last_error(), "rank 0") != NULL, "%s: %s",
          weft_result_string(result), weft_last_error());
    return 0;
}

/* Nobody fails: the others miss the victim, and it misses them, in the end. */
static int go_on(struct ranks_context *context)
{
    const struct weft__nic_trouble *of_victim = context->argument;
    weft_comm_config config = prepare(context, of_victim);
    struct seat seat = {.context = context};
    int32_t missing[NUM_RANKS] = {0};
    void *memory;
    const double begin_s = clock_s();
    config.timeout_ms = LAST_S * 1000;
    problem.on_missing = WEFT_LL_MASK;
    problem.missing_ms = tests_deadline_ms(1000);
    if (open_ll(&seat, &config))
        return 1;
    CHECK_OK(weft_heap_alloc(seat.comm, sizeof *seat.area, &memory));
    seat.area = memory;
    const int32_t awaited = context->rank == VICTIM ? 0 : VICTIM;
    const _Atomic int32_t *last_loss = context->shared;
    for (int32_t round = 0; !missing[awaited] || round < atomic_load(last_loss) + 4; round++) {
        const int had_lost = missing[awaited] != 0;
        CHECK(clock_s() < begin_s + LAST_S, "after %d rounds nobody is missing", round);
        CHECK_OK(decode(&seat, round));
        CHECK_OK(weft_stream_synchronize(seat.stream));
        CHECK_OK(weft_memory_copy(seat.comm, missing, seat.ll.steps[0].missing[1], sizeof missing));
        if (missing[awaited] && !had_lost && context->rank != VICTIM)
            note_loss(context, round);
    }
    for (int32_t rank = 0; rank < NUM_RANKS && context->rank != VICTIM; rank++)
        CHECK(!missing[rank] == (rank != VICTIM), "rank %d is missing: %d", rank, missing[rank]);
    CHECK_OK(weft_comm_status(seat.comm, NULL));
    ranks_barrier(context); /* what fails now fails all */
    if (context->rank == VICTIM && check_put_fails(&seat))
        return 1;
    ranks_barrier(context);
    weft_comm_abort(seat.comm);
    (void)weft_stream_synchronize(seat.stream);
    return close_ll(&seat);
}

TEST(low_latency_with_masks_goes_on)
{
    static const struct weft__nic_trouble troubles[] = {
        {.kind = WEFT__NIC_TROUBLE_STANDS_STILL},
        {.kind = WEFT__NIC_TROUBLE_IS_SILENT},
        {WEFT__NIC_TROUBLE_FAILS, WEFT__NIC_RETRIES, 10}};
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                              .num_ranks = NUM_RANKS,
                                              RANKS_ARGUMENT(&troubles[i]),
                                              .shared_bytes = sizeof(int32_t)};
        if (ranks_run_with(&options, go_on) != 0)
            fail_msg("trouble %d", troubles[i].kind);
    }
}
