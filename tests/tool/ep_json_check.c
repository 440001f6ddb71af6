/* SPDX-License-Identifier: MIT */
/* Reads what `weft ep --json` wrote from standard input: one object per line, one line per
 * operation, with all promised fields and consistent figures. Arguments FIELD=VALUE must hold in
 * every line. */
#include <string.h>

#include "json_lines.h"

static const char *const operations[] = {"layout", "notify", "dispatch", "combine", "layer"};
enum { NUM_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

static const char *const integer_fields[] = {
    "ranks",  "nodes", "tokens",        "hidden",       "topk",         "experts", "warps",
    "blocks", "iters", "bytes_logical", "bytes_remote", "checked_rows", "errors",  NULL};
static const char *const number_fields[] = {"us_min",       "us_median",   "us_max",
                                            "gbps_logical", "gbps_remote", NULL};

static int check_operation(json_t *object, const char *line)
{
    static int num_seen[NUM_OPERATIONS];
    const char *name = json_string_value(json_object_get(object, "op"));
    for (int i = 0; i < NUM_OPERATIONS && name != NULL; i++) {
        if (strcmp(name, operations[i]) == 0)
            return ++num_seen[i] == 1 ? 0 : json_complain(line, "op", "comes twice");
    }
    return json_complain(line, "op", "is none that there is");
}

static int check_object(json_t *object, const char *line)
{
    int num_errors = json_check_integers(object, line, integer_fields) +
                     json_check_numbers(object, line, number_fields) +
                     json_check_outcome(object, line) + check_operation(object, line);
    if (!json_is_string(json_object_get(object, "machine")))
        num_errors += json_complain(line, "machine", "is not a string");
    if (json_number_of(object, "bytes_remote") > json_number_of(object, "bytes_logical"))
        num_errors += json_complain(line, "bytes_remote", "is more than bytes_logical");
    return num_errors;
}

int main(int argc, char **argv)
{
    return json_check_lines(argc, argv, check_object);
}
