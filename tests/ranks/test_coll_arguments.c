/* SPDX-License-Identifier: MIT */
/* Wrong arguments of the collectives: the message names the argument, its value and what is
 * allowed, and nothing has been sent, so that the right call afterwards works. fuzz_api_arguments
 * tries more, on one rank. */

#include "harness/cmocka.h"
#include "oracle/coll_call.h"
#include "workload/collective.h"

enum { NUM_RANKS = 3, COUNT = 20, ROW_BYTES = COUNT * 4 };

/* What the calls of this file are made with. */
struct seat {
    struct ep_rank rank;
    weft_coll *coll;
    struct ep_array send, recv; /* NUM_RANKS rows each */
};

static int seat_open(struct seat *seat, struct ranks_context *context,
                     const weft_coll_config *config)
{
    if (ep_rank_open(&seat->rank, context, 0, 1 << 20) ||
        ep_array_alloc(&seat->rank, &seat->send, EP_OWN, NUM_RANKS * ROW_BYTES, 0) ||
        ep_array_alloc(&seat->rank, &seat->recv, EP_HEAP, NUM_RANKS * ROW_BYTES, 0))
        return 1;
    CHECK_OK(weft_coll_create(seat->rank.comm, config, &seat->coll));
    return 0;
}

static int seat_close(struct seat *seat)
{
    CHECK_OK(weft_stream_synchronize(seat->rank.stream));
    CHECK_OK(weft_comm_host_barrier(seat->rank.comm));
    CHECK_OK(weft_coll_destroy(seat->coll));
    return ep_array_check_and_free(&seat->rank, &seat->send, "send") ||
           ep_array_check_and_free(&seat->rank, &seat->recv, "recv") || ep_rank_close(&seat->rank);
}

/* A call with arguments that the checks then change one by one. */
struct arguments {
    enum coll_operation operation;
    weft_coll *coll;
    weft_coll_args args;
    weft_stream *stream;
};

static struct arguments valid_arguments(const struct seat *seat, enum coll_operation operation)
{
    return (struct arguments){operation,
                              seat->coll,
                              {.size = sizeof(weft_coll_args),
                               .send = seat->send.data,
                               .recv = seat->recv.data,
                               .count = COUNT,
                               .dtype = WEFT_FP32,
                               .root = 1},
                              seat->rank.stream};
}

static weft_result call(const struct arguments *a)
{
    return collective_call(coll_collective(a->operation), a->coll, &a->args, a->stream);
}

/* The call must be refused with a message that has all three texts. */
static int check_refused(const struct arguments *a, const char *argument, const char *value,
                         const char *allowed)
{
    const weft_result result = call(a);
    const char *message = weft_last_error();
    CHECK(result == WEFT_ERROR_INVALID_ARGUMENT, "%s with wrong %s gave \"%s\"",
          coll_operation_name(a->operation), argument, weft_result_string(result));
    CHECK(strstr(message, argument) != NULL && strstr(message, value) != NULL &&
              strstr(message, allowed) != NULL,
          "%s: \"%s\" lacks \"%s\", \"%s\" or \"%s\"", coll_operation_name(a->operation), message,
          argument, value, allowed);
    return 0;
}

#define REFUSED(member, wrong, argument, value, allowed)                                           \
    (a = valid_arguments(seat, operation), a.member = (wrong),                                     \
     check_refused(&a, argument, value, allowed))
/* The same of a premultiplied sum. */
#define REFUSED_PREMUL(member, wrong, argument, value, allowed)                                    \
    (a = valid_arguments(seat, operation), a.args.op = WEFT_PREMUL_SUM, a.member = (wrong),        \
     check_refused(&a, argument, value, allowed))

/* Averages of integers are refused, since their sums may wrap. */
static int check_averages(struct seat *seat, enum coll_operation operation)
{
    static const weft_dtype integers[] = {WEFT_UINT8, WEFT_INT32, WEFT_INT64};
    static const char *const names[] = {"WEFT_UINT8", "WEFT_INT32", "WEFT_INT64"};
    for (int i = 0; i < 3; i++) {
        struct arguments a = valid_arguments(seat, operation);
        a.args.op = WEFT_AVG;
        a.args.dtype = integers[i];
        if (check_refused(&a, "dtype of WEFT_AVG is", names[i], "wrap"))
            return 1;
    }
    return 0;
}

