/* SPDX-License-Identifier: MIT */
/* The traces of a real model: read from WEFT_TRACE_DIR, or from beside the source tree. */
#pragma once

#include "workload/trace.h"

enum { NUM_TRACES = 3 };

/* Fails the test if it cannot be read. */
struct trace *traces_open(int which);
/* The main function of tests of traces: skipped, with the reason, if one is not there. */
int traces_main(void);
