/* SPDX-License-Identifier: MIT */
#include "oracle/coll_call.h"

#include <string.h>

#include "harness/memory.h"
#include "workload/collective.h"
#include "workload/transfers.h"

/* ---------------------------------------------------------------- contents of the arrays */

static void write_inputs(const struct coll_call *call, int32_t rank, char *array)
{
    const uint64_t element_bytes = dtype_bytes(call->spec.dtype);
    for (int32_t row = 0; row < call->send_rows.num_rows; row++)
        coll_input_row(&call->spec, rank, row, call->send_rows.counts[row],
                       array + call->send_begin_bytes +
                           call->send_rows.offsets[row] * element_bytes);
}

static void write_outputs(const struct coll_call *call, int32_t rank, char *array)
{
    const uint64_t element_bytes = dtype_bytes(call->spec.dtype);
    for (int32_t row = 0; row < call->recv_rows.num_rows; row++)
        coll_expected_row(&call->spec, rank, row, call->recv_rows.counts[row],
                          array + call->recv_begin_bytes +
                              call->recv_rows.offsets[row] * element_bytes);
}

/* ---------------------------------------------------------------- create */

static int create_factor(struct ep_rank *self, struct coll_call *call)
{
    const float factor = coll_factor_of(&call->spec, self->context->rank);
    if (!coll_is_premultiplied(&call->spec) || call->spec.factor != COLL_FACTOR_IN_MEMORY)
        return 0;
    if (ep_array_alloc(self, &call->factor, EP_INPUT, sizeof factor, 0))
        return 1;
    memcpy(call->factor.host, &factor, sizeof factor);
    return ep_array_push(self, &call->factor);
}

static int create_in_place(struct ep_rank *self, struct coll_call *call)
{
    const struct coll_case *spec = &call->spec;
    const int32_t rank = self->context->rank;
    const uint64_t element_bytes = dtype_bytes(spec->dtype);
    const uint64_t most = call->send_rows.total > call->recv_rows.total ? call->send_rows.total
                                                                        : call->recv_rows.total;
    const uint64_t own_row_bytes = (uint64_t)rank * spec->count * element_bytes;
    const int is_longer = most > spec->count; /* what is ignored has no place in it */
    if (spec->operation == COLL_ALL_GATHER || spec->operation == COLL_GATHER)
        call->send_begin_bytes = is_longer ? own_row_bytes : 0;
    if (spec->operation == COLL_REDUCE_SCATTER || spec->operation == COLL_SCATTER)
        call->recv_begin_bytes = is_longer ? own_row_bytes : 0;
    if (ep_array_alloc(self, &call->recv, coll_place_of(spec, spec->recv_place, rank),
                       most * element_bytes,
                       coll_misalign_bytes(spec, spec->recv_alignment, rank, 1)))
        return 1;
    if (call->recv.bytes > 0)
        write_inputs(call, rank, call->recv.host);
    return ep_array_push(self, &call->recv);
}

static int create_out_of_place(struct ep_rank *self, struct coll_call *call)
{
    const struct coll_case *spec = &call->spec;
    const int32_t rank = self->context->rank;
    const uint64_t element_bytes = dtype_bytes(spec->dtype);
    const enum ep_place send_place =
        coll_place_of(spec, spec->send_place, rank) == EP_HEAP ? EP_HEAP : EP_INPUT;
    if (ep_array_alloc(self, &call->send, send_place, call->send_rows.total * element_bytes,
                       coll_misalign_bytes(spec, spec->send_alignment, rank, 0)) ||
        ep_array_alloc(self, &call->recv, coll_place_of(spec, spec->recv_place, rank),
                       call->recv_rows.total * element_bytes,
                       coll_misalign_bytes(spec, spec->recv_alignment, rank, 1)))
        return 1;
    if (call->send.bytes > 0)
        write_inputs(call, rank, call->send.host);
    return ep_array_push(self, &call->send);
}

int coll_call_create(struct ep_rank *self, const struct coll_case *spec, struct coll_call *call)
{
    const int32_t rank = self->context->rank;
    *call = (struct coll_call){.spec = *spec,
                               .send_rows = coll_rows_of(spec, COLLECTIVE_SEND, rank),
                               .recv_rows = coll_rows_of(spec, COLLECTIVE_RECV, rank)};
    return create_factor(self, call) ||
           (coll_is_in_place(spec) ? create_in_place(self, call) : create_out_of_place(self, call));
}

/* ---------------------------------------------------------------- issue */

static void *at(const struct ep_array *array, uint64_t begin_bytes)
{
    return array->data == NULL ? NULL : (char *)array->data + begin_bytes;
}

static weft_result issue_all_to_all_v(const struct coll_call *call, weft_coll *coll,
                                      weft_stream *stream)
{
    return weft_coll_all_to_all_v(
        coll,
        WEFT_ARGS(weft_coll_all_to_all_v_args, .send = call->send.data, .recv = call->recv.data,
                  .dtype = call->spec.dtype, .send_counts = (const int64_t *)call->send_rows.counts,
                  .send_offsets = (const int64_t *)call->send_rows.offsets,
                  .recv_counts = (const int64_t *)call->recv_rows.counts,
                  .recv_offsets = (const int64_t *)call->recv_rows.offsets),
        stream);
}

