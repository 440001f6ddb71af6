/* SPDX-License-Identifier: MIT */
#include "workload/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t option_integer(struct argp_state *state, const char *option, const char *text, int64_t min,
                       int64_t max)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text) || errno || value < min || value > max)
        argp_error(state, "%s %s: must be an integer from %lld to %lld", option, text,
                   (long long)min, (long long)max);
    return value;
}

int64_t option_size(struct argp_state *state, const char *option, const char *text, int64_t min,
                    int64_t max)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const int64_t unit_bytes = INT64_C(1) << (unit ? 10 * (unit - units + 1) : 0);
    if (end == text || end[unit != NULL] || isspace((unsigned char)*text) || errno || value < 0 ||
        value > max / unit_bytes || value * unit_bytes < min)
        argp_error(state, "%s %s: must be %lld to %lld, or such a number of K, M or G", option,
                   text, (long long)min, (long long)max);
    return value * unit_bytes;
}

double option_number(struct argp_state *state, const char *option, const char *text, double min,
                     double max)
{
    char *end;
    double value = strtod(text, &end);
    int is_inside = value >= min && value <= max; /* false for NaN */
    if (end == text || *end || isspace((unsigned char)*text) || !is_inside)
        argp_error(state, "%s %s: must be a number from %g to %g", option, text, min, max);
    return value;
}

int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices)
{
    char allowed[128] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(text, choices[i]) == 0)
            return i;
        strncat(allowed, i ? ", " : "", sizeof allowed - strlen(allowed) - 1);
        strncat(allowed, choices[i], sizeof allowed - strlen(allowed) - 1);
    }
    argp_error(state, "%s %s: must be one of %s", option, text, allowed);
    return 0;
}

static int64_t member_of(struct argp_state *state, const char *option, const char *text,
                         const struct option_members *members)
{
    if (members->choices)
        return option_choice(state, option, text, members->choices);
    if (members->unit == OPTION_BYTES)
        return option_size(state, option, text, members->min, members->max);
    return option_integer(state, option, text, members->min, members->max);
}

void option_list(struct argp_state *state, const char *option, const char *text,
                 const struct option_members *members, struct option_list *list)
{
    char member[64];
    size_t length;
    list->count = 0;
    do {
        length = strcspn(text, ",");
        snprintf(member, sizeof member, "%.*s", (int)length, text);
        if (list->count == OPTION_MAX_LISTED)
            argp_error(state, "%s: must be at most %d, separated by commas", option,
                       OPTION_MAX_LISTED);
        list->values[list->count++] = member_of(state, option, member, members);
        text += length;
    } while (*text++ == ',');
}

error_t option_store(const struct stored_option *table, int key, const char *text,
                     struct argp_state *state)
{
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unknown argument %s", text);
    for (; table->key != 0; table++) {
        if (table->key != key)
            continue;
        int64_t value = 1;
        if (table->choices != NULL)
            value = option_choice(state, table->name, text, table->choices);
        else if (text != NULL)
            value = option_integer(state, table->name, text, table->min, table->max);
        const int32_t narrow = (int32_t)value;
        memcpy((char *)state->input + table->offset,
               table->bytes == sizeof narrow ? (const void *)&narrow : &value, table->bytes);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}
