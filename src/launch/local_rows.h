/* SPDX-License-Identifier: MIT */
/* Host side of the operations on rows of this rank alone. */
#pragma once

#include "launch/programs.h"
#include "programs/quantise.h"

/* Fills in the parts of the rows, all else is given. */
weft_result weft__rows_launch(weft_comm *comm, struct wp_quantise_args *args, weft_stream *stream);
