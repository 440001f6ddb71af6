/* SPDX-License-Identifier: MIT */
/* What --version prints; argp_program_version_hook. */
#ifndef WEFT_WORKLOAD_VERSION_H
#define WEFT_WORKLOAD_VERSION_H

#include <argp.h>
#include <stdio.h>

void version_print(FILE *stream, struct argp_state *state);

#endif
