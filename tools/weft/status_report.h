/* SPDX-License-Identifier: MIT */
/* The ranks of a live job, as weft status and SIGUSR1 of weft run show them. */
#pragma once

#include <stdio.h>

#include "weft.h"

enum status_format { STATUS_FORMAT_TEXT, STATUS_FORMAT_JSON };

/* Asks the ranks and prints what they say. `pid`: of the process with the rendezvous; 0: not known.
 * WEFT_OK, or why nothing is known; then nothing is printed. */
weft_result status_print(FILE *stream, enum status_format format, const weft_unique_id *id,
                         int32_t pid);
