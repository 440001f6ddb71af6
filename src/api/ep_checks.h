/* SPDX-License-Identifier: MIT */
/* The checks that all stream operations on a handle share. */
#pragma once

#include "ep/ep.h"

#include "api/check.h"

/* Checks that the calls have been made which the operation needs. */
weft_result weft__ep_check_state(const weft_ep_handle *handle, enum weft__handle_state needed);
/* Checks the objects of a call, and its state. */
weft_result weft__ep_check_operation(const weft_ep_handle *handle, weft_stream *stream,
                                     enum weft__handle_state needed);
/* Checks that the machine can access the memory. NULL passes. */
weft_result weft__ep_check_pointer(const weft_ep_handle *handle, const void *ptr, const char *name);
weft_result weft__ep_check_num_blocks(const weft_ep_handle *handle, int32_t num_blocks);
