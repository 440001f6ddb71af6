/* SPDX-License-Identifier: MIT */
/* Reads what `weft coll --json` wrote from standard input: one object per line, size and place, with all
 * promised fields and figures that follow from each other. Arguments FIELD=VALUE must hold in every
 * line. */
#include <math.h>
#include <string.h>

#include "json_lines.h"

static const char *const integer_fields[] = {"ranks",        "bytes",       "count",   "iters",
                                             "warmup",       "blocks",      "warps",   "seed",
                                             "packet_bytes", "graph_calls", "checked", NULL};
static const char *const number_fields[] = {"us_min", "us_median", "us_max",
                                            "algbw",  "busbw",     NULL};
static const char *const string_fields[] = {"op", "algo", "machine", "dtype", "memory"};

static int is_op(json_t *object, const char *name)
{
    const char *op = json_string_value(json_object_get(object, "op"));
    return op != NULL && strcmp(op, name) == 0;
}

/* Bus bandwidth over the algorithm's, as nccl-tests defines it. */
static double bus_factor(json_t *object)
{
    const double num_ranks = json_number_of(object, "ranks");
    if (is_op(object, "broadcast"))
        return 1;
    return (is_op(object, "all_reduce") ? 2 : 1) * (num_ranks - 1) / num_ranks;
}

static int differ(double value, double expected)
{
    return fabs(value - expected) > 1e-6 * fabs(expected);
}

static int check_bandwidths(json_t *object, const char *line)
{
    const double us = json_number_of(object, "us_median"), algbw = json_number_of(object, "algbw");
    int num_errors = 0;
    if (differ(algbw * us, json_number_of(object, "bytes") / 1000))
        num_errors += json_complain(line, "algbw", "is not bytes over us_median");
    if (differ(json_number_of(object, "busbw"), algbw * bus_factor(object)))
        num_errors += json_complain(line, "busbw", "does not follow from algbw");
    return num_errors;
}

/* In elements, of all ranks. */
static double num_results(json_t *object)
{
    const double results = json_number_of(object, "count") * json_number_of(object, "ranks");
    const int has_rows = is_op(object, "all_gather") || is_op(object, "all_to_all");
    return has_rows ? results * json_number_of(object, "ranks") : results;
}

/* Who has not looked does not know. */
static int check_unchecked(json_t *object, const char *line)
{
    int num_errors = 0;
    if (json_number_of(object, "checked") != 0)
        num_errors += json_complain(line, "errors", "is null though results were checked");
    if (!json_is_null(json_object_get(object, "ok")))
        num_errors += json_complain(line, "ok", "is not null though errors is");
    return num_errors;
}

static int check_results(json_t *object, const char *line)
{
    if (json_is_null(json_object_get(object, "errors")))
        return check_unchecked(object, line);
    if (json_number_of(object, "checked") != num_results(object))
        return json_complain(line, "checked", "is not the number of results");
    return json_check_outcome(object, line);
}

static int check_object(json_t *object, const char *line)
{
    int num_errors = json_check_integers(object, line, integer_fields) +
                     json_check_numbers(object, line, number_fields) + check_results(object, line) +
                     check_bandwidths(object, line);
    for (size_t i = 0; i < sizeof(string_fields) / sizeof(string_fields[0]); i++) {
        if (!json_is_string(json_object_get(object, string_fields[i])))
            num_errors += json_complain(line, string_fields[i], "is not a string");
    }
    if (!json_is_boolean(json_object_get(object, "in_place")))
        num_errors += json_complain(line, "in_place", "is neither true nor false");
    return num_errors;
}

int main(int argc, char **argv)
{
    return json_check_lines(argc, argv, check_object);
}
