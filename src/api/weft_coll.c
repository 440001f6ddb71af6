/* SPDX-License-Identifier: MIT */
#include "coll/coll.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/destroy.h"
#include "api/log_job.h"
#include "api/overlap.h"
#include "api/structs.h"
#include "memory/ring_memory.h"

static const uint64_t max_buffer_bytes = UINT64_C(1) << 40;

static weft_result check_rings(const weft_coll_config *config)
{
    WEFT__TRY(weft__check_range(config->num_channels, 0, WEFT__MAX_CHANNELS, "num_channels"));
    WEFT__TRY(
        weft__check_range(config->num_staging_slots, 0, WEFT__MAX_SLOTS, "num_staging_slots"));
    WEFT__TRY(weft__check_at_most(config->staging_slot_bytes, WEFT__MAX_SLOT_BYTES,
                                  "staging_slot_bytes"));
    if (config->staging_slot_bytes == 0 || config->staging_slot_bytes > WP_CHUNK_HEADER_BYTES)
        return WEFT_OK;
    return weft__invalid("staging_slot_bytes is %llu, allowed are 0 and %d and more",
                         (unsigned long long)config->staging_slot_bytes, WP_CHUNK_HEADER_BYTES + 1);
}

static weft_result check_choice(const weft_coll_choice *choice, int32_t i, uint32_t *seen)
{
    char name[64];
    snprintf(name, sizeof name, "choices[%d].collective", i);
    WEFT__TRY(weft__check_enum(WEFT__ENUM_COLLECTIVE, (int32_t)choice->collective, 0,
                               WEFT__NUM_COLLECTIVES - 1, name));
    if (*seen & UINT32_C(1) << choice->collective)
        return weft__invalid(
            "choices[%d].collective is %s, as is that of one before", i,
            weft__constant_name(WEFT__ENUM_COLLECTIVE, (int64_t)choice->collective));
    *seen |= UINT32_C(1) << choice->collective;
    snprintf(name, sizeof name, "choices[%d].algorithm", i);
    return weft__check_enum(WEFT__ENUM_ALGORITHM, (int32_t)choice->algorithm, WEFT_ALGORITHM_AUTO,
                            WEFT__NUM_ALGORITHMS - 1, name);
}

static weft_result read_choices(weft_coll_config *config, weft_coll_choice *choices)
{
    uint32_t seen = 0;
    WEFT__TRY(weft__check_range(config->num_choices, 0, WEFT__NUM_COLLECTIVES, "num_choices"));
    WEFT__TRY(WEFT__READ_ARRAY(weft_coll_choice, choices, config->choices, config->num_choices,
                               "choices"));
    config->choices = choices;
    for (int32_t i = 0; i < config->num_choices; i++)
        WEFT__TRY(check_choice(&choices[i], i, &seen));
    return WEFT_OK;
}

weft_result weft_coll_create(weft_comm *comm, const weft_coll_config *user_config, weft_coll **coll)
{
    weft_coll_config config;
    weft_coll_choice choices[WEFT__NUM_COLLECTIVES];
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(coll, "coll"));
    WEFT__TRY(WEFT__READ_OPTIONAL(weft_coll_config, &config, user_config, "config"));
    WEFT__TRY(weft__check_unused((uint64_t)config.reserved, "reserved"));
    WEFT__TRY(weft__check_at_most(config.packet_bytes, max_buffer_bytes, "packet_bytes"));
    WEFT__TRY(weft__check_at_most(config.staging_bytes, max_buffer_bytes, "staging_bytes"));
    WEFT__TRY(read_choices(&config, choices));
    WEFT__TRY(weft__check_range(config.num_blocks, 0, WEFT__COLL_MAX_BLOCKS, "num_blocks"));
    WEFT__TRY(weft__check_range(config.num_warps, 0, WEFT_MAX_WARPS, "num_warps"));
    WEFT__TRY(check_rings(&config));
    /* Before the state of comm: a rank that is told so may leave while others are yet to be
     * told. */
    WEFT__TRY(weft__coll_check_reach(comm));
    WEFT__TRY(weft__machine_check(comm));
    weft_coll *created;
    weft__comm_enter(comm, WEFT__CALL_COLL_CREATE);
    WEFT__TRY(weft__coll_create(comm, &config, &created));
    WEFT__TRY(weft__give_on_all(comm, WEFT__KIND_COLL, created, comm, coll));
    weft__log_collectives(*coll);
    return WEFT_OK;
}

