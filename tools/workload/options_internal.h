/* SPDX-License-Identifier: MIT */
/* Functions that the files of options.h share. */
#pragma once

#include "workload/options.h"

enum { OPTION_TEXT_BYTES = 1024 };

/* A text that is put together; what has no room is cut. */
struct option_text {
    char bytes[OPTION_TEXT_BYTES];
};
void option_add(struct option_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The names, separated by commas, with `last` before the last. */
void option_add_names(struct option_text *text, const char *const *names, const char *last);
/* As option_add_names with " or ", for values in one text, separated by commas. */
void option_add_list(struct option_text *text, const char *values);
/* 1 if text is one of the values, which are separated by commas; else 0. */
int option_is_among(const char *text, const char *values);

/* Parses a value and stores it; state is NULL of a usual one. */
void option_store(const struct option_row *option, const char *text, void *options,
                  struct argp_state *state);

static inline int option_is_named(const struct option_row *row)
{
    return row->type != OPTIONS_END && row->type < OPTION_ARGUMENT;
}

/* The sentence of --help, and the items of the manual page. */
void option_describe(const struct option_row *option, struct option_text *text);
void options_print_mdoc(const struct option_set *set);
/* For tools/completion, a line per option: the option; flag, value or values (separated by commas);
 * the choices, separated by commas, or -; the sentence. */
void options_print_completion(const struct option_set *set);
