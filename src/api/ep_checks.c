/* SPDX-License-Identifier: MIT */
#include "api/ep_checks.h"
#include "api/objects.h"

weft_result weft__ep_check_state(const weft_ep_handle *handle, enum weft__handle_state needed)
{
    if (handle->state >= needed)
        return WEFT_OK;
    return weft__invalid("handle: %s must be called on it before this operation",
                         handle->state == WEFT__HANDLE_EMPTY ? "weft_ep_layout" : "weft_ep_notify");
}

weft_result weft__ep_check_pointer(const weft_ep_handle *handle, const void *ptr, const char *name)
{
    weft_comm *comm = handle->ep->comm;
    return ptr == NULL ? WEFT_OK : weft__machine_of(comm)->check_pointer(comm, ptr, name);
}

weft_result weft__ep_check_operation(const weft_ep_handle *handle, weft_stream *stream,
                                     enum weft__handle_state needed)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_HANDLE, handle, "handle"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    if (handle->max_tokens == 0 && stream->machine->stream_is_capturing(stream))
        return weft__invalid("handle: its max_tokens is 0, so that its memory grows, which a graph "
                             "would not see: give max_tokens to capture it");
    return weft__ep_check_state(handle, needed);
}

weft_result weft__ep_check_num_blocks(const weft_ep_handle *handle, int32_t num_blocks)
{
    return weft__check_range(num_blocks, 0, weft__ep_max_local_blocks(handle->ep), "num_blocks");
}
