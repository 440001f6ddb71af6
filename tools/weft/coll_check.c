/* SPDX-License-Identifier: MIT */
#include "coll_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "coll_measure.h"
#include "workload/failure.h"
#include "workload/of_ranks.h"

struct check {
    const struct coll_run *run;
    const struct collective *collective;
    enum coll_place place;
    char *piece, *expected; /* [COLL_PIECE_BYTES] */
    struct coll_tally tally;
};

static void print_element(const char *element, size_t bytes)
{
    for (size_t i = bytes; i > 0; i--) /* the machines are little-endian */
        fprintf(stderr, "%02x", (unsigned)(unsigned char)element[i - 1]);
}

static void tell_first_wrong(const struct check *check, uint64_t offset, uint64_t index)
{
    const size_t bytes = dtype_bytes(check->collective->source.dtype);
    const unsigned long long element = offset / bytes + index;
    fprintf(stderr, "weft coll: rank %d: %s of %llu bytes, %s: first wrong element: %llu: 0x",
            check->run->rank, collective_names[check->collective->kind],
            (unsigned long long)collective_bytes(check->collective),
            check->place == COLL_IN_PLACE ? "in place" : "out of place", element);
    print_element(check->piece + index * bytes, bytes);
    fputs(", must be 0x", stderr);
    print_element(check->expected + index * bytes, bytes);
    fputc('\n', stderr);
}

static weft_result compare(struct check *check, const char *recv)
{
    const weft_dtype dtype = check->collective->source.dtype;
    const uint64_t recv_bytes = collective_recv_bytes(check->collective, check->run->rank);
    struct coll_tally *tally = &check->tally;
    weft_result result = WEFT_OK;
    for (uint64_t at = 0; at < recv_bytes && result == WEFT_OK; at += COLL_PIECE_BYTES) {
        const uint64_t bytes = coll_piece_bytes(at, recv_bytes), count = bytes / dtype_bytes(dtype);
        uint64_t first_wrong = 0;
        result = weft_memory_copy(check->run->comm, check->piece, recv + at, bytes);
        if (result != WEFT_OK)
            break;
        collective_expect(check->collective, check->run->rank, at, bytes, check->expected);
        const uint64_t num_wrong =
            elements_count_wrong(dtype, check->piece, check->expected, count, &first_wrong);
        if (num_wrong > 0 && tally->num_wrong == 0)
            tell_first_wrong(check, at, first_wrong);
        tally->num_checked += count;
        tally->num_wrong += num_wrong;
    }
    return result;
}

/* In place a second call would find the result of the first as its input. */
static weft_result run_calls(const struct coll_run *run, const struct collective *collective,
                             enum coll_place place)
{
    struct coll_calls calls = {
        .run = run,
        .collective = collective,
        .place = place,
        .num_calls = place == COLL_IN_PLACE ? 1 : coll_calls_per_launch(run->options)};
    weft_result result = coll_calls_prepare(&calls);
    if (result == WEFT_OK)
        result = coll_calls_enqueue(&calls);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(run->stream);
    coll_calls_drop(&calls);
    return result;
}

weft_result coll_check(const struct coll_run *run, const struct collective *collective,
                       enum coll_place place, struct coll_tally *tally)
{
    struct check check = {.run = run,
                          .collective = collective,
                          .place = place,
                          .piece = malloc(COLL_PIECE_BYTES),
                          .expected = malloc(COLL_PIECE_BYTES)};
    const struct coll_buffers buffers = coll_run_buffers(run, collective, place);
    weft_result result = check.piece && check.expected ? coll_run_fill(run, collective, place)
                                                       : LACKS_MEMORY("the check of a result");
    if (result == WEFT_OK)
        result = run_calls(run, collective, place);
    if (result == WEFT_OK)
        result = compare(&check, buffers.recv);
    if (result == WEFT_OK)
        result = sum_of_ranks(run->comm, (int64_t *)&check.tally, 2);
    if (result == WEFT_OK)
        *tally = check.tally;
    free(check.piece);
    free(check.expected);
    return result;
}