static weft_result issue_group(const struct coll_call *call, int32_t rank, weft_coll *coll,
                               weft_stream *stream)
{
    const struct transfers transfers = {
        .key = call->spec.seed,
        .rank = rank,
        .num_ranks = call->spec.num_ranks,
        .sent = {(const int64_t *)call->send_rows.counts, (const int64_t *)call->send_rows.offsets},
        .received = {(const int64_t *)call->recv_rows.counts,
                     (const int64_t *)call->recv_rows.offsets}};
    return transfers_issue(
        &transfers, &(struct transfer_arrays){call->send.data, call->recv.data, call->spec.dtype},
        coll, stream);
}

weft_result coll_call_issue(const struct coll_call *call, int32_t rank, weft_coll *coll,
                            weft_stream *stream)
{
    const struct coll_case *spec = &call->spec;
    const struct ep_array *send_array = coll_is_in_place(spec) ? &call->recv : &call->send;
    const void *send = at(send_array, call->send_begin_bytes);
    void *recv = at(&call->recv, call->recv_begin_bytes);
    const int is_premultiplied = coll_is_premultiplied(spec);
    if (spec->operation == COLL_ALL_TO_ALL_V)
        return issue_all_to_all_v(call, coll, stream);
    if (spec->operation == COLL_GROUP)
        return issue_group(call, rank, coll, stream);
    if (collective_has_root(coll_collective(spec->operation)) && rank != spec->root &&
        call->send_rows.num_rows == 0)
        send = NULL;
    if (collective_has_root(coll_collective(spec->operation)) && rank != spec->root &&
        call->recv_rows.num_rows == 0)
        recv = NULL;
    return collective_call(coll_collective(spec->operation), coll,
                           WEFT_ARGS(weft_coll_args, .send = send, .recv = recv,
                                     .count = (int64_t)spec->count, .dtype = spec->dtype,
                                     .op = is_premultiplied ? WEFT_PREMUL_SUM : spec->op,
                                     .root = spec->root,
                                     .factor = is_premultiplied && call->factor.data == NULL
                                                   ? coll_factor_of(spec, rank)
                                                   : 0,
                                     .factor_at = call->factor.data),
                           stream);
}

/* ---------------------------------------------------------------- verify */

static int compare(const struct coll_call *call, const struct ep_array *array, const char *expected,
                   const char *name)
{
    const char *which = array == &call->send ? "input" : "output";
    const uint64_t element_bytes = dtype_bytes(call->spec.dtype);
    const unsigned char *got = array->host;
    const unsigned char *wanted = (const unsigned char *)expected;
    char text[200], got_hex[17], wanted_hex[17];
    uint64_t i = 0;
    if (array->bytes == 0 || memcmp(got, wanted, array->bytes) == 0)
        return 0;
    while (got[i] == wanted[i])
        i++;
    const uint64_t element = i / element_bytes;
    for (uint64_t byte = 0; byte < element_bytes; byte++) {
        const uint64_t place = element * element_bytes + element_bytes - 1 - byte;
        snprintf(got_hex + 2 * byte, 3, "%02x", got[place]);
        snprintf(wanted_hex + 2 * byte, 3, "%02x", wanted[place]);
    }
    coll_describe(&call->spec, text, sizeof text);
    CHECK(got[i] == wanted[i],
          "%s: %s: element %llu of %s is 0x%s, expected 0x%s (0x%02x is untouched)", name, text,
          (unsigned long long)element, which, got_hex, wanted_hex, EP_GUARD);
    return 0;
}

/* What must be in the array: the inputs as they were, and the outputs if they are in it. */
static int verify_array(struct ep_rank *self, const struct coll_call *call, struct ep_array *array,
                        const char *name)
{
    const int32_t rank = self->context->rank;
    const int is_output = array == &call->recv;
    if (array->bytes == 0)
        return 0;
    char *expected = tests_alloc(array->bytes);
    memset(expected, EP_GUARD, array->bytes);
    if (!is_output || coll_is_in_place(&call->spec))
        write_inputs(call, rank, expected);
    if (is_output)
        write_outputs(call, rank, expected);
    const int failed = ep_array_pull(self, array) || compare(call, array, expected, name);
    tests_free(expected);
    return failed;
}

int coll_call_verify(struct ep_rank *self, struct coll_call *call, const char *name)
{
    char text[200];
    coll_describe(&call->spec, text, sizeof text);
    return verify_array(self, call, &call->send, name) ||
           verify_array(self, call, &call->recv, name) || ep_array_free(self, &call->send) ||
           ep_array_free(self, &call->factor) || ep_array_check_and_free(self, &call->recv, text);
}

int coll_call_destroy(struct ep_rank *self, struct coll_call *call)
{
    return ep_array_free(self, &call->send) || ep_array_free(self, &call->recv) ||
           ep_array_free(self, &call->factor);
}

int coll_check(struct ep_rank *self, weft_coll *coll, const struct coll_case *spec,
               const char *name)
{
    struct coll_call call;
    char text[200];
    if (coll_call_create(self, spec, &call))
        return 1;
    coll_describe(spec, text, sizeof text);
    weft_result result = coll_call_issue(&call, self->context->rank, coll, self->stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(self->stream);
    CHECK(result == WEFT_OK, "%s: %s: %s: %s", name, text, weft_result_string(result),
          weft_last_error());
    return coll_call_verify(self, &call, name);
}
