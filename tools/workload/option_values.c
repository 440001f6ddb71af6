/* SPDX-License-Identifier: MIT */
/* The values of options: how they are read and stored. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload/options_internal.h"

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

/* ---------------------------------------------------------------- sizes */

#define MAX_STEPS_BYTES (UINT64_C(1) << 40)

/* Reads the size at *text, at most max, and moves *text behind it. Returns 0, or -1. */
static int read_size(const char **text, uint64_t max, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    errno = 0;
    const unsigned long long number = strtoull(*text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    *text = unit ? end + 1 : end;
    *bytes = (uint64_t)number << shift;
    return errno || number > max >> shift ? -1 : 0;
}

static int64_t parse_size(struct argp_state *state, const char *option, const char *text,
                          int64_t min, int64_t max)
{
    const char *end = text;
    uint64_t bytes = 0;
    if (read_size(&end, (uint64_t)max, &bytes) != 0 || *end || (int64_t)bytes < min)
        argp_error(state, "%s %s: must be %lld to %lld, or such a number of K, M or G", option,
                   text, (long long)min, (long long)max);
    return (int64_t)bytes;
}

/* A step that does not grow is refused: it would never end. */
static int read_step(const char *text, struct option_steps *steps)
{
    const char kind = *text++;
    uint64_t value;
    if ((kind != 'x' && kind != '+') || read_size(&text, MAX_STEPS_BYTES, &value) != 0 || *text)
        return -1;
    steps->factor = kind == 'x' ? value : 1;
    steps->increment = kind == 'x' ? 0 : value;
    return steps->factor == 0 || steps->min * (steps->factor - 1) + steps->increment == 0 ? -1 : 0;
}

static int read_steps(struct option_steps *steps, const char *text)
{
    if (read_size(&text, MAX_STEPS_BYTES, &steps->min) != 0)
        return -1;
    if (*text == '\0') {
        *steps = (struct option_steps){steps->min, steps->min, 1, 1};
        return 0;
    }
    if (*text++ != ':' || read_size(&text, MAX_STEPS_BYTES, &steps->max) != 0 || *text++ != ':')
        return -1;
    return steps->max < steps->min ? -1 : read_step(text, steps);
}

int option_steps_next(const struct option_steps *steps, uint64_t *bytes)
{
    if (*bytes > steps->max / steps->factor)
        return 0;
    *bytes = *bytes * steps->factor + steps->increment; /* at most 2^41 */
    return *bytes <= steps->max;
}

/* ---------------------------------------------------------------- names */

enum { NAME_BYTES = 64, MAX_SYNONYMS = 8 };

/* Spelled as plain() writes names. */
static const char *const synonyms[][MAX_SYNONYMS] = {
    {"fp16", "half", "float16", "f16"},
    {"bf16", "bfloat16"},
    {"fp32", "float", "float32", "f32"},
    {"fp64", "double", "float64", "f64"},
    {"fp8", "fp8e4m3", "fp8e4m3fn", "float8e4m3", "float8e4m3fn", "f8e4m3", "e4m3"},
    {"int32", "int", "i32"},
    {"int64", "long", "i64"},
    {"uint8", "byte", "u8"},
    {"prod", "product"},
    {"avg", "mean", "average"},
    {"max", "maximum"},
    {"min", "minimum"},
    {"premulsum", "mulsum"}};
enum { NUM_SYNONYMS = sizeof synonyms / sizeof synonyms[0] };

/* Writes text in small letters, without - and _. */
static void plain(const char *text, char name[NAME_BYTES])
{
    size_t length = 0;
    for (; *text != '\0' && length < NAME_BYTES - 1; text++)
        if (*text != '-' && *text != '_')
            name[length++] = (char)tolower((unsigned char)*text);
    name[length] = '\0';
}

/* The index of the row in synonyms that has the name, or -1. */
static int meaning_of(const char name[NAME_BYTES])
{
    for (int i = 0; i < NUM_SYNONYMS; i++)
        for (int j = 0; j < MAX_SYNONYMS && synonyms[i][j] != NULL; j++)
            if (strcmp(name, synonyms[i][j]) == 0)
                return i;
    return -1;
}

static int names_choice(const char *text, const char *choice)
{
    char name[NAME_BYTES], chosen[NAME_BYTES];
    plain(text, name);
    plain(choice, chosen);
    return strcmp(name, chosen) == 0 ||
           (meaning_of(name) >= 0 && meaning_of(name) == meaning_of(chosen));
}

static int find(const char *text, const char *const *choices)
{
    for (int i = 0; choices[i]; i++)
        if (names_choice(text, choices[i]))
            return i;
    return -1;
}

static int choose(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices, const char *hint)
{
    struct option_text allowed = {""};
    const int i = find(text, choices);
    if (i >= 0)
        return i;
    option_add_names(&allowed, choices, ", ");
    argp_error(state, "%s %s: must be one of %s%s%s", option, text, allowed.bytes,
               hint != NULL ? "; " : "", hint != NULL ? hint : "");
    return 0;
}

int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices)
{
    return choose(state, option, text, choices, NULL);
}

