/* SPDX-License-Identifier: MIT */
#pragma once

#include "gpus.h"
#include "report.h"

/* Large copies from GPU to GPU, one way between two and between all: by the copy engines, and by
 * multiprocessors that push or pull; checked. */
int limit_copies(struct gpus *gpus, const struct cuda_options *options, struct report *report);
