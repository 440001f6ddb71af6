/* SPDX-License-Identifier: MIT */
/* Checks an operation's results against the routing. The results of an earlier call are overwritten
 * before the operation. */
#pragma once

#include "ep_batch.h"

/* Enqueues what must come before an operation of these parts. */
int ep_check_prepare(struct ep_batch *batch, int parts);
/* Collective, behind the operation: adds how many counts, and units of rows, are wrong on all
 * ranks. */
int ep_check(struct ep_batch *batch, int parts, int64_t *num_wrong);
