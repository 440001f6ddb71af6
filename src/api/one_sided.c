/* SPDX-License-Identifier: MIT */
#include "ops/one_sided.h"

#include "api/destroy.h"
#include "api/overlap.h"

/* ---------------------------------------------------------------- checks */

static weft_result check_call(const weft_comm *comm, const weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    return weft__object_check(WEFT__KIND_STREAM, stream, "stream");
}

static weft_result check_call_to(const weft_comm *comm, int32_t rank, const weft_stream *stream)
{
    WEFT__TRY(check_call(comm, stream));
    return weft__check_range(rank, 0, comm->num_ranks - 1, "rank");
}

static weft_result find_word(const weft_comm *comm, const uint64_t *word, const char *name,
                             uint64_t *place)
{
    WEFT__TRY(weft__check_not_null(word, name));
    if ((uintptr_t)word % sizeof *word != 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is %p, must be aligned to %zu bytes",
                           name, (const void *)word, sizeof *word);
    return weft__heap_offset(comm->heap, word, sizeof *word, name, place);
}

/* Addresses of what is remote are of this rank's memory only if the rank is this one. */
static weft_result check_overlaps(const weft_comm *comm, int32_t rank, struct weft__extent remote,
                                  struct weft__extent local)
{
    const struct weft__extent extents[] = {remote, local};
    return rank == comm->rank ? weft__check_overlaps(extents, 2) : WEFT_OK;
}

/* Checks the whole call, but for the words. */
static weft_result find_bytes(const weft_comm *comm, const void *dst, const void *src,
                              const weft_stream *stream, struct weft_access *access)
{
    WEFT__TRY(check_call_to(comm, access->rank, stream));
    if (access->num_bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__heap_offset(comm->heap, dst, access->num_bytes, "dst", &access->target));
    WEFT__TRY(weft__heap_offset(comm->heap, src, access->num_bytes, "src", &access->source));
    return check_overlaps(comm, access->rank,
                          weft__extent_of("dst", WEFT__EXTENT_WRITTEN, dst, 1, access->num_bytes),
                          weft__extent_of("src", WEFT__EXTENT_READ, src, 1, access->num_bytes));
}

/* ---------------------------------------------------------------- accesses */

weft_result weft_put_on_stream(weft_comm *comm, void *dst, const void *src, size_t bytes,
                               int32_t rank, weft_stream *stream)
{
    struct weft_access access = {.operation = WEFT_ACCESS_PUT, .rank = rank, .num_bytes = bytes};
    WEFT__TRY(find_bytes(comm, dst, src, stream, &access));
    return weft__one_sided_access(comm, &access, stream);
}

weft_result weft_get_on_stream(weft_comm *comm, void *dst, const void *src, size_t bytes,
                               int32_t rank, weft_stream *stream)
{
    struct weft_access access = {.operation = WEFT_ACCESS_GET, .rank = rank, .num_bytes = bytes};
    WEFT__TRY(find_bytes(comm, dst, src, stream, &access));
    return weft__one_sided_access(comm, &access, stream);
}

weft_result weft_put_signal_on_stream(weft_comm *comm, void *dst, const void *src, size_t bytes,
                                      uint64_t *signal, uint64_t add, int32_t rank,
                                      weft_stream *stream)
{
    struct weft_access access = {
        .operation = WEFT_ACCESS_PUT_SIGNAL, .rank = rank, .num_bytes = bytes, .add = add};
    WEFT__TRY(find_bytes(comm, dst, src, stream, &access));
    WEFT__TRY(find_word(comm, signal, "signal", &access.word));
    const struct weft__extent extents[] = {
        weft__extent_of("dst", WEFT__EXTENT_WRITTEN, dst, 1, bytes),
        weft__extent_of("signal", WEFT__EXTENT_WRITTEN, signal, 1, sizeof *signal)};
    WEFT__TRY(weft__check_overlaps(extents, 2));
    return weft__one_sided_access(comm, &access, stream);
}

weft_result weft_signal_on_stream(weft_comm *comm, uint64_t *signal, uint64_t add, int32_t rank,
                                  weft_stream *stream)
{
    return weft_put_signal_on_stream(comm, NULL, NULL, 0, signal, add, rank, stream);
}

weft_result weft_atomic_add_on_stream(weft_comm *comm, uint64_t *word, uint64_t add, int32_t rank,
                                      weft_stream *stream)
{
    struct weft_access access = {.operation = WEFT_ACCESS_PUT_SIGNAL, .rank = rank, .add = add};
    WEFT__TRY(check_call_to(comm, rank, stream));
    WEFT__TRY(find_word(comm, word, "word", &access.word));
    return weft__one_sided_access(comm, &access, stream);
}

weft_result weft_atomic_fetch_add_on_stream(weft_comm *comm, uint64_t *before, uint64_t *word,
                                            uint64_t add, int32_t rank, weft_stream *stream)
{
    struct weft_access access = {.operation = WEFT_ACCESS_FETCH_ADD, .rank = rank, .add = add};
    WEFT__TRY(check_call_to(comm, rank, stream));
    WEFT__TRY(find_word(comm, before, "before", &access.target));
    WEFT__TRY(find_word(comm, word, "word", &access.word));
    WEFT__TRY(check_overlaps(
        comm, rank, weft__extent_of("word", WEFT__EXTENT_WRITTEN, word, 1, sizeof *word),
        weft__extent_of("before", WEFT__EXTENT_WRITTEN, before, 1, sizeof *before)));
    return weft__one_sided_access(comm, &access, stream);
}

/* ---------------------------------------------------------------- waits */

weft_result weft_wait_until_on_stream(weft_comm *comm, const uint64_t *word, uint64_t value,
                                      weft_stream *stream)
{
    uint64_t place = 0;
    WEFT__TRY(check_call(comm, stream));
    WEFT__TRY(find_word(comm, word, "word", &place));
    return weft__one_sided_wait(comm, place, value, stream);
}

/* The contract is weaker than that of quiet; the network's signals would do for the puts, not for the adds. */
weft_result weft_fence_on_stream(weft_comm *comm, weft_stream *stream)
{
    return weft_quiet_on_stream(comm, stream);
}

weft_result weft_quiet_on_stream(weft_comm *comm, weft_stream *stream)
{
    WEFT__TRY(check_call(comm, stream));
    return weft__one_sided_quiet(comm, stream);
}
