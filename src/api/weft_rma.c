/* SPDX-License-Identifier: MIT */
#include "launch/one_sided_host.h"

#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"

/* ---------------------------------------------------------------- checks */

/* Fields that an operation does not use must be zero. */
enum use { USE_RANK = 1, USE_BYTES = 2, USE_WORD = 4, USE_VALUE = 8, USE_BEFORE = 16 };

static weft_result check_unused(const weft_rma_args *args, uint32_t used)
{
    if (!(used & USE_RANK))
        WEFT__TRY(weft__check_unused((uint64_t)args->rank, "rank"));
    if (!(used & USE_BYTES)) {
        WEFT__TRY(weft__check_unused((uintptr_t)args->dst, "dst"));
        WEFT__TRY(weft__check_unused((uintptr_t)args->src, "src"));
        WEFT__TRY(weft__check_unused(args->bytes, "bytes"));
    }
    if (!(used & USE_WORD))
        WEFT__TRY(weft__check_unused((uintptr_t)args->word, "word"));
    if (!(used & USE_VALUE))
        WEFT__TRY(weft__check_unused(args->value, "value"));
    if (!(used & USE_BEFORE))
        WEFT__TRY(weft__check_unused((uintptr_t)args->before, "before"));
    return weft__check_unused((uint64_t)args->reserved, "reserved");
}

static weft_result find_word(const weft_comm *comm, const uint64_t *word, const char *name,
                             uint64_t *place)
{
    WEFT__TRY(weft__check_not_null(word, name));
    WEFT__TRY(weft__check_address(word, sizeof *word, name));
    return weft__heap_offset(comm->heap, word, sizeof *word, name, place);
}

/* Puts and adds change memory of `rank`: memory here can only overlap it if that is this
 * rank. No get has a word. */
static weft_result check_overlaps(const weft_comm *comm, const weft_rma_args *args)
{
    const struct weft__extent extents[] = {
        weft__extent_of("dst", WEFT__EXTENT_WRITTEN, args->dst, 1, args->bytes),
        weft__extent_of("word", WEFT__EXTENT_WRITTEN, args->word, 1, sizeof *args->word),
        weft__extent_of("src", WEFT__EXTENT_READ, args->src, 1, args->bytes),
        weft__extent_of("before", WEFT__EXTENT_WRITTEN, args->before, 1, sizeof *args->before)};
    return weft__check_overlaps(extents, args->rank == comm->rank ? 4 : 2);
}

static weft_result find_bytes(const weft_comm *comm, const weft_rma_args *args,
                              struct wp_access *access)
{
    access->num_bytes = args->bytes;
    if (args->bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__heap_offset(comm->heap, args->dst, args->bytes, "dst", &access->target));
    return weft__heap_offset(comm->heap, args->src, args->bytes, "src", &access->source);
}

/* ---------------------------------------------------------------- accesses */

/* Checks all that the operation uses, and launches it. */
static weft_result run(weft_comm *comm, const weft_rma_args *given, uint32_t used,
                       uint32_t operation, weft_stream *stream)
{
    weft_rma_args args;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_rma_args, &args, given, "args"));
    WEFT__TRY(weft__check_range(args.rank, 0, comm->num_ranks - 1, "rank"));
    WEFT__TRY(check_unused(&args, used));
    struct wp_access access = {.operation = operation, .rank = args.rank, .add = args.value};
    if (used & USE_BYTES)
        WEFT__TRY(find_bytes(comm, &args, &access));
    if (used & USE_BEFORE)
        WEFT__TRY(find_word(comm, args.before, "before", &access.target));
    if (used & USE_WORD)
        WEFT__TRY(find_word(comm, args.word, "word", &access.word));
    WEFT__TRY(check_overlaps(comm, &args));
    return weft__one_sided_access(comm, &access, stream);
}

weft_result weft_rma_put(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_PUT;
    return run(comm, args, USE_RANK | USE_BYTES, WP_ACCESS_PUT, stream);
}

weft_result weft_rma_get(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_GET;
    return run(comm, args, USE_RANK | USE_BYTES, WP_ACCESS_GET, stream);
}

weft_result weft_rma_put_signal(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_PUT_SIGNAL;
    return run(comm, args, USE_RANK | USE_BYTES | USE_WORD | USE_VALUE, WP_ACCESS_PUT_SIGNAL,
               stream);
}

weft_result weft_rma_signal(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_SIGNAL;
    return run(comm, args, USE_RANK | USE_WORD | USE_VALUE, WP_ACCESS_PUT_SIGNAL, stream);
}

weft_result weft_rma_add(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_ADD;
    return run(comm, args, USE_RANK | USE_WORD | USE_VALUE, WP_ACCESS_PUT_SIGNAL, stream);
}

weft_result weft_rma_fetch_add(weft_comm *comm, const weft_rma_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_FETCH_ADD;
    return run(comm, args, USE_RANK | USE_WORD | USE_VALUE | USE_BEFORE, WP_ACCESS_FETCH_ADD,
               stream);
}

/* ---------------------------------------------------------------- waits */

weft_result weft_rma_wait_until(weft_comm *comm, const weft_rma_args *given, weft_stream *stream)
{
    weft_rma_args args;
    uint64_t place = 0;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_rma_args, &args, given, "args"));
    WEFT__TRY(check_unused(&args, USE_WORD | USE_VALUE));
    WEFT__TRY(find_word(comm, args.word, "word", &place));
    weft__current_call = WEFT__CALL_RMA_WAIT_UNTIL;
    return weft__one_sided_wait(comm, place, args.value, stream);
}

static weft_result flush(weft_comm *comm, weft_stream *stream)
{
    WEFT__TRY(weft__operands_check(comm, stream));
    return weft__one_sided_quiet(comm, stream);
}

/* The contract is weaker than that of quiet; the network's signals would do for the puts, not for
 * the adds. */
weft_result weft_rma_fence(weft_comm *comm, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_FENCE;
    return flush(comm, stream);
}

weft_result weft_rma_quiet(weft_comm *comm, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_RMA_QUIET;
    return flush(comm, stream);
}
