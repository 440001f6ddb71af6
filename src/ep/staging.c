/* SPDX-License-Identifier: MIT */
#include "ep/staging.h"

#include "ops/registered.h"
#include "programs/copy.h"

enum { COPIED_CHUNK_BYTES = 16 << 10, STAGED_ALIGNMENT = 256 };

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

/* A place in the staging block, of which *used_bytes are taken. */
static weft_result stage(const struct weft__arrays *arrays, struct weft__array *array,
                         uint64_t *used_bytes, uint64_t *place)
{
    const weft_ep *ep = arrays->handle->ep;
    weft_comm *comm = ep->comm;
    const uint64_t bytes = num_bytes(arrays, array);
    if (array->ptr == NULL || weft__heap_peer(comm->heap, array->ptr, comm->rank) != NULL)
        return weft__heap_offset(comm->heap, array->ptr, bytes, array->name, place);
    WEFT__TRY(weft__machine_of(comm)->check_pointer(comm, array->ptr, array->name));
    if (*used_bytes > ep->staging_bytes || bytes > ep->staging_bytes - *used_bytes)
        return weft__error(
            WEFT_ERROR_UNSUPPORTED,
            "%s is neither in the heap nor registered (weft_memory_register), and for its %llu "
            "bytes there are %llu in the staging block of %llu (weft_ep_config.staging_bytes)",
            array->name, (unsigned long long)bytes,
            (unsigned long long)(*used_bytes < ep->staging_bytes ? ep->staging_bytes - *used_bytes
                                                                 : 0),
            (unsigned long long)ep->staging_bytes);
    array->staged = ep->staging + *used_bytes;
    *used_bytes += (bytes + STAGED_ALIGNMENT - 1) / STAGED_ALIGNMENT * STAGED_ALIGNMENT;
    return weft__heap_offset(comm->heap, array->staged, bytes, array->name, place);
}

weft_result weft__arrays_place(struct weft__arrays *arrays)
{
    const weft_comm *comm = arrays->handle->ep->comm;
    uint64_t used_bytes = 0;
    for (int32_t i = 0; i < arrays->num_arrays; i++) {
        struct weft__array *array = &arrays->list[i];
        const uint64_t bytes = num_bytes(arrays, array);
        uint64_t *place = &arrays->message->arrays[array->message_array];
        if (bytes > 0 && !weft__registered_find(comm, array->ptr, bytes, place))
            WEFT__TRY(stage(arrays, array, &used_bytes, place));
    }
    return WEFT_OK;
}

weft_result weft__arrays_copy(const struct weft__arrays *arrays, enum weft__staging_way way,
                              weft_stream *stream)
{
    const weft_ep *ep = arrays->handle->ep;
    const struct weft__work work = {WEFT__WORK_PUSH_TENSOR, 0, COPIED_CHUNK_BYTES};
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
