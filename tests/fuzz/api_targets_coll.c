/* SPDX-License-Identifier: MIT */
/* The collectives. */
#include "api_targets.h"

enum { NUM_OPS = WEFT_AVG + 1, RECV_OFFSET = 16 << 10 };

/* ---------------------------------------------------------------- create */

static void fill_create(struct fuzz_arguments *a, struct rng *rng)
{
    weft_coll_config *config = &a->coll_config.known;
    FUZZ_FILL_SIZE(a, coll_config, rng);
    config->packet_bytes = rng_below(rng, 3) == 0 ? 0 : rng_below(rng, 20000);
    config->staging_bytes = rng_below(rng, 3) == 0 ? 0 : rng_below(rng, 20000);
    config->choices = a->choices;
    config->num_choices = 1 + (int32_t)rng_below(rng, NUM_COLLECTIVES);
    for (int i = 0; i < NUM_COLLECTIVES; i++)
        a->choices[i] = (weft_coll_choice){sizeof a->choices[i], (weft_collective)i,
                                           (weft_algorithm)rng_below(rng, NUM_ALGORITHMS)};
    config->num_blocks = (int32_t)rng_below(rng, 4);
    config->num_warps = (int32_t)rng_below(rng, 33);
}

FUZZ_CALL(undo_create, weft_coll_destroy(a->created))

/* ---------------------------------------------------------------- operations */

/* On one rank all have one row. The output may be anywhere; in place it is the input. */
static void fill(struct fuzz_arguments *a, struct rng *rng)
{
    weft_coll_args *args = &a->coll_args.known;
    FUZZ_FILL_SIZE(a, coll_args, rng);
    args->count = 1 + rng_below(rng, FUZZ_COUNT);
    args->dtype = (weft_dtype)(1 + rng_below(rng, NUM_DTYPES));
    args->send = rng_below(rng, 2) == 0 ? a->outside : a->arena_memory + rng_below(rng, 64);
    args->recv = a->arena_memory + RECV_OFFSET + rng_below(rng, 64);
}

static void fill_in_place(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng);
    if (rng_below(rng, 4) == 0)
        a->coll_args.known.send = a->coll_args.known.recv;
}

static void fill_reduction(struct fuzz_arguments *a, struct rng *rng)
{
    fill_in_place(a, rng);
    a->coll_args.known.op = (weft_reduce_op)rng_below(rng, NUM_OPS);
    if (!reduce_op_takes(a->coll_args.known.op, a->coll_args.known.dtype))
        a->coll_args.known.op = WEFT_SUM;
}

#define CALL_MUTATIONS                                                                             \
    FUZZ_ENQUEUED(coll, weft_coll_args, coll_args),                                                \
        FUZZ_POINTERS("send", coll_args.known.send, FUZZ_NULL),                                    \
        FUZZ_POINTERS("recv", coll_args.known.recv, FUZZ_NULL),                                    \
        FUZZ_FIELD(coll_args, count, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 60),                  \
        FUZZ_FIELD(coll_args, dtype, WEFT_DTYPE_NONE, NUM_DTYPES + 1, INT32_MAX, INT32_MIN),       \
        FUZZ_FIELD(coll_args, root, -1, 1, INT32_MAX, INT32_MIN),                                  \
        FUZZ_FIELD(coll_args, op, -1, NUM_OPS + 1, INT32_MAX, INT32_MIN),                          \
        FUZZ_FIELD(coll_args, factor, -1, 1),                                                      \
        FUZZ_POINTERS("factor_at", coll_args.known.factor_at, FUZZ_OUTSIDE, FUZZ_GARBAGE)

static const struct fuzz_mutation reduction_mutations[] = {CALL_MUTATIONS};

static const struct fuzz_mutation call_mutations[] = {
    CALL_MUTATIONS,
    FUZZ_FIELD(coll_args, op, WEFT_MAX),
};

/* ---------------------------------------------------------------- sends and receives */

/* To itself, in a group with the receive, or send, that goes with it. */
static void fill_transfers(struct fuzz_arguments *a, struct rng *rng)
{
    weft_coll_send_args *send = &a->coll_send.known;
    weft_coll_recv_args *recv = &a->coll_recv.known;
    FUZZ_FILL_SIZE(a, coll_send, rng);
    FUZZ_FILL_SIZE(a, coll_recv, rng);
    send->count = recv->count = 1 + rng_below(rng, FUZZ_COUNT);
    send->dtype = recv->dtype = (weft_dtype)(1 + rng_below(rng, NUM_DTYPES));
    send->send = rng_below(rng, 2) == 0 ? a->outside : a->arena_memory + rng_below(rng, 64);
    recv->recv = a->arena_memory + RECV_OFFSET + rng_below(rng, 64);
}

static void fill_send(struct fuzz_arguments *a, struct rng *rng)
{
    fill_transfers(a, rng);
    a->config = &a->coll_send.known;
}

static void fill_recv(struct fuzz_arguments *a, struct rng *rng)
{
    fill_transfers(a, rng);
    a->config = &a->coll_recv.known;
}

