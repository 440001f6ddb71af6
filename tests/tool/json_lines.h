/* SPDX-License-Identifier: MIT */
/* For programs that check what a command wrote with --json: one object per line, with promised fields. */
#ifndef TESTS_TOOL_JSON_LINES_H
#define TESTS_TOOL_JSON_LINES_H

#include <jansson.h>

/* Checks return how many complaints they made on standard error. */
int json_complain(const char *line, const char *field, const char *what);

double json_number_of(json_t *object, const char *field);

/* The fields of a list, which a NULL ends, hold integers or numbers, none negative. */
int json_check_integers(json_t *object, const char *line, const char *const *fields);
int json_check_numbers(json_t *object, const char *line, const char *const *fields);
/* us_min to us_max are in order; there are no errors, and ok says so. */
int json_check_outcome(json_t *object, const char *line);

/* Reads the lines of standard input. In each, check_object and FIELD=VALUE of every argument must hold.
 * The exit status. */
int json_check_lines(int argc, char **argv, int (*check_object)(json_t *object, const char *line));

#endif
