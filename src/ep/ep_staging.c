/* SPDX-License-Identifier: MIT */
#include "ep/ep_staging.h"

#include "memory/registered.h"
#include "programs/copy.h"
#include "programs/ep/notify.h"

enum { COPIED_CHUNK_BYTES = 16 << 10, STAGED_ALIGNMENT = 16, MAX_SLOTS = 1 << 28 };

void weft__arrays_add(struct weft__arrays *arrays, int message_array, const void *ptr,
                      uint64_t row_bytes, const char *name)
{
    arrays->list[arrays->num_arrays++] = (struct weft__array){
        .message_array = message_array,
        .ptr = (char *)(uintptr_t)ptr, /* NOLINT(performance-no-int-to-ptr): const or not */
        .row_bytes = row_bytes,
        .name = name};
}

static uint64_t num_bytes(const struct weft__arrays *arrays, const struct weft__array *array)
{
    return (uint64_t)arrays->message->capacity * array->row_bytes;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + STAGED_ALIGNMENT - 1) / STAGED_ALIGNMENT * STAGED_ALIGNMENT;
}

/* ------------------------------------------------------------------ what is staged */

static weft_result check_stageable(const struct weft__arrays *arrays,
                                   const struct weft__array *array)
{
    const weft_ep *ep = arrays->handle->ep;
    weft_comm *comm = ep->comm;
    uint64_t offset;
    /* Memory that begins in the heap, and does not end there, is wrong rather than elsewhere. */
    if (array->ptr == NULL || weft__heap_peer(comm->heap, array->ptr, comm->rank) != NULL)
        WEFT__TRY(weft__heap_offset(comm->heap, array->ptr, num_bytes(arrays, array), array->name,
                                    &offset));
    WEFT__TRY(weft__machine_of(comm)->check_pointer(comm, array->ptr, array->name));
    if (ep->staging_bytes == 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "%s is neither in the heap nor registered (weft_memory_register), and "
                           "staging_bytes of weft_ep_config is 0, so that nothing is staged",
                           array->name);
    return WEFT_OK;
}

/* Those that are reached where they are have their places then; *first: the first other one, or
 * NULL. */
static weft_result find_places(struct weft__arrays *arrays, const struct weft__array **first,
                               uint64_t *staged_bytes)
{
    const weft_ep *ep = arrays->handle->ep;
    *first = NULL;
    *staged_bytes = 0;
    for (int32_t i = 0; i < arrays->num_arrays; i++) {
        struct weft__array *array = &arrays->list[i];
        const uint64_t bytes = num_bytes(arrays, array);
        uint64_t *place = &arrays->message->arrays[array->message_array];
        if (bytes == 0 || weft__registered_find(ep->comm, array->ptr, bytes, place))
            continue;
        WEFT__TRY(check_stageable(arrays, array));
        array->staged = ep->staging + *staged_bytes; /* if all fit */
        *staged_bytes += aligned(bytes);
        *first = *first == NULL ? array : *first;
    }
    return WEFT_OK;
}

static uint64_t place_of(const struct weft__arrays *arrays, const char *staged)
{
    uint64_t offset = 0;
    (void)weft__heap_contains(arrays->handle->ep->comm->heap, staged, 1, &offset);
    return offset;
}

/* ------------------------------------------------------------------ rounds */

enum { BYTES_PER_WORD = 64 }; /* of the staging block */

uint64_t weft__staging_words_bytes(uint64_t staging_bytes)
{
    return (staging_bytes + BYTES_PER_WORD - 1) / BYTES_PER_WORD * sizeof(int32_t);
}

/* Bytes of a token at all ranks, with all that it may have, so that it is the same number on all
 * ranks. */
static uint64_t token_bytes(const struct weft__arrays *arrays)
{
    const struct wp_call *call = &arrays->message->call;
    uint64_t bytes =
        (uint64_t)wp_call_num_topk(call) * (sizeof(int64_t) + sizeof(float)) + sizeof(int32_t);
    for (int32_t plane = 0; plane < wp_call_num_planes(call); plane++)
        bytes += call->row_bytes[plane];
    return (bytes < BYTES_PER_WORD ? BYTES_PER_WORD : bytes) *
           (uint64_t)arrays->handle->ep->comm->num_ranks;
}

