/* SPDX-License-Identifier: MIT */
#pragma once

#include "gpus.h"
#include "report.h"

/* The bounds of dispatch and combine on these GPUs with that many multiprocessors: rows pushed
 * to where they belong, rows pulled and summed, and nothing else; with each kernel, checked. */
int limit_rows(struct gpus *gpus, const struct cuda_options *options, struct report *report);