weft_result weft_coll_destroy(weft_coll *coll)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    return weft__destroy(WEFT__KIND_COLL, coll);
}

weft_algorithm weft_coll_algorithm(const weft_coll *coll, weft_collective collective,
                                   uint64_t bytes)
{
    if (!weft__object_exists(WEFT__KIND_COLL, coll) ||
        (uint32_t)collective >= WEFT__NUM_COLLECTIVES)
        return WEFT_ALGORITHM_AUTO;
    return weft__coll_choose(coll, collective, bytes).algorithm;
}

weft_result weft_coll_explain(const weft_coll *coll, weft_collective collective,
                              weft_algorithm algorithm, uint64_t bytes,
                              weft_coll_explanation *explanation)
{
    weft_coll_explanation filled = {0};
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_COLLECTIVE, (int32_t)collective, 0,
                               WEFT__NUM_COLLECTIVES - 1, "collective"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_ALGORITHM, (int32_t)algorithm, WEFT_ALGORITHM_AUTO,
                               WEFT__NUM_ALGORITHMS - 1, "algorithm"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_coll_explanation, explanation, "explanation"));
    WEFT__TRY(weft__coll_explain(coll, collective, algorithm, bytes, &filled));
    WEFT__WRITE(weft_coll_explanation, explanation, &filled);
    return WEFT_OK;
}

/* ------------------------------------------------------------------ checks of calls */

static weft_result check_pointer(const weft_coll *coll, const void *ptr, uint64_t count,
                                 const char *name)
{
    WEFT__TRY(weft__check_array(ptr, (int64_t)count, name));
    if (count == 0)
        return WEFT_OK;
    return weft__machine_of(coll->comm)->check_pointer(coll->comm, ptr, name);
}

/* Outputs may be the input itself, where they are in place. */
static weft_result check_overlap(const struct weft__coll_call *call, uint64_t send_bytes,
                                 uint64_t recv_bytes, uintptr_t in_place)
{
    const struct weft__extent extents[] = {
        weft__extent_of("send", WEFT__EXTENT_READ, call->send, 1, send_bytes),
        weft__extent_of("recv", WEFT__EXTENT_WRITTEN, call->recv, 1, recv_bytes)};
    return (uintptr_t)call->send == in_place ? WEFT_OK : weft__check_overlaps(extents, 2);
}

/* Only sums that are premultiplied have a factor, and no more than one. */
static weft_result check_factor(const struct weft__coll_call *call, uint64_t recv_bytes)
{
    if ((call->op != WEFT_PREMUL_SUM || call->factor_at != NULL) && call->factor != 0)
        return weft__invalid("factor is %g, must be 0: this call does not use it",
                             (double)call->factor);
    if (call->op != WEFT_PREMUL_SUM)
        return weft__check_unused((uintptr_t)call->factor_at, "factor_at");
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)call->dtype, WEFT_BF16, WEFT_FP32,
                               "dtype of WEFT_PREMUL_SUM"));
    if (call->factor_at == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__check_address(call->factor_at, sizeof(float), "factor_at"));
    WEFT__TRY(weft__machine_of(call->coll->comm)
                  ->check_pointer(call->coll->comm, call->factor_at, "factor_at"));
    const struct weft__extent extents[] = {
        weft__extent_of("factor_at", WEFT__EXTENT_READ, call->factor_at, 1, sizeof(float)),
        weft__extent_of("recv", WEFT__EXTENT_WRITTEN, call->recv, 1, recv_bytes)};
    return weft__check_overlaps(extents, 2);
}

