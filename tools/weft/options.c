/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const machine_names[] = {"auto", "cpu", "cuda", NULL};

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