int option_is_among(const char *text, const char *values)
{
    char value[NAME_BYTES];
    while (*values != '\0') {
        const size_t length = strcspn(values, ",");
        snprintf(value, sizeof value, "%.*s", (int)length, values);
        if (names_choice(text, value))
            return 1;
        values += values[length] == ',' ? length + 1 : length;
    }
    return 0;
}

/* ---------------------------------------------------------------- rows */

static int64_t parse_value(struct argp_state *state, const struct option_row *option,
                           const char *text)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "--%s", option->name);
    switch (option->type) {
    case OPTION_CHOICE:
    case OPTION_CHOICES:
        return option->min + choose(state, name, text, option->choices, option->hint);
    case OPTION_SIZE:
    case OPTION_SIZES:
        return parse_size(state, name, text, option->min, option->max);
    case OPTION_FLAG:
        return option->max == 0 ? 1 : option->max;
    default:
        return option_integer(state, name, text, option->min, option->max);
    }
}

void option_list(struct argp_state *state, const struct option_row *option, const char *text,
                 struct option_list *list)
{
    char member[NAME_BYTES];
    size_t length;
    list->count = 0;
    do {
        length = strcspn(text, ",");
        snprintf(member, sizeof member, "%.*s", (int)length, text);
        if (list->count == OPTION_MAX_LISTED)
            argp_error(state, "--%s: must be at most %d, separated by commas", option->name,
                       OPTION_MAX_LISTED);
        list->values[list->count++] = parse_value(state, option, member);
        text += length;
    } while (*text++ == ',');
}

void option_store(const struct option_row *option, const char *text, void *options,
                  struct argp_state *state)
{
    char *place = (char *)options + option->offset, name[NAME_BYTES];
    int64_t value;
    int32_t narrow;
    double real;
    switch (option->type) {
    case OPTION_OTHER:
        option->parse(options, text, state);
        return;
    case OPTION_REFUSED:
        if (state != NULL && (option->usual == NULL || strcmp(text, option->usual) != 0))
            argp_error(state, "--%s %s: %s", option->name, text, option->doc);
        return;
    case OPTION_TEXT:
        memcpy(place, &text, sizeof text); /* the pointer */
        return;
    case OPTION_REAL:
        snprintf(name, sizeof name, "--%s", option->name);
        real = option_number(state, name, text, (double)option->min, (double)option->max);
        memcpy(place, &real, sizeof real);
        return;
    case OPTION_STEPS:
        if (read_steps((struct option_steps *)(void *)place, text) != 0)
            argp_error(state,
                       "--%s %s: must be a size up to 1024G, MIN:MAX:xFACTOR with FACTOR 2 or "
                       "more, or MIN:MAX:+STEP with STEP 1 or more",
                       option->name, text);
        return;
    case OPTION_INTEGERS:
    case OPTION_SIZES:
    case OPTION_CHOICES:
        option_list(state, option, text, (struct option_list *)(void *)place);
        return;
    default:
        value = parse_value(state, option, text);
        narrow = (int32_t)value;
        memcpy(place, option->bytes == sizeof narrow ? (const void *)&narrow : &value,
               option->bytes);
    }
}