static int check_factors(struct seat *seat, enum coll_operation operation)
{
    struct arguments a;
    const float *factor = (const float *)seat->send.data;
    const int has_output = operation != COLL_REDUCE || seat->rank.context->rank == 1;
    if (REFUSED(args.factor, 0.5f, "factor is 0.5", "", "0") ||
        REFUSED(args.factor_at, factor, "factor_at is", "", "0") ||
        REFUSED_PREMUL(args.dtype, WEFT_INT32, "dtype of WEFT_PREMUL_SUM is", "WEFT_INT32 (1)",
                       "WEFT_BF16 (3), WEFT_FP16 (4), WEFT_FP32 (5)") ||
        REFUSED_PREMUL(args.dtype, WEFT_FP64, "dtype of WEFT_PREMUL_SUM is", "WEFT_FP64 (6)", "") ||
        REFUSED_PREMUL(args.factor_at, (const float *)((const char *)factor + 2), "factor_at is",
                       "", "aligned to 4 bytes") ||
        (has_output && REFUSED_PREMUL(args.factor_at, (const float *)seat->recv.data, "factor_at",
                                      "recv", "overlap")))
        return 1;
    a = valid_arguments(seat, operation);
    a.args.op = WEFT_PREMUL_SUM;
    a.args.factor = 1;
    a.args.factor_at = factor;
    return check_refused(&a, "factor is 1,", "", "0");
}

static int check_operation(struct seat *seat, enum coll_operation operation)
{
    struct arguments a;
    const int is_root = seat->rank.context->rank == 1;
    const int needs_send = is_root || (operation != COLL_BROADCAST && operation != COLL_SCATTER);
    const int needs_recv = is_root || (operation != COLL_REDUCE && operation != COLL_GATHER);
    if (REFUSED(coll, NULL, "coll", "NULL", "") || REFUSED(stream, NULL, "stream", "NULL", "") ||
        REFUSED(args.dtype, (weft_dtype)-1, "dtype", "-1", "allowed are WEFT_INT32 (1), ") ||
        REFUSED(args.dtype, WEFT_INT8, "dtype", "WEFT_INT8 (9)", "WEFT_FP8_E4M3 (8)") ||
        REFUSED(args.dtype, (weft_dtype)10, "dtype", "is 10", "WEFT_FP8_E4M3 (8)") ||
        REFUSED(args.dtype, WEFT_DTYPE_NONE, "dtype", "WEFT_DTYPE_NONE (0)", "WEFT_INT32 (1)") ||
        REFUSED(args.count, -1, "count", "-1", "0..") ||
        REFUSED(args.count, INT64_MAX / 2 + 1, "count", "4611686018427387904", "0.."))
        return 1;
    if ((needs_send && REFUSED(args.send, NULL, "send", "NULL", "")) ||
        (needs_recv && REFUSED(args.recv, NULL, "recv", "NULL", "")) ||
        (needs_send && needs_recv &&
         REFUSED(args.send, (char *)seat->recv.data + 4, "send", "overlap", "")))
        return 1;
    if (collective_reduces(coll_collective(operation)) && check_factors(seat, operation))
        return 1;
    if (collective_reduces(coll_collective(operation)) &&
        (REFUSED(args.op, (weft_reduce_op)-1, "op is", "-1", "allowed are WEFT_SUM (0), ") ||
         REFUSED(args.op, (weft_reduce_op)6, "op is", "6", "WEFT_AVG (4), WEFT_PREMUL_SUM (5)")))
        return 1;
    if (collective_reduces(coll_collective(operation)) && check_averages(seat, operation))
        return 1;
    if (collective_has_root(coll_collective(operation)) &&
        (REFUSED(args.root, -1, "root", "-1", "0..2") ||
         REFUSED(args.root, NUM_RANKS, "root", "3", "0..2")))
        return 1;
    return 0;
}

TEST_ON_RANKS(operations, RANKS_THREADS, NUM_RANKS)
{
    struct seat seat;
    if (seat_open(&seat, context, NULL))
        return 1;
    for (int operation = 0; operation < COLL_ALL_TO_ALL_V; operation++) {
        const struct arguments a = valid_arguments(&seat, (enum coll_operation)operation);
        if (check_operation(&seat, (enum coll_operation)operation))
            return 1;
        CHECK_OK(call(&a));
    }
    return seat_close(&seat);
}

