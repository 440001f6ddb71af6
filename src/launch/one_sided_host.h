/* SPDX-License-Identifier: MIT */
/* Host side of the one-sided operations: a launch for each, which no other rank takes part in. */
#pragma once

#include "launch/programs.h"

/* The access, whose places are in the heap; its rank exists. */
weft_result weft__one_sided_access(weft_comm *comm, const struct wp_access *access,
                                   weft_stream *stream);
/* Until all earlier accesses of this rank are visible. */
weft_result weft__one_sided_quiet(weft_comm *comm, weft_stream *stream);
/* `place` is that of the word, in the own heap. */
weft_result weft__one_sided_wait(weft_comm *comm, uint64_t place, uint64_t at_least,
                                 weft_stream *stream);
