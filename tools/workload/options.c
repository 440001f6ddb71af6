/* SPDX-License-Identifier: MIT */
/* A table of options, parsed by argp. */
#include <stdlib.h>
#include <string.h>

#include "workload/options_internal.h"

enum {
    FIRST_KEY = 256 /* no character: of options without a letter */,
    KEY_MDOC = 1 << 16,
    KEY_COMPLETE
};

static int key_of(const struct option_row *row, int i)
{
    if (row->type == OPTION_GROUP)
        return 0;
    return row->letter != '\0' ? row->letter : FIRST_KEY + i;
}

struct parsing {
    const struct option_set *set;
    void *options;
    const char *texts[OPTIONS_MAX]; /* by row: the value that is given, "" of a flag; or NULL */
};

/* ---------------------------------------------------------------- rules */

static int index_of(const struct option_set *set, const char *name)
{
    int i = 0;
    while (option_is_named(&set->table[i]) &&
           (set->table[i].name == NULL || strcmp(set->table[i].name, name) != 0))
        i++;
    return i;
}

/* 1 if a row has one of these values; with NULL, any but its usual one. */
static int has(const struct parsing *parsing, int i, const char *values)
{
    const char *usual = parsing->set->table[i].usual;
    const char *text = parsing->texts[i] != NULL ? parsing->texts[i] : usual;
    if (text == NULL)
        return 0;
    return values != NULL ? option_is_among(text, values)
                          : usual == NULL || strcmp(text, usual) != 0;
}

/* Refuses what is given against a rule. */
static void check_rule(const struct parsing *parsing, int i, const struct option_rule *rule,
                       struct argp_state *state)
{
    const int is_needed = rule->needs != NULL;
    if ((!is_needed && rule->excludes == NULL) || !has(parsing, i, rule->values))
        return;
    const int j = index_of(parsing->set, is_needed ? rule->needs : rule->excludes);
    const struct option_row *other = &parsing->set->table[j];
    const char *text = parsing->texts[i], *with = rule->with;
    const char *actual = parsing->texts[j] != NULL ? parsing->texts[j] : other->usual;
    if (has(parsing, j, with) == is_needed)
        return;
    struct option_text needed = {""};
    const char *values = is_needed ? (with != NULL ? with : "") : actual;
    option_add(&needed, "--%s%s", other->name, *values != '\0' ? " " : "");
    option_add_list(&needed, values);
    if (is_needed && with != NULL && actual != NULL)
        option_add(&needed, ", not %s", actual);
    argp_error(state, "--%s%s%s: %s %s", parsing->set->table[i].name, *text ? " " : "", text,
               is_needed ? "needs" : "must be absent with", needed.bytes);
}

static void check_rules(const struct parsing *parsing, struct argp_state *state)
{
    static const struct option_row no_group = {0};
    const struct option_row *table = parsing->set->table, *group = &no_group;
    for (int i = 0; option_is_named(&table[i]); i++) {
        if (table[i].type == OPTION_GROUP)
            group = &table[i];
        for (int r = 0; r < OPTION_MAX_RULES && parsing->texts[i] != NULL; r++) {
            check_rule(parsing, i, &group->rules[r], state);
            check_rule(parsing, i, &table[i].rules[r], state);
        }
    }
}

/* ---------------------------------------------------------------- parsing */

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
    char *const *program = state->argv + state->next - 1;
    if (row->type == OPTION_ARGUMENT && state->arg_num == 0) {
        memcpy(place, &text, sizeof text);
    } else if (row->type == OPTION_PROGRAM) {
        memcpy(place, &program, sizeof program);
        state->next = state->argc;
    } else if (row->type == OPTION_ARGUMENTS && list->count < OPTION_MAX_LISTED) {
        list->texts[list->count++] = text;
    } else if (row->type == OPTION_ARGUMENTS) {
        argp_error(state, "argument %s: must be one of %d at most", text, OPTION_MAX_LISTED);
    } else {
        argp_error(state, "unknown argument %s", text);
    }
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    const struct option_row *table = parsing->set->table;
    int i = 0;
    if (key == ARGP_KEY_ARG) {
        take_argument(parsing, text, state);
        return 0;
    }
    if (key == KEY_MDOC || key == KEY_COMPLETE) {
        (key == KEY_MDOC ? options_print_mdoc : options_print_completion)(parsing->set);
        exit(EXIT_SUCCESS);
    }
    if (key == ARGP_KEY_END) {
        check_rules(parsing, state);
        if (parsing->set->finish != NULL)
            parsing->set->finish(parsing->options, state);
    }
    while (option_is_named(&table[i]) && key_of(&table[i], i) != key)
        i++;
    if (key == 0 || !option_is_named(&table[i]))
        return ARGP_ERR_UNKNOWN;
    parsing->texts[i] = text != NULL ? text : "";
    option_store(&table[i], text, parsing->options, state);
    return 0;
}

/* Writes the row of help, and a row for a second name if there is one. Returns their number. */
static int describe(const struct option_row *option, int i, int group, struct argp_option *rows)
{
    static struct option_text docs[OPTIONS_MAX], args[OPTIONS_MAX];
    const int is_hidden = option->type == OPTION_REFUSED;
    option_describe(option, &docs[i]);
    if (option->type == OPTION_CHOICE && option->arg == NULL)
        for (const char *const *name = option->choices; *name != NULL; name++)
            option_add(&args[i], "%s%s", name == option->choices ? "" : "|", *name);
    rows[0] = (struct argp_option){.name = option->name,
                                   .key = key_of(option, i),
                                   .arg = *args[i].bytes ? args[i].bytes : option->arg,
                                   .flags = is_hidden ? OPTION_HIDDEN : 0,
                                   .doc = docs[i].bytes,
                                   .group = group};
    if (option->also == NULL)
        return 1;
    rows[1] = (struct argp_option){
        .name = option->also, .flags = OPTION_ALIAS | OPTION_HIDDEN, .group = group};
    return 2;
}

void options_parse(const struct option_set *set, void *options, int argc, char **argv)
{
    static struct argp_option rows[2 * OPTIONS_MAX + 3];
    struct parsing parsing = {.set = set, .options = options};
    int group = 0, num_rows = 0, i = 0;
    const struct option_row *last = last_row(set);
    const char *args_doc = option_is_named(last) ? NULL : last->arg;
    for (const struct option_row *option = set->table; option_is_named(option); option++, i++) {
        group += option->type == OPTION_GROUP;
        if (option->usual != NULL)
            option_store(option, option->usual, options, NULL);
        num_rows += describe(option, i, group, &rows[num_rows]);
    }
    rows[num_rows++] =
        (struct argp_option){.name = "mdoc", .key = KEY_MDOC, .flags = OPTION_HIDDEN};
    rows[num_rows++] =
        (struct argp_option){.name = "complete", .key = KEY_COMPLETE, .flags = OPTION_HIDDEN};
    rows[num_rows] = (struct argp_option){0};
    const struct argp argp = {
        .options = rows, .parser = parse_key, .args_doc = args_doc, .doc = set->doc};
    argp_parse(&argp, argc, argv, last->type == OPTION_PROGRAM ? ARGP_IN_ORDER : 0, NULL, &parsing);
}