/* ---------------------------------------------------------------- all_to_all_v */

struct v_arguments {
    weft_coll_all_to_all_v_args args;
    int64_t send_counts[NUM_RANKS], send_offsets[NUM_RANKS];
    int64_t recv_counts[NUM_RANKS], recv_offsets[NUM_RANKS];
};

static void fill_v(struct v_arguments *v, const struct seat *seat)
{
    v->args = (weft_coll_all_to_all_v_args)WEFT_INIT(weft_coll_all_to_all_v_args);
    v->args.send = seat->send.data;
    v->args.recv = seat->recv.data;
    v->args.dtype = WEFT_FP32;
    v->args.send_counts = v->send_counts;
    v->args.send_offsets = v->send_offsets;
    v->args.recv_counts = v->recv_counts;
    v->args.recv_offsets = v->recv_offsets;
    for (int i = 0; i < NUM_RANKS; i++) {
        v->send_counts[i] = v->recv_counts[i] = COUNT;
        v->send_offsets[i] = v->recv_offsets[i] = (uint64_t)i * COUNT;
    }
}

#define V_REFUSED(place, wrong, text)                                                              \
    do {                                                                                           \
        fill_v(&v, &seat);                                                                         \
        place = wrong;                                                                             \
        CHECK_ERROR(weft_coll_all_to_all_v(seat.coll, &v.args, seat.rank.stream),                  \
                    WEFT_ERROR_INVALID_ARGUMENT, text);                                            \
    } while (0)

TEST_ON_RANKS(all_to_all_v, RANKS_THREADS, NUM_RANKS)
{
    struct v_arguments v;
    struct seat seat;
    if (seat_open(&seat, context, NULL))
        return 1;
    V_REFUSED(v.args.recv, seat.send.data, "overlap");
    V_REFUSED(v.args.dtype, WEFT_INT8, "dtype is WEFT_INT8 (9), allowed are WEFT_INT32 (1), ");
    V_REFUSED(v.send_counts[1], UINT64_MAX, "send_counts[1]");
    V_REFUSED(v.send_offsets[2], UINT64_MAX - 4, "send_offsets[2]");
    V_REFUSED(v.recv_counts[0], UINT64_MAX / 4 + 1, "recv_counts[0]");
    V_REFUSED(v.recv_offsets[1], UINT64_MAX, "recv_offsets[1]");
    V_REFUSED(v.send_counts[context->rank], COUNT - 1, "itself");
    fill_v(&v, &seat);
    /* The counts are copied: the caller's may change at once. */
    CHECK_OK(weft_coll_all_to_all_v(seat.coll, &v.args, seat.rank.stream));
    memset(&v, 0xff, sizeof v);
    return seat_close(&seat);
}

/* ---------------------------------------------------------------- create */

#define CHOICE(collective, algorithm)                                                              \
    {                                                                                              \
        sizeof(weft_coll_choice), (weft_collective)(collective), (weft_algorithm)(algorithm)       \
    }
#define CHOICES_REFUSED(text, ...)                                                                 \
    do {                                                                                           \
        const weft_coll_choice choices[] = {__VA_ARGS__};                                          \
        weft_coll_config config = WEFT_INIT(weft_coll_config);                                     \
        config.choices = choices;                                                                  \
        config.num_choices = sizeof choices / sizeof choices[0];                                   \
        CHECK_ERROR(weft_coll_create(self.comm, &config, &coll), WEFT_ERROR_INVALID_ARGUMENT,      \
                    text);                                                                         \
    } while (0)

