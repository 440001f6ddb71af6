/* SPDX-License-Identifier: MIT */
/* The output of weft sim. Each returns 0, or -1 when it cannot be written. */
#pragma once

#include "suite.h"
#include "weaken.h"

int report_suite(const struct sim_options *options, enum scenario_op op,
                 const struct suite_tally *tally);
int report_weakening(const struct sim_options *options, const struct weakening *weakening);