/* What is refused ends the group, too, and is refused again. */
static weft_result call_send(struct fuzz_arguments *a)
{
    (void)weft_coll_group_begin(a->own_coll);
    (void)weft_coll_recv(a->own_coll, &a->coll_recv.known, a->own_stream);
    const weft_result sent = weft_coll_send(a->coll, a->config, a->stream);
    const weft_result ended = weft_coll_group_end(a->own_coll);
    return sent == WEFT_OK ? ended : weft_coll_send(a->coll, a->config, a->stream);
}

static weft_result call_recv(struct fuzz_arguments *a)
{
    (void)weft_coll_group_begin(a->own_coll);
    (void)weft_coll_send(a->own_coll, &a->coll_send.known, a->own_stream);
    const weft_result received = weft_coll_recv(a->coll, a->config, a->stream);
    const weft_result ended = weft_coll_group_end(a->own_coll);
    return received == WEFT_OK ? ended : weft_coll_recv(a->coll, a->config, a->stream);
}

/* ---------------------------------------------------------------- all_to_all_v */

static void fill_all_to_all_v(struct fuzz_arguments *a, struct rng *rng)
{
    weft_coll_all_to_all_v_args *args = &a->all_to_all_v.known;
    FUZZ_FILL_SIZE(a, all_to_all_v, rng);
    a->send_count = a->recv_count = 1 + rng_below(rng, FUZZ_COUNT);
    a->send_offset = rng_below(rng, FUZZ_COUNT);
    a->recv_offset = rng_below(rng, FUZZ_COUNT);
    args->send = a->arena_memory + rng_below(rng, 64);
    args->recv = a->arena_memory + RECV_OFFSET + rng_below(rng, 64);
    args->dtype = (weft_dtype)(1 + rng_below(rng, NUM_DTYPES));
    args->send_counts = &a->send_count;
    args->send_offsets = &a->send_offset;
    args->recv_counts = &a->recv_count;
    args->recv_offsets = &a->recv_offset;
}

/* ---------------------------------------------------------------- registered memory */

static void fill_register(struct fuzz_arguments *a, struct rng *rng)
{
    a->bytes = 1 + rng_below(rng, sizeof a->result_memory);
    a->ptr = a->result_memory;
}

static weft_result call_register(struct fuzz_arguments *a)
{
    int32_t is_direct;
    return weft_memory_register(a->comm, a->ptr, a->bytes, &is_direct);
}

FUZZ_CALL(undo_register, weft_memory_unregister(a->own_comm, a->ptr))

static void fill_unregister(struct fuzz_arguments *a, struct rng *rng)
{
    fill_register(a, rng);
    a->created = weft_memory_register(a->comm, a->ptr, a->bytes, NULL) == WEFT_OK ? a->ptr : NULL;
}

/* What fill_unregister registered goes also when the call was refused; that changes no message. */
static weft_result call_unregister(struct fuzz_arguments *a)
{
    const weft_result result = weft_memory_unregister(a->comm, a->ptr);
    if (result != WEFT_OK && weft_memory_unregister(a->own_comm, a->created) != WEFT_OK)
        return WEFT_ERROR_SYSTEM;
    return result;
}

static weft_result undo_capture_begin(struct fuzz_arguments *a)
{
    const weft_result ended = weft_coll_record_end(a->created);
    const weft_result destroyed = weft_coll_record_destroy(a->created);
    return ended != WEFT_OK ? ended : destroyed;
}

/* ---------------------------------------------------------------- explanations */

static void fill_explain(struct fuzz_arguments *a, struct rng *rng)
{
    fuzz_fill_output(a, rng);
    a->bytes = rng_below(rng, 2000);
    a->ranks[0] = (int32_t)rng_below(rng, NUM_COLLECTIVES);
    a->ranks[1] = WEFT_ALGORITHM_AUTO;
}

FUZZ_TARGET(coll_create, fill_create, (a->comm, a->config, a->out), undo_create,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("coll", out, FUZZ_NULL),
            FUZZ_SIZES(weft_coll_config, coll_config),
            FUZZ_FIELD(coll_config, packet_bytes, -1, INT64_MAX, (int64_t)1 << 60),
            FUZZ_FIELD(coll_config, staging_bytes, -1, INT64_MAX, (int64_t)1 << 60),
            FUZZ_POINTERS("choices", coll_config.known.choices, FUZZ_NULL),
            FUZZ_FIELD(coll_config, num_choices, -1, NUM_COLLECTIVES + 1),
            FUZZ_NUMBERS(FUZZ_INT64, "size", choices[0].size, 0, 8, (int64_t)1 << 40),
            FUZZ_NUMBERS(FUZZ_INT32, "choices[0].algorithm", choices[0].algorithm, -1,
                         NUM_ALGORITHMS, INT32_MAX, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "choices[0].collective", choices[0].collective, -1,
                         NUM_COLLECTIVES, INT32_MAX, INT32_MIN),
            FUZZ_FIELD(coll_config, reserved, -1, 1),
            FUZZ_FIELD(coll_config, num_blocks, -1, INT32_MIN),
            FUZZ_FIELD(coll_config, num_warps, -1, 33, INT32_MAX))
