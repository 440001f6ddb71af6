/* SPDX-License-Identifier: MIT */
/* Reads what `weft ep --json` wrote from standard input: one object per line, one line per
 * operation, with all promised fields and consistent figures. Arguments FIELD=VALUE must hold in
 * every line. */
#include <string.h>

#include "json_lines.h"

static const char *const operations[] = {"layout", "notify", "dispatch", "combine", "layer"};
enum { NUM_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

static const char *const integer_fields[] = {"ranks",
                                             "nodes",
                                             "tokens",
                                             "hidden",
                                             "topk",
                                             "experts",
                                             "warps",
                                             "blocks",
                                             "iters",
                                             "bytes_logical",
                                             "bytes_remote",
                                             "checked_rows",
                                             "errors",
                                             "channels",
                                             "staging_slots",
                                             "staging_slot_bytes",
                                             "net_bytes",
                                             "forwarded_rows",
                                             NULL};
static const char *const number_fields[] = {"us_min",      "us_median", "us_max", "gbps_logical",
                                            "gbps_remote", "net_gbps",  NULL};
/* Rows from here on must not cross the network with more than 2 % of headers. */
enum { LONG_ROW_BYTES = 14336 };

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

static double element_bytes(const char *dtype)
{
    if (strncmp(dtype, "bytes:", 6) == 0)
        return 1;
    return strcmp(dtype, "fp32") == 0 ? 4 : 2;
}

static int is_op(json_t *object, const char *name)
{
    return strcmp(json_string_value(json_object_get(object, "op")), name) == 0;
}

/* One row of combine's sums, or of dispatch's tokens. */
static double wire_row_bytes(json_t *object)
{
    const char *dtype =
        json_string_value(json_object_get(object, is_op(object, "combine") ? "wire" : "dtype"));
    return json_number_of(object, "hidden") * element_bytes(dtype);
}

/* Between nodes: each row that is forwarded has crossed once. The operations of a layer send what they send alone, but for
 * headers: which credits share a message with rows is a matter of time. */
static int check_network(json_t *object, const char *line)
{
    static double bytes_of_parts;
    const double bytes = json_number_of(object, "net_bytes");
    const double row_bytes = wire_row_bytes(object);
    const double least = json_number_of(object, "forwarded_rows") * row_bytes;
    const int moves_rows = is_op(object, "dispatch") || is_op(object, "combine");
    if (json_number_of(object, "nodes") == 1)
        return bytes > 0 || least > 0 || !json_is_null(json_object_get(object, "net_engine"))
                   ? json_complain(line, "net_engine",
                                   "is there, or has sent something, on one node")
                   : 0;
    if (!json_is_string(json_object_get(object, "net_engine")))
        return json_complain(line, "net_engine", "is not a string");
    if (is_op(object, "layer"))
        return bytes < 0.9 * bytes_of_parts || bytes > 1.1 * bytes_of_parts
                   ? json_complain(line, "net_bytes", "is not about the sum of the operations'")
                   : 0;
    bytes_of_parts += bytes;
    if (moves_rows && bytes < least)
        return json_complain(line, "net_bytes", "is less than the forwarded rows have");
    if (moves_rows && row_bytes >= LONG_ROW_BYTES && bytes > 1.02 * least)
        return json_complain(line, "net_bytes", "is more than 1.02 times the forwarded rows");
    return 0;
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
    if (num_errors == 0)
        num_errors = check_network(object, line);
    return num_errors;
}

int main(int argc, char **argv)
{
    return json_check_lines(argc, argv, check_object);
}