/* A sum of integers goes from rank to rank in their own type: it might wrap before division. */
static weft_result check_average(const struct weft__coll_call *call)
{
    const int is_integer =
        call->dtype == WEFT_INT32 || call->dtype == WEFT_INT64 || call->dtype == WEFT_UINT8;
    if (call->op != WEFT_AVG || !is_integer || !weft__coll_reduces(call->collective))
        return WEFT_OK;
    return weft__invalid("dtype of WEFT_AVG is %s (%d), allowed are types of floating point: the "
                         "sum of integers may wrap before it is divided; WEFT_SUM takes them",
                         weft__constant_name(WEFT__ENUM_DTYPE, call->dtype), (int)call->dtype);
}

static weft_result check_call(const struct weft__coll_call *call)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, call->coll, "coll"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, call->stream, "stream"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)call->dtype, WEFT_INT32, WEFT_FP8_E4M3,
                               "dtype"));
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_REDUCE_OP, (int32_t)call->op, WEFT_SUM, WEFT_PREMUL_SUM, "op"));
    WEFT__TRY(check_average(call));
    WEFT__TRY(weft__check_range(
        (int64_t)call->count, 0,
        (int64_t)((uint64_t)WEFT_COLL_MAX_BYTES / wp_dtype_bytes(call->dtype)), "count"));
    return weft__check_range(call->root, 0, call->coll->comm->num_ranks - 1, "root");
}

/* The rows of both arrays, and where send is in the in-place form; 0: there is none. */
struct arrays {
    uint64_t num_sent;
    uint64_t num_received;
    uintptr_t in_place;
};

static struct arrays arrays_of(const struct weft__coll_call *call)
{
    const weft_comm *comm = call->coll->comm;
    const uint64_t num_ranks = (uint64_t)comm->num_ranks;
    const uintptr_t own_offset = (uint64_t)comm->rank * weft__coll_row_bytes(call);
    const uintptr_t recv = (uintptr_t)call->recv;
    const uint64_t is_root = comm->rank == call->root;
    switch (call->collective) {
    case WEFT_ALL_REDUCE:
        return (struct arrays){1, 1, recv};
    case WEFT_REDUCE_SCATTER:
        return (struct arrays){num_ranks, 1, recv - own_offset};
    case WEFT_ALL_GATHER:
        return (struct arrays){1, num_ranks, recv + own_offset};
    case WEFT_ALL_TO_ALL:
        return (struct arrays){num_ranks, num_ranks, 0};
    case WEFT_BROADCAST:
        return (struct arrays){is_root, 1, recv};
    case WEFT_REDUCE:
        return (struct arrays){1, is_root, recv};
    case WEFT_GATHER:
        return (struct arrays){1, is_root * num_ranks, recv + own_offset};
    case WEFT_SCATTER:
        break;
    }
    return (struct arrays){is_root * num_ranks, 1, recv - own_offset};
}

/* ------------------------------------------------------------------ calls */

static weft_result check_and_run(const struct weft__coll_call *call)
{
    WEFT__TRY(check_call(call));
    const struct arrays arrays = arrays_of(call);
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    WEFT__TRY(check_pointer(call->coll, call->send, arrays.num_sent * call->count, "send"));
    WEFT__TRY(check_pointer(call->coll, call->recv, arrays.num_received * call->count, "recv"));
    WEFT__TRY(check_overlap(call, arrays.num_sent * row_bytes, arrays.num_received * row_bytes,
                            arrays.in_place));
    WEFT__TRY(check_factor(call, arrays.num_received * row_bytes));
    weft__current_call = WEFT__CALL_ALL_REDUCE + (enum weft__call)call->collective;
    return weft__exchange_note(call->coll->exchange, call->stream, WEFT__CALL_IS_WHOLE,
                               weft__coll_run(call));
}