FUZZ_TARGET_AS(coll_all_reduce, fill_reduction, (a->coll, a->config, a->stream), fuzz_wait,
               reduction)
FUZZ_TARGET_AS(coll_reduce_scatter, fill_reduction, (a->coll, a->config, a->stream), fuzz_wait,
               reduction)
FUZZ_TARGET_AS(coll_all_gather, fill_in_place, (a->coll, a->config, a->stream), fuzz_wait, call)
FUZZ_TARGET_AS(coll_all_to_all, fill, (a->coll, a->config, a->stream), fuzz_wait, call)
FUZZ_TARGET_AS(coll_broadcast, fill_in_place, (a->coll, a->config, a->stream), fuzz_wait, call)
FUZZ_TARGET_AS(coll_reduce, fill_reduction, (a->coll, a->config, a->stream), fuzz_wait, reduction)
FUZZ_TARGET_AS(coll_gather, fill_in_place, (a->coll, a->config, a->stream), fuzz_wait, call)
FUZZ_TARGET_AS(coll_scatter, fill_in_place, (a->coll, a->config, a->stream), fuzz_wait, call)
FUZZ_TARGET(coll_all_to_all_v, fill_all_to_all_v, (a->coll, a->config, a->stream), fuzz_wait,
            FUZZ_ENQUEUED(coll, weft_coll_all_to_all_v_args, all_to_all_v),
            FUZZ_FIELD(all_to_all_v, reserved, -1, 1),
            FUZZ_POINTERS("send", all_to_all_v.known.send, FUZZ_NULL),
            FUZZ_POINTERS("recv", all_to_all_v.known.recv, FUZZ_NULL),
            FUZZ_FIELD(all_to_all_v, dtype, -1, NUM_DTYPES + 1, INT32_MAX),
            FUZZ_POINTERS("send_counts", all_to_all_v.known.send_counts, FUZZ_NULL),
            FUZZ_POINTERS("send_offsets", all_to_all_v.known.send_offsets, FUZZ_NULL),
            FUZZ_POINTERS("recv_counts", all_to_all_v.known.recv_counts, FUZZ_NULL),
            FUZZ_POINTERS("recv_offsets", all_to_all_v.known.recv_offsets, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "send_counts", send_count, -1, INT64_MAX, INT64_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "send_offsets", send_offset, -1, INT64_MAX, (int64_t)1 << 61),
            FUZZ_NUMBERS(FUZZ_INT64, "recv_counts", recv_count, -1, INT64_MAX, INT64_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "recv_offsets", recv_offset, -1, INT64_MAX, (int64_t)1 << 61))
FUZZ_TARGET_BY(coll_send, coll_send, fill_send, call_send, fuzz_wait,
               FUZZ_ENQUEUED(coll, weft_coll_send_args, coll_send),
               FUZZ_POINTERS("send", coll_send.known.send, FUZZ_NULL),
               FUZZ_FIELD(coll_send, count, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 60),
               FUZZ_FIELD(coll_send, dtype, -1, NUM_DTYPES + 1, INT32_MAX),
               FUZZ_FIELD(coll_send, peer, -1, 1, INT32_MAX, INT32_MIN))
FUZZ_TARGET_BY(coll_recv, coll_recv, fill_recv, call_recv, fuzz_wait,
               FUZZ_ENQUEUED(coll, weft_coll_recv_args, coll_recv),
               FUZZ_POINTERS("recv", coll_recv.known.recv, FUZZ_NULL),
               FUZZ_FIELD(coll_recv, count, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 60),
               FUZZ_FIELD(coll_recv, dtype, -1, NUM_DTYPES + 1, INT32_MAX),
               FUZZ_FIELD(coll_recv, peer, -1, 1, INT32_MAX, INT32_MIN))
FUZZ_TARGET(coll_explain, fill_explain,
            (a->coll, (weft_collective)a->ranks[0], (weft_algorithm)a->ranks[1], a->bytes, a->out),
            NULL, FUZZ_OBJECT("coll", coll), FUZZ_POINTERS("explanation", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "collective", ranks[0], -1, NUM_COLLECTIVES, INT32_MAX,
                         INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "algorithm", ranks[1], -1, NUM_ALGORITHMS, INT32_MAX,
                         INT32_MIN),
            FUZZ_OUTPUT_SIZES)
FUZZ_TARGET_BY(memory_register, memory_register, fill_register, call_register, undo_register,
               FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("ptr", ptr, FUZZ_NULL),
               FUZZ_NUMBERS(FUZZ_INT64, "bytes|ptr", bytes, -1, INT64_MAX, INT64_MIN,
                            (int64_t)1 << 60))
FUZZ_TARGET_BY(memory_unregister, memory_unregister, fill_unregister, call_unregister, NULL,
               FUZZ_OBJECT("comm", comm),
               FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE))
FUZZ_TARGET(coll_record_begin, NULL, (a->coll, a->out), undo_capture_begin,
            FUZZ_OBJECT("coll", coll), FUZZ_POINTERS("record", out, FUZZ_NULL))
