/* SPDX-License-Identifier: MIT */
/* Values of command-line options: a bad one ends the process with STATUS_USAGE and a message that
 * names option, value and allowed range. */
#ifndef WEFT_TOOL_OPTIONS_H
#define WEFT_TOOL_OPTIONS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

int64_t option_integer(struct argp_state *state, const char *option, const char *text, int64_t min,
                       int64_t max);
double option_number(struct argp_state *state, const char *option, const char *text, double min,
                     double max);
/* The index of text among `choices`, which a NULL ends. */
int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices);

#endif
