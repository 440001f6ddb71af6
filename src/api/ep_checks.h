/* SPDX-License-Identifier: MIT */
/* What the stream operations on a handle check alike. */
#pragma once

#include "ep/ep.h"

#include "api/check.h"

/* That the calls have been made which the operation needs. */
weft_result weft__ep_check_state(const weft_ep_handle *handle, enum weft__handle_state needed);
/* The objects of a call, and the same. */
weft_result weft__ep_check_operation(const weft_ep_handle *handle, weft_stream *stream,
                                     enum weft__handle_state needed);
/* Of memory of the machine; NULL, which stands for nothing, is no concern of this check. */
weft_result weft__ep_check_pointer(const weft_ep_handle *handle, const void *ptr, const char *name);
weft_result weft__ep_check_num_blocks(const weft_ep_handle *handle, int32_t num_blocks);
