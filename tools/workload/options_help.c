/* SPDX-License-Identifier: MIT */
/* The descriptions of options in --help and in the manual page. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workload/options_internal.h"

void option_add(struct option_text *text, const char *format, ...)
{
    const size_t length = strlen(text->bytes);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text->bytes + length, sizeof text->bytes - length, format, arguments);
    va_end(arguments);
}

void option_add_names(struct option_text *text, const char *const *names, const char *last)
{
    for (int i = 0; names[i] != NULL; i++)
        option_add(text, "%s%s", i == 0 ? "" : names[i + 1] == NULL ? last : ", ", names[i]);
}

void option_add_list(struct option_text *text, const char *values)
{
    const char *lead = "";
    while (*values != '\0') {
        const size_t length = strcspn(values, ",");
        const int is_last = values[length] == '\0';
        option_add(text, "%s%.*s", *lead != '\0' && is_last ? " or " : lead, (int)length, values);
        values += is_last ? length : length + 1;
        lead = ", ";
    }
}

/* ---------------------------------------------------------------- parts of the description */

static void add_size(struct option_text *text, int64_t bytes)
{
    static const char units[] = "\0KMG";
    int unit = 0;
    for (; bytes != 0 && bytes % 1024 == 0 && unit < 3; unit++)
        bytes /= 1024;
    option_add(text, "%lld%.1s", (long long)bytes, &units[unit]);
}

/* The values that may be given, unless they go without saying. */
static void add_allowed(struct option_text *text, const struct option_row *option)
{
    const int is_choice = option->type == OPTION_CHOICE || option->type == OPTION_CHOICES;
    if (is_choice && option->arg != NULL) {
        option_add(text, option->type == OPTION_CHOICE ? "; one of " : "; of ");
        option_add_names(text, option->choices, " or ");
    } else if (option->type == OPTION_SIZE || option->type == OPTION_SIZES) {
        option_add(text, "; ");
        add_size(text, option->min);
        option_add(text, " to ");
        add_size(text, option->max);
    } else if (option->type == OPTION_INTEGER || option->type == OPTION_INTEGERS ||
               option->type == OPTION_REAL) {
        if (option->max < INT32_MAX)
            option_add(text, "; %lld to %lld", (long long)option->min, (long long)option->max);
        else if (option->min > 0)
            option_add(text, "; %lld or more", (long long)option->min);
    }
}

static void add_rule(struct option_text *text, const struct option_rule *rule, const char *lead)
{
    if (rule->needs == NULL && rule->excludes == NULL)
        return;
    option_add(text, "%s", lead);
    if (rule->values != NULL)
        option_add_list(text, rule->values);
    option_add(text, "%s%s --%s", rule->values != NULL ? " " : "",
               rule->needs != NULL ? "needs" : "not with",
               rule->needs != NULL ? rule->needs : rule->excludes);
    option_add(text, rule->with != NULL ? " " : "");
    option_add_list(text, rule->with != NULL ? rule->with : "");
}

void option_describe(const struct option_row *option, struct option_text *text)
{
    const char *usual = option->usual != NULL ? option->usual : option->without;
    text->bytes[0] = '\0';
    if (option->type == OPTION_GROUP) {
        option_add(text, "%s", option->doc);
        for (int i = 0; i < OPTION_MAX_RULES; i++)
            add_rule(text, &option->rules[i], i == 0 ? " (" : ", ");
        option_add(text, strchr(text->bytes, '(') ? "):" : ":");
        return;
    }
    option_add(text, "%s", option->doc);
    add_allowed(text, option);
    for (int i = 0; i < OPTION_MAX_RULES; i++)
        add_rule(text, &option->rules[i], "; ");
    if (usual != NULL)
        option_add(text, " (%s)", usual);
}

/* ---------------------------------------------------------------- the manual page */

enum { MDOC_COLUMNS = 100 };

/* Prints a sentence and its end, wrapped, with the dashes of options escaped. */
static void print_sentence(const char *text, const char *end)
{
    size_t column = 0;
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        if (column > 0 && column + length >= MDOC_COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += length + (column > 0 ? (size_t)printf(" ") : 0);
        for (size_t i = 0; i < length; i++)
            printf(text[i] == '-' && (i == 0 || !isalnum((unsigned char)text[i - 1])) ? "\\%c"
                                                                                      : "%c",
                   text[i]);
        text += length + strspn(text + length, " ");
    }
    printf("%s\n", end);
}

static void print_item(const struct option_row *option)
{
    struct option_text text;
    option_describe(option, &text);
    printf(".It ");
    if (option->letter != '\0')
        printf("Fl %c , ", option->letter);
    printf("Fl -%s", option->name);
    if (option->arg != NULL)
        printf(" Ar %s", option->arg);
    else if (option->type == OPTION_CHOICE)
        for (const char *const *name = option->choices; *name != NULL; name++)
            printf(name == option->choices ? " Cm %s" : " | %s", *name);
    putchar('\n');
    print_sentence(text.bytes, ".");
}

void options_print_mdoc(const struct option_set *set)
{
    const struct option_row *row = set->table;
    struct option_text heading;
    for (; option_is_named(row); row++) {
        if (row->type == OPTION_GROUP) {
            option_describe(row, &heading);
            printf("%s.Pp\n", row == set->table ? "" : ".El\n");
            print_sentence(heading.bytes, "");
        }
        if (row == set->table || row->type == OPTION_GROUP)
            puts(".Bl -tag -width Ds");
        if (row->type != OPTION_GROUP && row->type != OPTION_REFUSED)
            print_item(row);
    }
    puts(".El");
}

/* ---------------------------------------------------------------- completion by shells */

static void print_completion(const char *dashes, const char *name, const struct option_row *option)
{
    const int is_many = option->type == OPTION_CHOICES;
    struct option_text doc;
    option_describe(option, &doc);
    printf("%s%s %s ", dashes, name,
           option->type == OPTION_FLAG ? "flag"
           : is_many                   ? "values"
                                       : "value");
    if (!is_many && option->type != OPTION_CHOICE)
        putchar('-');
    else
        for (const char *const *choice = option->choices; *choice != NULL; choice++)
            printf("%s%s", choice == option->choices ? "" : ",", *choice);
    printf(" %s\n", doc.bytes);
}

void options_print_completion(const struct option_set *set)
{
    for (const struct option_row *row = set->table; option_is_named(row); row++) {
        const char letter[] = {row->letter, '\0'};
        if (row->type == OPTION_GROUP || row->type == OPTION_REFUSED)
            continue;
        if (row->letter != '\0')
            print_completion("-", letter, row);
        print_completion("--", row->name, row);
    }
    puts("--help flag - tell the options, and exit");
}
