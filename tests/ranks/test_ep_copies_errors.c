/* SPDX-License-Identifier: MIT */
/* weft_ep_fetch_copies and weft_ep_reduce_copies: what they refuse, and ranks that fail. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"

enum { NUM_REPLICAS = 2, ROW_BYTES = 20004, STAGING_BYTES = 3 << 14 };

struct seat {
    weft_comm *comm;
    weft_stream *stream;
    char *rows; /* [NUM_REPLICAS][ROW_BYTES], in the heap */
    void *staging;
};

static int open_seat(struct ranks_context *context, const weft_comm_config *config,
                     struct seat *seat)
{
    void *rows;
    CHECK_OK(ranks_comm_create(context, config, &seat->comm));
    CHECK_OK(weft_stream_create(seat->comm, &seat->stream));
    CHECK_OK(weft_heap_alloc(seat->comm, NUM_REPLICAS * ROW_BYTES, &rows));
    CHECK_OK(weft_heap_alloc(seat->comm, STAGING_BYTES, &seat->staging));
    seat->rows = rows;
    return 0;
}

/* The heap goes with the communicator: freeing from it would wait for ranks that have failed. */
static int close_seat(void *self)
{
    struct seat *seat = self;
    CHECK_OK(weft_stream_destroy(seat->stream));
    CHECK_OK(weft_comm_destroy(seat->comm));
    return 0;
}

/* ---------------------------------------------------------------- refusals */

TEST_ON_RANKS(arguments, RANKS_THREADS, 2)
{
    struct seat seat;
    if (open_seat(context, NULL, &seat))
        return 1;
    char outside;
    char *const rows = seat.rows;
    const int32_t base[] = {0, -1, 1, -1}, good[] = {0, 1, 1, 0}, orphan[] = {0, 1, 1, 2},
                  moved[] = {1, 0, 1, 0}, beyond[] = {0, -2, 1, 0};
    struct refusal {
        const int32_t *experts;
        void *src, *dst;
        uint64_t row_bytes;
        weft_ep_copies_args reduced; /* what reduce is given besides; dtype 0: fetch is called */
        const char *text;
    };
    const weft_ep_copies_args none = {.size = 0};
#define REDUCED(...) ((weft_ep_copies_args){__VA_ARGS__})
    const struct refusal refusals[] = {
        {good, NULL, rows, 4, none, NULL},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16), NULL},
        {orphan, NULL, rows, 4, none, "experts[3] is 2, which no replica has in base and experts"},
        {moved, NULL, rows, 4, none, "experts[1] is 0, which no replica has in base and experts"},
        {beyond, NULL, rows, 4, none, "experts[1] is -2, allowed are -1.."},
        {NULL, NULL, rows, 4, none, "experts is NULL"},
        {good, rows, rows, 4, none, "planes[0]: src, src_stride_bytes"},
        {good, NULL, &outside, 4, none, "planes[0].dst is"},
        {good, NULL, rows, 0, none, "planes[0].row_bytes is 0, allowed are 1.."},
        {good, NULL, rows, 4, REDUCED(.staging_bytes = 16), "staging_bytes is 16, must be 0"},
        {good, NULL, rows, 4, REDUCED(.dtype = WEFT_INT32), "dtype is"},
        {good, NULL, rows, 6,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16),
         "planes[0].row_bytes is 6, must be a multiple of 4"},
        {good, NULL, rows + 2, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16),
         "must be aligned to 4 bytes"},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 15),
         "staging_bytes is 15, must be at least 16"},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = (char *)seat.staging + 8, .staging_bytes = 16),
         "staging is"},
        {good, NULL, rows, 4, REDUCED(.dtype = WEFT_FP32, .staging = rows, .staging_bytes = 16),
         "overlap"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *refusal = &refusals[i];
        weft_plane plane = WEFT_INIT(weft_plane);
        weft_ep_copies_args args = refusal->reduced;
        plane.src = refusal->src;
        plane.dst = refusal->dst;
        plane.row_bytes = refusal->row_bytes;
        args.size = sizeof args;
        args.base = base;
        args.experts = refusal->experts;
        args.num_replicas = 4;
        args.planes = &plane;
        args.num_planes = 1;
        const weft_result result = args.dtype != WEFT_DTYPE_NONE
                                       ? weft_ep_reduce_copies(seat.comm, &args, seat.stream)
                                       : weft_ep_fetch_copies(seat.comm, &args, seat.stream);
        if (refusal->text == NULL)
            CHECK_OK(result);
        else
            CHECK_ERROR(result, WEFT_ERROR_INVALID_ARGUMENT, refusal->text);
    }
