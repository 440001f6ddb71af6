/* SPDX-License-Identifier: MIT */
/* Whether an operation does what the routing says. Before each, its earlier results are
 * destroyed. */
#pragma once

#include "ep_batch.h"

/* Enqueues what must come before an operation of these parts. */
int ep_check_prepare(struct ep_batch *batch, int parts);
/* Collective, behind the operation: adds how many counts, and units of rows, are wrong on all
 * ranks. */
int ep_check(struct ep_batch *batch, int parts, int64_t *num_wrong);
