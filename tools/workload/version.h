/* SPDX-License-Identifier: MIT */
/* What --version prints; argp_program_version_hook. */
#pragma once

#include <argp.h>
#include <stdio.h>

void version_print(FILE *stream, struct argp_state *state);