enum { LOST_BYTES = WP_NUM_MESSAGE_ARRAYS * STAGED_ALIGNMENT };

static int32_t round_tokens(const struct weft__arrays *arrays)
{
    const uint64_t staging_bytes = arrays->handle->ep->staging_bytes;
    const uint64_t most = (uint64_t)MAX_SLOTS / (uint64_t)arrays->handle->ep->comm->num_ranks;
    const uint64_t tokens =
        staging_bytes < LOST_BYTES ? 0 : (staging_bytes - LOST_BYTES) / token_bytes(arrays);
    return (int32_t)(tokens < most ? tokens : most);
}

static weft_result check_rounds(const struct weft__arrays *arrays, const struct weft__array *first,
                                uint64_t staged_bytes)
{
    const weft_ep *ep = arrays->handle->ep;
    const uint64_t least = ep->internode == NULL ? LOST_BYTES + token_bytes(arrays) : staged_bytes;
    if (ep->staging_bytes >= least)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "%s is neither in the heap nor registered (weft_memory_register), and "
                       "staging_bytes of weft_ep_config is %llu: to stage this operation%s takes "
                       "%llu at least",
                       first->name, (unsigned long long)ep->staging_bytes,
                       ep->internode == NULL ? "" : " between nodes, which is done at once,",
                       (unsigned long long)least);
}

/* Slots in place of rows, for all arrays. */
static void place_slots(struct weft__arrays *arrays)
{
    const weft_ep *ep = arrays->handle->ep;
    const uint64_t num_slots =
        (uint64_t)arrays->rounds->round_tokens * (uint64_t)ep->comm->num_ranks;
    char *staged = ep->staging;
    arrays->message->is_staged = 1;
    for (int32_t i = 0; i < arrays->num_arrays; i++) {
        struct weft__array *array = &arrays->list[i];
        arrays->message->arrays[array->message_array] = place_of(arrays, staged);
        arrays->rounds->arrays[array->message_array] = array->ptr;
        array->staged = NULL;
        staged += aligned(num_slots * array->row_bytes);
    }
}

/* ------------------------------------------------------------------ both */

weft_result weft__arrays_place(struct weft__arrays *arrays)
{
    const weft_ep *ep = arrays->handle->ep;
    const struct weft__array *first;
    uint64_t staged_bytes;
    WEFT__TRY(find_places(arrays, &first, &staged_bytes));
    arrays->rounds->round_tokens = ep->staging_bytes == 0 ? 0 : round_tokens(arrays);
    arrays->rounds->words_offset = weft__exchange_extra_offset(ep->exchange) +
                                   wp_notify_counts_bytes(ep->comm->num_ranks, ep->counts_stride);
    if (staged_bytes > ep->staging_bytes) {
        WEFT__TRY(check_rounds(arrays, first, staged_bytes));
        place_slots(arrays);
    }
    for (int32_t i = 0; i < arrays->num_arrays; i++) {
        const struct weft__array *array = &arrays->list[i];
        if (array->staged != NULL)
            arrays->message->arrays[array->message_array] = place_of(arrays, array->staged);
    }
    return WEFT_OK;
}

weft_result weft__arrays_copy(const struct weft__arrays *arrays, enum weft__staging_way way,
                              weft_stream *stream)
{
    const weft_ep *ep = arrays->handle->ep;
    const struct weft__work work = {.kind = WEFT__WORK_PUSH_TENSOR,
                                    .row_bytes = COPIED_CHUNK_BYTES};
    struct wp_copy_args copies = {.chunk_bytes = COPIED_CHUNK_BYTES};
    for (int32_t i = 0; i < arrays->num_arrays; i++) {
        const struct weft__array *array = &arrays->list[i];
        if (array->staged == NULL)
            continue;
        copies.rows[copies.num_rows++] = (struct wp_copied_row){
            .src = way == WEFT__TO_STAGING ? array->ptr : array->staged,
            .dst = way == WEFT__TO_STAGING ? array->staged : array->ptr,
            .bytes = num_bytes(arrays, array),
            .num_rows = arrays->handle->routing.recv_rows,
            .row_bytes = array->row_bytes,
        };
    }
    /* In the order of the operations, which use the staging block in turn. */
    return copies.num_rows == 0
               ? WEFT_OK
               : weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_copy,
                                       weft__ep_grid(ep, &work), &copies, sizeof copies);
}