/* The operations differ in the fields that they use; the others must be zero. */
enum use { USE_OP = 1, USE_ROOT = 2 }; /* bits */

static weft_result read_and_run(weft_coll *coll, const weft_coll_args *given,
                                weft_collective collective, uint32_t used, weft_stream *stream)
{
    weft_coll_args args;
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    WEFT__TRY(WEFT__READ(weft_coll_args, &args, given, "args"));
    if (!(used & USE_OP))
        WEFT__TRY(weft__check_unused((uint64_t)args.op, "op"));
    if (!(used & USE_ROOT))
        WEFT__TRY(weft__check_unused((uint64_t)args.root, "root"));
    return check_and_run(&(struct weft__coll_call){.coll = coll,
                                                   .collective = collective,
                                                   .send = args.send,
                                                   .recv = args.recv,
                                                   .count = (uint64_t)args.count,
                                                   .dtype = args.dtype,
                                                   .op = args.op,
                                                   .root = args.root,
                                                   .factor = args.factor,
                                                   .factor_at = args.factor_at,
                                                   .stream = stream});
}

weft_result weft_coll_all_reduce(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_ALL_REDUCE, USE_OP, stream);
}

weft_result weft_coll_reduce_scatter(weft_coll *coll, const weft_coll_args *args,
                                     weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_REDUCE_SCATTER, USE_OP, stream);
}

weft_result weft_coll_all_gather(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_ALL_GATHER, 0, stream);
}

weft_result weft_coll_all_to_all(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_ALL_TO_ALL, 0, stream);
}

weft_result weft_coll_broadcast(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_BROADCAST, USE_ROOT, stream);
}

weft_result weft_coll_reduce(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_REDUCE, USE_OP | USE_ROOT, stream);
}

weft_result weft_coll_gather(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_GATHER, USE_ROOT, stream);
}

weft_result weft_coll_scatter(weft_coll *coll, const weft_coll_args *args, weft_stream *stream)
{
    return read_and_run(coll, args, WEFT_SCATTER, USE_ROOT, stream);
}

/* ------------------------------------------------------------------ rows of any length */

/* The array's bytes from its beginning to the end of its last row. */
static weft_result find_v_rows(const struct weft__coll_call *call, int32_t num_ranks,
                               const int64_t *counts, const int64_t *offsets, const char *name,
                               struct wp_span *rows, uint64_t *extent_bytes)
{
    const uint64_t element_bytes = wp_dtype_bytes(call->dtype);
    const int64_t most = (int64_t)((uint64_t)WEFT_COLL_MAX_BYTES / element_bytes);
    *extent_bytes = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        if (counts[rank] < 0 || counts[rank] > most || offsets[rank] < 0 || offsets[rank] > most)
            return weft__invalid(
                "%s_counts[%d] is %lld and %s_offsets[%d] is %lld, allowed are 0..%lld", name, rank,
                (long long)counts[rank], name, rank, (long long)offsets[rank], (long long)most);
        rows[rank] = (struct wp_span){(uint64_t)offsets[rank] * element_bytes,
                                      (uint64_t)counts[rank] * element_bytes};
        const uint64_t end = rows[rank].begin + rows[rank].bytes;
        if (counts[rank] > 0 && end > *extent_bytes)
            *extent_bytes = end;
    }
    return WEFT_OK;
}

