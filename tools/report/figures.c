/* SPDX-License-Identifier: MIT */
#include "report/figures.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ names */

/* weft_all_reduce_us, nccl_all_reduce_us and all_reduce_64k_mpi_us are of one operation. */
static const char *const peers[] = {"weft", "nccl", "rccl",    "deepep",  "mpi",    "gloo",
                                    "ucx",  "pplx", "nvshmem", "mscclpp", "memcpy", NULL};
static const char *const units[] = {"us", "gbps", NULL};

static int is_one_of(const char *word, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(word, *list) == 0)
            return 1;
    return 0;
}

/* "64k" is 65536, other words are 0. */
static double size_in(const char *word)
{
    static const char letters[] = "kmg";
    char *end = NULL;
    const double number = isdigit((unsigned char)word[0]) ? strtod(word, &end) : 0;
    const char *letter = number > 0 && end != NULL && *end != '\0' ? strchr(letters, *end) : NULL;
    return letter != NULL && end[1] == '\0' ? number * pow(1024, (double)(letter - letters + 1))
                                            : 0;
}

static void read_name(struct figure *figure)
{
    char words[FIGURE_OP_CHARS], *rest = NULL;
    const int is_ratio = strstr(figure->name, "_vs_") != NULL; /* of two of them: an own op */
    size_t length = 0;
    snprintf(words, sizeof words, "%s", figure->name);
    for (char *word = strtok_r(words, "_", &rest); word != NULL;
         word = strtok_r(NULL, "_", &rest)) {
        if (!is_ratio && figure->peer[0] == '\0' && is_one_of(word, peers)) {
            snprintf(figure->peer, sizeof figure->peer, "%s", word);
        } else if (!is_ratio && size_in(word) > 0) {
            figure->at[FIGURE_BYTES] = size_in(word);
        } else if (!is_one_of(word, units)) {
            length += (size_t)snprintf(figure->op + length, sizeof figure->op - length, "%s%s",
                                       length > 0 ? "_" : "", word);
        }
    }
}

/* ------------------------------------------------------------------ words */

/* Fields that tell figures apart, beside the text of a configuration, which has none in lines of
 * weft ep and weft coll. `usual` is not worth a word. */
static const struct {
    const char *field, *before, *behind, *usual;
    int is_beside_configuration;
} fields[] = {
    {"machine", "", "", "", 0},
    {"ranks", "", " ranks", "", 0},
    {"nodes", "", " nodes", "1", 0},
    {"mode", "", "", "normal", 0},
    {"layout", "by ", "", "", 0},
    {"route", "route ", "", "straight", 0},
    {"carrier", "", "", "", 0},
    {"answer", "answer of ", "", "sums", 0},
    {"tokens", "", " tokens", "", 0},
    {"hidden", "hidden ", "", "", 0},
    {"dtype", "", "", "", 0},
    {"format", "rows in ", "", "dtype", 0},
    {"rows_only", "", "rows only", "not ", 0},
    {"topk", "top-", "", "", 0},
    {"experts", "", " experts", "", 0},
    {"trace", "", "", "", 0},
    {"trace_layer", "layer ", "", "0", 0},
    {"skew", "skew ", "", "0", 0},
    {"redop", "", "", "sum", 0},
    {"root", "root ", "", "0", 0},
    {"bytes", "", " bytes", "", 0},
    {"in_place", "", "in place", "", 0},
    {"memory", "memory ", "", "heap", 0},
    {"graph_calls", "graph of ", "", "0", 0},
    {"phases", "", " phases", "1", 0},
    {"wire", "wire ", "", "bf16", 0},
    {"blocks", "", " blocks", "0", 0},
    {"warps", "", " warps", "0", 0},
    {"channels", "", " channels", "0", 0},
    {"net_engine", "", "", "", 0},
    {"asked", "", "", "", 1},
    {"num_blocks", "", " blocks", "0", 1},
    {"num_warps", "", " warps", "0", 1},
    {"latency_us", "", " us on the network", "", 1},
};

static void add_word(json_t *words, const char *text)
{
    while (*text == ' ')
        text++;
    if (*text != '\0')
        json_object_set_new(words, text, json_null());
}