TEST_ON_RANKS(create, RANKS_THREADS, 1)
{
    struct ep_rank self;
    weft_coll *coll = NULL;
    if (ep_rank_open(&self, context, 0, 1 << 16))
        return 1;
    CHOICES_REFUSED("choices[0].algorithm is 9, allowed are WEFT_ALGORITHM_AUTO (0), "
                    "WEFT_ALGORITHM_ONESHOT (1), ",
                    CHOICE(WEFT_BROADCAST, NUM_ALGORITHMS));
    CHOICES_REFUSED("choices[1].collective is 8, allowed are WEFT_ALL_REDUCE (0), ",
                    CHOICE(WEFT_ALL_GATHER, WEFT_ALGORITHM_PUSH),
                    CHOICE(NUM_COLLECTIVES, WEFT_ALGORITHM_PUSH));
    CHOICES_REFUSED("choices[1].collective is WEFT_BROADCAST, as",
                    CHOICE(WEFT_BROADCAST, WEFT_ALGORITHM_PUSH),
                    CHOICE(WEFT_BROADCAST, WEFT_ALGORITHM_PUSH));
    CHOICES_REFUSED("choices[1].size is 15 and choices[0].size is 16",
                    CHOICE(WEFT_BROADCAST, WEFT_ALGORITHM_PUSH),
                    {15, WEFT_ALL_GATHER, WEFT_ALGORITHM_PUSH});
    CHOICES_REFUSED("choices[0]: size of weft_coll_choice is 8",
                    {8, WEFT_ALL_GATHER, WEFT_ALGORITHM_PUSH});
    CHECK(coll == NULL, "an output was written by a call that failed");
    return ep_rank_close(&self);
}

/* What ranks of one node can do alone is refused by name, and the rest works afterwards. */
TEST_ON_RANKS(over_nodes, RANKS_PROCESSES, 2)
{
    static const int64_t ones[] = {1, 1}, none[] = {0, 0}, places[] = {0, 1};
    static const struct coll_nodes nodes = {2, 1, 0, COLL_NODE_AFTER_NODE};
    struct coll_case spec = coll_case_random(5, 2, COLL_BROADCAST, WEFT_INT32, WEFT_SUM, 9);
    struct ep_rank self;
    struct ep_array send, recv; /* a row of each rank */
    weft_coll *coll;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    spec.nodes = nodes;
    if (ep_rank_open(&self, context, nodes.num_nodes, 1 << 16) ||
        ep_array_alloc(&self, &send, EP_HEAP, sizeof(float), 0) ||
        ep_array_alloc(&self, &recv, EP_HEAP, 2 * sizeof(float), 0))
        return 1;
    config.staging_slot_bytes = 64;
    CHECK_ERROR(weft_coll_create(self.comm, &config, &coll), WEFT_ERROR_INVALID_ARGUMENT,
                "staging_slot_bytes is 64, allowed are 0 and 65");
    config.staging_slot_bytes = 100 + 100 * (uint64_t)context->rank;
    CHECK_ERROR(weft_coll_create(self.comm, &config, &coll), WEFT_ERROR_MISMATCH,
                "ranks disagree on staging_slot_bytes: 100 on rank 0 and 200 on rank 1");
    config.staging_slot_bytes = 0;
    config.choices = WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_GATHER,
                               .algorithm = WEFT_ALGORITHM_PUSH);
    config.num_choices = 1;
    CHECK_OK(weft_coll_create(self.comm, &config, &coll));
    CHECK_ERROR(
        weft_coll_all_gather(coll,
                             WEFT_ARGS(weft_coll_args, .send = send.data, .recv = recv.data,
                                       .count = 1, .dtype = WEFT_FP32),
                             self.stream),
        WEFT_ERROR_UNSUPPORTED,
        "algorithm push is for at most 32 ranks of one node, coll has 2 on 2: allowed are rails "
        "and tree");
    CHECK_ERROR(weft_coll_all_to_all_v(coll,
                                       WEFT_ARGS(weft_coll_all_to_all_v_args, .send = send.data,
                                                 .recv = recv.data, .send_counts = ones,
                                                 .send_offsets = places, .recv_counts = none,
                                                 .recv_offsets = places, .dtype = WEFT_FP32),
                                       self.stream),
                WEFT_ERROR_INVALID_ARGUMENT, "what rank");
    CHECK(weft_coll_algorithm(coll, WEFT_ALL_REDUCE, 100) == WEFT_ALGORITHM_RAILS, "%s is chosen",
          weft_coll_algorithm_name(weft_coll_algorithm(coll, WEFT_ALL_REDUCE, 100)));
    if (coll_check(&self, coll, &spec, "over nodes"))
        return 1;
    CHECK_OK(weft_coll_destroy(coll));
    return ep_array_check_and_free(&self, &send, "send") ||
           ep_array_check_and_free(&self, &recv, "recv") || ep_rank_close(&self);
}
