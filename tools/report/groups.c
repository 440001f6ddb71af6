/* SPDX-License-Identifier: MIT */
/* Which figures belong together, and what their series are called. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures.h"
#include "workload/figures.h"

enum { MAX_CHARTED_OF_PEER = 4, MIN_SIZES = 2 };

/* ------------------------------------------------------------------ sizes */

/* Different sizes on an axis, in order; room for all figures. */
static int find_sizes(const struct group *group, enum figure_axis axis, double *sizes)
{
    int count = 0, num_different = 0;
    for (int i = 0; i < group->num_figures; i++)
        if (!isnan(group->figures[i]->at[axis]))
            sizes[count++] = group->figures[i]->at[axis];
    figures_sort(sizes, (size_t)count);
    for (int i = 0; i < count; i++)
        if (i == 0 || sizes[i] != sizes[i - 1])
            sizes[num_different++] = sizes[i];
    return num_different;
}

/* The axis with most sizes. */
static void choose_axis(struct group *group)
{
    int most = MIN_SIZES - 1;
    group->axis = FIGURE_NO_AXIS;
    for (int axis = 0; axis < FIGURE_NUM_AXES; axis++) {
        const int count = find_sizes(group, (enum figure_axis)axis, group->sizes);
        if (count > most) {
            most = count;
            group->axis = (enum figure_axis)axis;
        }
    }
    group->num_sizes =
        group->axis == FIGURE_NO_AXIS ? 0 : find_sizes(group, group->axis, group->sizes);
}

/* ------------------------------------------------------------------ series */

static int is_charted_of(const struct series *series, const char *peer)
{
    return series->is_charted && strcmp(series->first->peer, peer) == 0;
}

static int is_of_peer(const struct series *series, const char *peer)
{
    return strcmp(series->first->peer, peer) == 0;
}

static int add_to_series(struct group *group, const struct figure *figure)
{
    json_t *words = figure_words_but(figure, group->axis);
    struct series *series = group->series, *end = series + group->num_series;
    while (series < end && !(is_of_peer(series, figure->peer) && json_equal(series->words, words)))
        series++;
    if (series == end) {
        const struct figure **figures = calloc((size_t)group->num_figures, sizeof(struct figure *));
        *series = (struct series){.first = figure, .words = words, .figures = figures};
        group->num_series++;
    } else {
        json_decref(words);
    }
    if (series->figures == NULL)
        return -1;
    int place = series->num_figures++;
    for (; place > 0 && series->figures[place - 1]->at[group->axis] > figure->at[group->axis];
         place--)
        series->figures[place] = series->figures[place - 1];
    series->figures[place] = figure;
    return 0;
}

/* ------------------------------------------------------------------ labels */

static int is_in(const json_t *words, const char *word)
{
    return json_object_get(words, word) != NULL;
}

/* Do both have the same words, if one does not count? */
static int are_equal_but(const json_t *a, const json_t *b, const char *but)
{
    const char *word;
    json_t *value;
    if (json_object_size(a) - (size_t)is_in(a, but) != json_object_size(b) - (size_t)is_in(b, but))
        return 0;
    json_object_foreach ((json_t *)a, word, value)
        if (strcmp(word, but) != 0 && !is_in(b, word))
            return 0;
    return 1;
}

/* Without `word`, are the labels of the peer's curves still different from each other, and none
 * empty? */
static int is_needless(const struct group *group, const char *peer, const char *word)
{
    for (int i = 0; i < group->num_series; i++) {
        const struct series *series = &group->series[i];
        if (!is_charted_of(series, peer))
            continue;
        if (is_in(series->label_words, word) && json_object_size(series->label_words) == 1)
            return 0;
        for (int k = 0; k < i; k++)
            if (is_charted_of(&group->series[k], peer) &&
                are_equal_but(series->label_words, group->series[k].label_words, word))
                return 0;
    }
    return 1;
}

static void shorten(const struct group *group, const struct series *series)
{
    const char *peer = series->first->peer, *word;
    json_t *words = json_copy(series->label_words), *value;
    json_object_foreach (words, word, value)
        if (is_needless(group, peer, word))
            for (int i = 0; i < group->num_series; i++)
                if (is_charted_of(&group->series[i], peer))
                    json_object_del(group->series[i].label_words, word);
    json_decref(words);
}

/* nccl_window_graph of nccl is "window graph", and rows of 14336 bytes are "14336 bytes". */
static void write_label(struct series *series, const char *peer)
{
    size_t length = (size_t)snprintf(series->label, sizeof series->label, "%s", peer);
    const size_t peer_length = strlen(series->first->peer);
    const char *word;
    json_t *value;
    json_object_foreach (series->label_words, word, value) {
        const char *text = strncmp(word, "rows of ", 8) == 0 ? word + 8 : word;
        if (peer_length > 0 && strncmp(text, series->first->peer, peer_length) == 0)
            text += peer_length;
        text += *text == '_';
        if (*text != '\0' && length < sizeof series->label)
            length += (size_t)snprintf(series->label + length, sizeof series->label - length,
                                       "%s%s", length > 0 ? " " : "", text);
    }
    if (series->label[0] == '\0')
        snprintf(series->label, sizeof series->label, "%s", series->first->op);
    for (char *c = series->label; *c != '\0'; c++)
        if (*c == '_')
            *c = ' ';
}