static void value_text(const json_t *value, char text[128])
{
    text[0] = '\0';
    if (json_is_string(value))
        snprintf(text, 128, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, 128, "%.9g", json_number_value(value));
}

static void add_fields(struct figure *figure, int has_configuration)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char value[128], word[192];
        const json_t *json = json_object_get(figure->json, fields[i].field);
        value_text(json, value);
        if (fields[i].is_beside_configuration < has_configuration)
            continue;
        if (json_is_false(json))
            snprintf(value, sizeof value, "not ");
        const int is_usual = fields[i].usual[0] != '\0' && strcmp(value, fields[i].usual) == 0;
        if (!is_usual && (json_is_boolean(json) || value[0] != '\0')) {
            snprintf(word, sizeof word, "%s%s%s", fields[i].before, value, fields[i].behind);
            add_word(figure->words, word);
        }
    }
}

/* An algorithm that was chosen for a size gives way to what was asked for, and so do the options of
 * MPI that were fastest. */
static void add_configuration(struct figure *figure, const char *configuration)
{
    const json_t *asked = json_object_get(figure->json, "asked");
    const char *chosen = json_string_value(json_object_get(figure->json, "algo"));
    char *copy = strdup(configuration), *rest = NULL;
    for (char *word = copy != NULL ? strtok_r(copy, ",", &rest) : NULL; word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        word += strspn(word, " ");
        if (!(asked != NULL && chosen != NULL && strcmp(word, chosen) == 0) &&
            strncmp(word, "options ", 8) != 0)
            add_word(figure->words, word);
    }
    free(copy);
}

/* ------------------------------------------------------------------ sizes */

static const struct {
    const char *fields[2];
    const char *unit; /* in words */
} axes[FIGURE_NUM_AXES] = {
    [FIGURE_BYTES] = {{"bytes", NULL}, " bytes"},
    [FIGURE_TOKENS] = {{"num_tokens", "tokens"}, "tokens"},
    [FIGURE_SMS] = {{"num_sms", NULL}, " SMs"},
    [FIGURE_LAYER] = {{"layer", NULL}, "layer "},
};

static double number_in(const json_t *json, const char *field)
{
    const json_t *value = json_object_get(json, field);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Bytes as text are those of a row. A layer is text, and so are names of other layouts. */
static double size_at(const json_t *json, enum figure_axis axis)
{
    for (int i = 0; i < 2 && axes[axis].fields[i] != NULL; i++) {
        const json_t *value = json_object_get(json, axes[axis].fields[i]);
        const char *text = json_string_value(value);
        if (axis == FIGURE_LAYER && text != NULL && text[0] != '\0' &&
            text[strspn(text, "0123456789")] == '\0')
            return strtod(text, NULL);
        if (axis != FIGURE_LAYER && json_is_number(value) && json_number_value(value) > 0)
            return json_number_value(value);
    }
    return (double)NAN;
}

static int is_size(const char *word, enum figure_axis axis, double size)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", size);
    const char *number = strstr(word, text);
    return !isnan(size) && number != NULL && strstr(word, axes[axis].unit) != NULL &&
           !isdigit((unsigned char)number[strlen(text)]) &&
           (number == word || !isdigit((unsigned char)number[-1]));
}

json_t *figure_words_but(const struct figure *figure, enum figure_axis axis)
{
    json_t *words = json_object();
    const char *word;
    json_t *value;
    json_object_foreach (figure->words, word, value)
        if (axis == FIGURE_NO_AXIS || !is_size(word, axis, figure->at[axis]))
            json_object_set(words, word, value);
    return words;
}

void figure_words_keep(json_t *words, const json_t *others)
{
    const char *word;
    json_t *value;
    void *next;
    json_object_foreach_safe(words, next, word, value) if (json_object_get(others, word) == NULL)
        json_object_del(words, word);
}

void figure_words_drop(json_t *words, const json_t *others)
{
    const char *word;
    json_t *value;
    void *next;
    json_object_foreach_safe(words, next, word, value) if (json_object_get(others, word) != NULL)
        json_object_del(words, word);
}