#undef REDUCED
    CHECK_OK(weft_stream_synchronize(seat.stream));
    return close_seat(&seat);
}

/* ---------------------------------------------------------------- failures */

static int victim_open(struct victim_seat *victim)
{
    const weft_comm_config config = victim_config(victim->context);
    struct seat *seat = victim->self;
    if (open_seat(victim->context, &config, seat))
        return 1;
    victim->comm = seat->comm;
    victim->stream = seat->stream;
    return 0;
}

/* Rank r has two replicas; expert 0 has three copies. */
static const int32_t base[] = {0, -1, 1, -1, 2, -1, 3, -1};
static const int32_t experts[] = {0, 2, 1, 0, 2, 0, 3, 0};

static weft_result issue(struct seat *seat,
                         weft_result (*function)(weft_comm *, const weft_ep_copies_args *,
                                                 weft_stream *),
                         weft_ep_copies_args args)
{
    weft_plane plane = WEFT_INIT(weft_plane);
    plane.dst = seat->rows;
    plane.row_bytes = ROW_BYTES;
    args.size = sizeof args;
    args.base = base;
    args.experts = experts;
    args.num_replicas = sizeof base / sizeof *base;
    args.num_planes = 1;
    args.planes = &plane;
    return function(seat->comm, &args, seat->stream);
}

static weft_result issue_fetch(void *self)
{
    return issue(self, weft_ep_fetch_copies, (weft_ep_copies_args){.size = 0});
}

static weft_result issue_reduce(void *self)
{
    struct seat *seat = self;
    return issue(seat, weft_ep_reduce_copies,
                 (weft_ep_copies_args){
                     .dtype = WEFT_FP32, .staging = seat->staging, .staging_bytes = STAGING_BYTES});
}

static int check_failed(void *self, weft_result expected, const char *text)
{
    CHECK_ERROR(issue_fetch(self), expected, text);
    return 0;
}

static const struct victim_subject fetching = {sizeof(struct seat), victim_open, issue_fetch,
                                               check_failed,        close_seat,  NULL};
static const struct victim_subject reducing = {sizeof(struct seat), victim_open, issue_reduce,
                                               check_failed,        close_seat,  NULL};

static void strike(struct victim_plan plan)
{
    plan.subject = &fetching;
    plan.name = plan.named = "weft_ep_fetch_copies";
    victim_run_sized(&plan, sizeof plan, 4);
    plan.subject = &reducing;
    plan.name = plan.named = "weft_ep_reduce_copies";
    victim_run_sized(&plan, sizeof plan, 4);
}

TEST(failed_ranks)
{
    strike((struct victim_plan){.fault = VICTIM_IS_KILLED, .victim = 2});
    strike((struct victim_plan){.fault = VICTIM_STAYS_AWAY, .victim = 3});
    for (uint64_t seed = 0; seed < 4; seed++)
        strike((struct victim_plan){.fault = VICTIM_IS_KILLED,
                                    .moment = VICTIM_AT_RANDOM,
                                    .victim = (int32_t)seed % 4,
                                    .seed = seed});
}

TEST_OVER(failed_ranks_over_nodes, "tcp")
{
    strike((struct victim_plan){
        .victim = 1, .moment = VICTIM_AT_RANDOM, .num_nodes = 2, .engine = engine});
}