static int has_other_peers(const struct group *group)
{
    for (int i = 0; i < group->num_series; i++)
        if (!is_of_peer(&group->series[i], group->series[0].first->peer))
            return 1;
    return 0;
}

/* Which one among peers of the group; weft is the first. */
static int colour_of(const struct group *group, const char *peer)
{
    int colour = 0;
    if (peer[0] == '\0' || strcmp(peer, "weft") == 0)
        return 0;
    for (int i = 0; i < group->num_series; i++) {
        const char *other = group->series[i].first->peer;
        int is_new = other[0] != '\0' && strcmp(other, "weft") != 0;
        for (int k = 0; k < i && is_new; k++)
            is_new = strcmp(other, group->series[k].first->peer) != 0;
        colour += is_new;
        if (strcmp(other, peer) == 0)
            break;
    }
    return colour;
}

static void label_series(struct group *group)
{
    const int is_compared = group->has_peers = has_other_peers(group);
    for (int i = 0; i < group->num_series; i++) {
        struct series *series = &group->series[i];
        series->colour = is_compared ? colour_of(group, series->first->peer) : series->variant;
        figure_words_drop(group->series[i].words, group->words);
        group->series[i].label_words = json_copy(group->series[i].words);
    }
    for (int i = 0; i < group->num_series; i++)
        if (group->series[i].is_charted)
            shorten(group, &group->series[i]);
    for (int i = 0; i < group->num_series; i++) {
        const char *peer = group->series[i].first->peer;
        write_label(&group->series[i], !is_compared ? "" : peer[0] == '\0' ? "weft" : peer);
    }
}

/* ------------------------------------------------------------------ charts */

/* Some of each peer: first what the library chooses by itself. */
static void choose_charted(struct group *group)
{
    for (int i = 0; i < group->num_series; i++) {
        struct series *series = &group->series[i];
        int num_before = 0;
        const int is_auto = json_object_get(series->words, "auto") != NULL;
        for (int k = 0; k < group->num_series; k++) {
            const struct series *other = &group->series[k];
            const int other_is_auto = json_object_get(other->words, "auto") != NULL;
            if (k == i || !is_of_peer(other, series->first->peer) || other->num_figures < MIN_SIZES)
                continue;
            num_before += other_is_auto > is_auto || (other_is_auto == is_auto && k < i);
        }
        series->variant = num_before;
        series->is_charted = series->num_figures >= MIN_SIZES && num_before < MAX_CHARTED_OF_PEER;
    }
}

/* ------------------------------------------------------------------ groups */

static int complete(struct group *group)
{
    group->sizes = calloc((size_t)group->num_figures, sizeof *group->sizes);
    group->series = calloc((size_t)group->num_figures, sizeof *group->series);
    if (group->sizes == NULL || group->series == NULL)
        return -1;
    choose_axis(group);
    for (int i = 0; i < group->num_figures && group->axis != FIGURE_NO_AXIS; i++)
        if (!isnan(group->figures[i]->at[group->axis]) &&
            add_to_series(group, group->figures[i]) != 0)
            return -1;
    if (group->num_series == 0)
        return 0;
    group->words = json_copy(group->series[0].words);
    for (int i = 0; i < group->num_series; i++)
        figure_words_keep(group->words, group->series[i].words);
    choose_charted(group);
    label_series(group);
    return 0;
}

/* Those measured with given numbers of SMs are apart from those by the library's choice. */
static int has_sms(const struct figure *figure)
{
    return !isnan(figure->at[FIGURE_SMS]);
}

static struct group *group_of(struct group *groups, int *num_groups, const struct figure *figure)
{
    for (int i = 0; i < *num_groups; i++)
        if (strcmp(groups[i].op, figure->op) == 0 && strcmp(groups[i].unit, figure->unit) == 0 &&
            has_sms(groups[i].figures[0]) == has_sms(figure))
            return &groups[i];
    groups[*num_groups] = (struct group){.op = figure->op, .unit = figure->unit};
    return &groups[(*num_groups)++];
}

int groups_create(const struct figure_list *figures, struct group **groups)
{
    int num_groups = 0, is_complete;
    *groups = calloc((size_t)figures->count + 1, sizeof **groups);
    is_complete = *groups != NULL;
    for (int i = 0; i < figures->count && is_complete; i++) {
        struct group *group = group_of(*groups, &num_groups, &figures->list[i]);
        if (group->figures == NULL)
            group->figures = calloc((size_t)figures->count, sizeof(struct figure *));
        is_complete = group->figures != NULL;
        if (is_complete)
            group->figures[group->num_figures++] = &figures->list[i];
    }
    for (int i = 0; i < num_groups && is_complete; i++)
        is_complete = complete(&(*groups)[i]) == 0;
    if (is_complete)
        return num_groups;
    groups_destroy(*groups, num_groups);
    return -1;
}

void groups_destroy(struct group *groups, int num_groups)
{
    for (int i = 0; i < num_groups; i++) {
        for (int k = 0; k < groups[i].num_series; k++) {
            json_decref(groups[i].series[k].words);
            json_decref(groups[i].series[k].label_words);
            free(groups[i].series[k].figures);
        }
        json_decref(groups[i].words);
        free(groups[i].series);
        free(groups[i].sizes);
        free(groups[i].figures);
    }
    free(groups);
}
