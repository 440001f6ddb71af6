/* SPDX-License-Identifier: MIT */
/* Reads what `weft ep --json` wrote from standard input: one object per line, one line per
 * operation, with all promised fields and consistent figures. Arguments FIELD=VALUE must hold in
 * every line. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const operations[] = {"layout", "notify", "dispatch", "combine", "layer"};
enum { NUM_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

static const char *const integer_fields[] = {
    "ranks",  "nodes", "tokens",        "hidden",       "topk",         "experts", "warps",
    "blocks", "iters", "bytes_logical", "bytes_remote", "checked_rows", "errors"};
static const char *const number_fields[] = {"us_min", "us_median", "us_max", "gbps_logical",
                                            "gbps_remote"};

static int complain(const char *line, const char *field, const char *what)
{
    fprintf(stderr, "%s %s in: %s\n", field, what, line);
    return 1;
}

static double number_of(json_t *object, const char *field)
{
    return json_number_value(json_object_get(object, field));
}

static int check_types(json_t *object, const char *line)
{
    int num_errors = 0;
    for (size_t i = 0; i < sizeof(integer_fields) / sizeof(integer_fields[0]); i++) {
        json_t *value = json_object_get(object, integer_fields[i]);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            num_errors += complain(line, integer_fields[i], "is not a number of things");
    }
    for (size_t i = 0; i < sizeof(number_fields) / sizeof(number_fields[0]); i++) {
        json_t *value = json_object_get(object, number_fields[i]);
        if (!json_is_number(value) || json_number_value(value) < 0)
            num_errors += complain(line, number_fields[i], "is not a number");
    }
    if (!json_is_string(json_object_get(object, "machine")))
        num_errors += complain(line, "machine", "is not a string");
    if (!json_is_true(json_object_get(object, "ok")))
        num_errors += complain(line, "ok", "is not true");
    return num_errors;
}

static int check_figures(json_t *object, const char *line)
{
    int num_errors = 0;
    if (number_of(object, "us_min") > number_of(object, "us_median") ||
        number_of(object, "us_median") > number_of(object, "us_max"))
        num_errors += complain(line, "us_median", "is not between us_min and us_max");
    if (number_of(object, "bytes_remote") > number_of(object, "bytes_logical"))
        num_errors += complain(line, "bytes_remote", "is more than bytes_logical");
    if (number_of(object, "errors") != 0)
        num_errors += complain(line, "errors", "is not 0");
    return num_errors;
}

/* One FIELD=VALUE against the field as text. */
static int check_expected(json_t *object, const char *line, const char *expected)
{
    char field[64];
    char text[128];
    const char *equals = strchr(expected, '=');
    if (equals == NULL)
        return complain(line, expected, "has no value to compare with");
    snprintf(field, sizeof(field), "%.*s", (int)(equals - expected), expected);
    json_t *value = json_object_get(object, field);
    if (json_is_string(value))
        snprintf(text, sizeof(text), "%s", json_string_value(value));
    else
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    return strcmp(text, equals + 1) == 0 ? 0 : complain(line, expected, "does not hold");
}

static int count_operation(json_t *object, const char *line, int *num_seen)
{
    const char *name = json_string_value(json_object_get(object, "op"));
    for (int i = 0; i < NUM_OPERATIONS && name != NULL; i++) {
        if (strcmp(name, operations[i]) == 0)
            return ++num_seen[i] == 1 ? 0 : complain(line, "op", "comes twice");
    }
    return complain(line, "op", "is none that there is");
}

static int check_line(const char *line, char *const *expected, int num_expected, int *num_seen)
{
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return complain(line, "no JSON object", "");
    }
    int num_errors = check_types(object, line) + check_figures(object, line) +
                     count_operation(object, line, num_seen);
    for (int i = 0; i < num_expected; i++)
        num_errors += check_expected(object, line, expected[i]);
    json_decref(object);
    return num_errors;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t capacity = 0;
    int num_errors = 0;
    int num_lines = 0;
    int num_seen[NUM_OPERATIONS] = {0};
    for (; getline(&line, &capacity, stdin) > 0; num_lines++)
        num_errors += check_line(line, argv + 1, argc - 1, num_seen);
    free(line);
    if (num_lines == 0) {
        fprintf(stderr, "there is no line\n");
        num_errors++;
    }
    return num_errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