/* ------------------------------------------------------------------ the figure */

int figure_is_in(const json_t *json)
{
    return json_object_get(json, "value") != NULL || json_object_get(json, "us_median") != NULL;
}

static double first_number(const json_t *json, const char *const *names)
{
    double number = (double)NAN;
    for (; *names != NULL && isnan(number); names++)
        number = number_in(json, *names);
    return number;
}

static const char *read_figure(struct figure *figure, json_t *json)
{
    static const char *const values[] = {"value", "us_median", NULL};
    static const char *const rates[] = {"busbw", "gb_per_s", "gbps_logical", NULL};
    static const char *const wrong[] = {"wrong", "errors", NULL};
    const char *name = json_string_value(json_object_get(json, "name"));
    const char *op = json_string_value(json_object_get(json, "op"));
    const char *unit = json_string_value(json_object_get(json, "unit"));
    const char *configuration = json_string_value(json_object_get(json, "configuration"));
    *figure = (struct figure){.unit = unit != NULL ? unit : "us"};
    if (name == NULL && op == NULL)
        return "has no text \"name\" or \"op\"";
    figure->measures[FIGURE_VALUE] = first_number(json, values);
    if (isnan(figure->measures[FIGURE_VALUE]))
        return "has no number \"value\" or \"us_median\"";
    figure->json = json_incref(json);
    snprintf(figure->own_name, sizeof figure->own_name, "weft_%s_us", op != NULL ? op : "");
    figure->name = name != NULL ? name : figure->own_name;
    figure->measures[FIGURE_GBPS] = first_number(json, rates);
    figure->measures[FIGURE_IMBALANCE] = number_in(json, "imbalance");
    figure->least = number_in(json, "us_min");
    figure->most = number_in(json, "us_max");
    const double num_wrong = first_number(json, wrong);
    figure->num_wrong = num_wrong > 0 ? (int64_t)num_wrong : 0;
    for (int axis = 0; axis < FIGURE_NUM_AXES; axis++)
        figure->at[axis] = size_at(json, (enum figure_axis)axis);
    figure->words = json_object();
    read_name(figure);
    if (configuration != NULL)
        add_configuration(figure, configuration);
    add_fields(figure, configuration != NULL);
    return NULL;
}

const char *figures_add(struct figure_list *figures, json_t *json)
{
    if (figures->count == figures->room) {
        const int room = 2 * figures->room + 64;
        struct figure *list = realloc(figures->list, (size_t)room * sizeof *list);
        if (list == NULL)
            return "does not fit into memory";
        figures->list = list;
        figures->room = room;
    }
    const char *reason = read_figure(&figures->list[figures->count], json);
    figures->count += reason == NULL;
    return reason;
}

void figures_free(struct figure_list *figures)
{
    for (int i = 0; i < figures->count; i++) {
        json_decref(figures->list[i].words);
        json_decref(figures->list[i].json);
    }
    free(figures->list);
    *figures = (struct figure_list){0};
}

void figure_machine(const json_t *json, char text[FIGURE_MACHINE_CHARS])
{
    const char *gpu = json_string_value(json_object_get(json, "gpu"));
    const char *cpu = json_string_value(json_object_get(json, "cpu"));
    const char *device = json_string_value(json_object_get(json, "device"));
    const char *date = json_string_value(json_object_get(json, "date"));
    char machine[FIGURE_MACHINE_CHARS - 32] = "";
    if (gpu != NULL)
        snprintf(machine, sizeof machine, "%.0f x %s", fmax(1, number_in(json, "num_gpus")), gpu);
    else if (cpu != NULL && number_in(json, "cores") > 0)
        snprintf(machine, sizeof machine, "%s, %.0f cores", cpu, number_in(json, "cores"));
    else if (cpu != NULL || device != NULL)
        snprintf(machine, sizeof machine, "%s", cpu != NULL ? cpu : device);
    snprintf(text, FIGURE_MACHINE_CHARS, "%s%s%.10s", machine,
             machine[0] != '\0' && date != NULL ? ", " : "", date != NULL ? date : "");
}
