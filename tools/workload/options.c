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

static int64_t parse_size(struct argp_state *state, const char *option, const char *text,
                          int64_t min, int64_t max)
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

int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices)
{
    char allowed[128] = "";
    for (int i = 0; choices[i]; i++) {
        if (names_choice(text, choices[i]))
            return i;
        strncat(allowed, i ? ", " : "", sizeof allowed - strlen(allowed) - 1);
        strncat(allowed, choices[i], sizeof allowed - strlen(allowed) - 1);
    }
    argp_error(state, "%s %s: must be one of %s", option, text, allowed);
    return 0;
}

static int64_t parse_value(struct argp_state *state, const struct option_row *option,
                           const char *text)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "--%s", option->name);
    switch (option->type) {
    case OPTION_CHOICE:
    case OPTION_CHOICES:
        return option->min + option_choice(state, name, text, option->choices);
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

static void store(const struct option_row *option, const char *text, void *options,
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

enum { FIRST_KEY = 256 }; /* no character: of options without a letter */

static int key_of(const struct option_row *row, int i)
{
    if (row->type == OPTION_GROUP)
        return 0;
    return row->letter != '\0' ? row->letter : FIRST_KEY + i;
}

struct parsing {
    const struct option_set *set;
    void *options;
};

static const struct option_row *last_row(const struct option_set *set)
{
    const struct option_row *row = set->table;
    while (row[0].type != OPTIONS_END && row[1].type != OPTIONS_END)
        row++;
    return row;
}

static void take_argument(const struct parsing *parsing, const char *text, struct argp_state *state)
{
    const struct option_row *row = last_row(parsing->set);
    char *place = (char *)parsing->options + row->offset;
    struct option_texts *list = (struct option_texts *)(void *)place;
    if (row->type == OPTION_ARGUMENT && state->arg_num == 0)
        memcpy(place, &text, sizeof text);
    else if (row->type == OPTION_ARGUMENTS && list->count < OPTION_MAX_LISTED)
        list->texts[list->count++] = text;
    else if (row->type == OPTION_ARGUMENTS)
        argp_error(state, "argument %s: must be one of %d at most", text, OPTION_MAX_LISTED);
    else
        argp_error(state, "unknown argument %s", text);
}

static int is_option(const struct option_row *row)
{
    return row->type != OPTIONS_END && row->type != OPTION_ARGUMENT &&
           row->type != OPTION_ARGUMENTS;
}

static const struct option_row *row_of(const struct option_set *set, int key)
{
    for (const struct option_row *row = set->table; is_option(row); row++)
        if (row->type != OPTION_GROUP && key_of(row, (int)(row - set->table)) == key)
            return row;
    return NULL;
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
    const struct parsing *parsing = state->input;
    const struct option_row *row = row_of(parsing->set, key);
    if (key == ARGP_KEY_ARG) {
        take_argument(parsing, text, state);
        return 0;
    }
    if (key == ARGP_KEY_END && parsing->set->finish != NULL)
        parsing->set->finish(parsing->options, state);
    if (row == NULL)
        return ARGP_ERR_UNKNOWN;
    store(row, text, parsing->options, state);
    return 0;
}

/* Writes the row of help, and a row for a second name if there is one. Returns their number. */
static int describe(const struct option_row *option, int i, int group, struct argp_option *rows)
{
    static char docs[OPTIONS_MAX][512]; /* with the usual value */
    const int is_hidden = option->type == OPTION_REFUSED;
    snprintf(docs[i], sizeof docs[i], option->usual != NULL ? "%s (%s)" : "%s", option->doc,
             option->usual);
    rows[0] = (struct argp_option){.name = option->name,
                                   .key = key_of(option, i),
                                   .arg = option->arg,
                                   .flags = is_hidden ? OPTION_HIDDEN : 0,
                                   .doc = docs[i],
                                   .group = group};
    if (option->also == NULL)
        return 1;
    rows[1] = (struct argp_option){
        .name = option->also, .flags = OPTION_ALIAS | OPTION_HIDDEN, .group = group};
    return 2;
}

void options_parse(const struct option_set *set, void *options, int argc, char **argv)
{
    static struct argp_option rows[2 * OPTIONS_MAX + 1];
    struct parsing parsing = {set, options};
    int group = 0, num_rows = 0, i = 0;
    const struct option_row *last = last_row(set);
    const char *args_doc = is_option(last) ? NULL : last->arg;
    for (const struct option_row *option = set->table; is_option(option); option++, i++) {
        group += option->type == OPTION_GROUP;
        if (option->usual != NULL)
            store(option, option->usual, options, NULL);
        num_rows += describe(option, i, group, &rows[num_rows]);
    }
    rows[num_rows] = (struct argp_option){0};
    const struct argp argp = {
        .options = rows, .parser = parse_key, .args_doc = args_doc, .doc = set->doc};
    argp_parse(&argp, argc, argv, 0, NULL, &parsing);
}
