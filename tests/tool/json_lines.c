/* SPDX-License-Identifier: MIT */
#include "json_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_complain(const char *line, const char *field, const char *what)
{
    fprintf(stderr, "%s %s in: %s\n", field, what, line);
    return 1;
}

double json_number_of(json_t *object, const char *field)
{
    return json_number_value(json_object_get(object, field));
}

int json_check_integers(json_t *object, const char *line, const char *const *fields)
{
    int num_errors = 0;
    for (size_t i = 0; fields[i] != NULL; i++) {
        json_t *value = json_object_get(object, fields[i]);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            num_errors += json_complain(line, fields[i], "is not a number of things");
    }
    return num_errors;
}

int json_check_numbers(json_t *object, const char *line, const char *const *fields)
{
    int num_errors = 0;
    for (size_t i = 0; fields[i] != NULL; i++) {
        json_t *value = json_object_get(object, fields[i]);
        if (!json_is_number(value) || json_number_value(value) < 0)
            num_errors += json_complain(line, fields[i], "is not a number");
    }
    return num_errors;
}

int json_check_outcome(json_t *object, const char *line)
{
    int num_errors = 0;
    if (json_number_of(object, "us_min") > json_number_of(object, "us_median") ||
        json_number_of(object, "us_median") > json_number_of(object, "us_max"))
        num_errors += json_complain(line, "us_median", "is not between us_min and us_max");
    if (json_number_of(object, "errors") != 0)
        num_errors += json_complain(line, "errors", "is not 0");
    if (!json_is_true(json_object_get(object, "ok")))
        num_errors += json_complain(line, "ok", "is not true");
    return num_errors;
}

static void write_value(json_t *value, char *text, size_t text_bytes)
{
    if (json_is_string(value))
        snprintf(text, text_bytes, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, text_bytes, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(text, text_bytes, "%s", json_is_true(value) ? "true" : "false");
    else
        snprintf(text, text_bytes, "%s", json_is_null(value) ? "null" : "?");
}

/* One FIELD=VALUE against the field as text. */
static int check_expected(json_t *object, const char *line, const char *expected)
{
    char field[64];
    char text[128];
    const char *equals = strchr(expected, '=');
    if (equals == NULL)
        return json_complain(line, expected, "has no value to compare with");
    snprintf(field, sizeof(field), "%.*s", (int)(equals - expected), expected);
    write_value(json_object_get(object, field), text, sizeof(text));
    return strcmp(text, equals + 1) == 0 ? 0 : json_complain(line, expected, "does not hold");
}

int json_check_lines(int argc, char **argv, int (*check_object)(json_t *object, const char *line))
{
    char *line = NULL;
    size_t capacity = 0;
    int num_errors = 0;
    int num_lines = 0;
    for (; getline(&line, &capacity, stdin) > 0; num_lines++) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object))
            num_errors += check_object(object, line);
        else
            num_errors += json_complain(line, "no JSON object", "");
        for (int i = 1; i < argc && json_is_object(object); i++)
            num_errors += check_expected(object, line, argv[i]);
        json_decref(object);
    }
    free(line);
    if (num_lines == 0) {
        fprintf(stderr, "there is no line\n");
        num_errors++;
    }
    return num_errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
