/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <ctype.h>
#include <errno.h>
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