/* Rows that overlap would overwrite each other. */
static weft_result check_v_regions(const struct weft__coll_call *call, int32_t num_ranks,
                                   const struct wp_span *rows)
{
    struct weft__extent *regions = calloc((size_t)num_ranks, sizeof *regions);
    WEFT__CHECK_MEMORY(regions, "no memory for %d rows", num_ranks);
    for (int32_t rank = 0; rank < num_ranks; rank++)
        regions[rank] = (struct weft__extent){"the row at recv_offsets",
                                              rank,
                                              "",
                                              WEFT__EXTENT_WRITTEN,
                                              (const char *)call->recv + rows[rank].begin,
                                              1,
                                              rows[rank].bytes,
                                              0};
    const weft_result result = weft__check_overlaps(regions, num_ranks);
    free(regions);
    return result;
}

/* Other ranks say themselves how much they send and receive. */
static weft_result check_own_counts(const weft_coll_all_to_all_v_args *args, int32_t rank)
{
    if (args->send_counts[rank] == args->recv_counts[rank])
        return WEFT_OK;
    return weft__invalid("send_counts[%d] is %lld and recv_counts[%d] is %lld: what rank %d sends "
                         "to itself must be what it receives from itself",
                         rank, (long long)args->send_counts[rank], rank,
                         (long long)args->recv_counts[rank], rank);
}

static weft_result check_and_exchange_v(const struct weft__coll_call *call,
                                        const weft_coll_all_to_all_v_args *args,
                                        const struct weft__coll_v_rows *rows)
{
    const weft_coll *coll = call->coll;
    const int32_t num_ranks = coll->comm->num_ranks;
    uint64_t sent_bytes, received_bytes;
    WEFT__TRY(find_v_rows(call, num_ranks, args->send_counts, args->send_offsets, "send",
                          rows->sent, &sent_bytes));
    WEFT__TRY(find_v_rows(call, num_ranks, args->recv_counts, args->recv_offsets, "recv",
                          rows->received, &received_bytes));
    WEFT__TRY(check_own_counts(args, coll->comm->rank));
    WEFT__TRY(check_pointer(coll, args->send, sent_bytes, "send"));
    WEFT__TRY(check_pointer(coll, args->recv, received_bytes, "recv"));
    WEFT__TRY(check_overlap(call, sent_bytes, received_bytes, 0));
    WEFT__TRY(check_v_regions(call, num_ranks, rows->received));
    weft__current_call = WEFT__CALL_ALL_TO_ALL_V;
    return weft__exchange_note(coll->exchange, call->stream, WEFT__CALL_IS_WHOLE,
                               weft__coll_exchange_v(call, rows));
}

weft_result weft_coll_all_to_all_v(weft_coll *coll, const weft_coll_all_to_all_v_args *user_args,
                                   weft_stream *stream)
{
    weft_coll_all_to_all_v_args args;
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    WEFT__TRY(WEFT__READ(weft_coll_all_to_all_v_args, &args, user_args, "args"));
    WEFT__TRY(weft__check_unused((uint64_t)args.reserved, "reserved"));
    const struct weft__coll_call call = {.coll = coll,
                                         .collective = WEFT_ALL_TO_ALL,
                                         .send = args.send,
                                         .recv = args.recv,
                                         .dtype = args.dtype,
                                         .stream = stream,
                                         .rows = WEFT__ROWS_OF_ANY_LENGTH};
    WEFT__TRY(check_call(&call));
    WEFT__TRY(weft__check_not_null(args.send_counts, "send_counts"));
    WEFT__TRY(weft__check_not_null(args.send_offsets, "send_offsets"));
    WEFT__TRY(weft__check_not_null(args.recv_counts, "recv_counts"));
    WEFT__TRY(weft__check_not_null(args.recv_offsets, "recv_offsets"));
    const size_t num_ranks = (size_t)coll->comm->num_ranks;
    struct wp_span *spans = calloc(2 * num_ranks, sizeof *spans);
    WEFT__CHECK_MEMORY(spans, "no memory for %zu rows", 2 * num_ranks);
    const weft_result result =
        check_and_exchange_v(&call, &args, &(struct weft__coll_v_rows){spans, spans + num_ranks});
    free(spans);
    return result;
}
