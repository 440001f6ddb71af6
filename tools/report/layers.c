/* SPDX-License-Identifier: MIT */
/* The steps of a layer, one after the other, of each run that has several. */
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"
#include "report/plot.h"

enum { MAX_STEPS = 4, MAX_LAYERS = 8 };
static const char *const step_names[MAX_STEPS] = {"layout", "notify", "dispatch", "combine"};

struct layer {
    const struct figure *first;
    char label[256];
    struct lane_segment steps[MAX_STEPS];
    int num_steps;
};

static int is_low_latency(const struct figure *figure)
{
    return strncmp(figure->op, "ll_", 3) == 0;
}

/* The step that an operation is, or -1. */
static int step_of(const struct figure *figure)
{
    const char *op = figure->op + (is_low_latency(figure) ? 3 : 0);
    for (int i = 0; i < MAX_STEPS; i++)
        if (strcmp(op, step_names[i]) == 0 ||
            (strcmp(op, "dispatch_release") == 0 && strcmp(step_names[i], "dispatch") == 0))
            return i;
    return -1;
}

static int is_same_run(const struct figure *a, const struct figure *b)
{
    return strcmp(a->peer, b->peer) == 0 && is_low_latency(a) == is_low_latency(b) &&
           json_equal(a->words, b->words);
}

static int is_first_of_run(const struct figure *figures, int of)
{
    for (int i = 0; i < of; i++)
        if (step_of(&figures[i]) >= 0 && is_same_run(&figures[i], &figures[of]))
            return 0;
    return step_of(&figures[of]) >= 0;
}

static void read_layer(struct layer *layer, const struct figure_list *all, int first)
{
    const struct figure *figures = all->list;
    double end = 0;
    *layer = (struct layer){.first = &figures[first]};
    for (int step = 0; step < MAX_STEPS; step++)
        for (int i = first; i < all->count; i++)
            if (step_of(&figures[i]) == step && is_same_run(&figures[i], &figures[first])) {
                const double us = figures[i].measures[FIGURE_VALUE];
                layer->steps[layer->num_steps++] =
                    (struct lane_segment){step_names[step], end, end + us, LANE_ENDED};
                end += us;
                break;
            }
}

/* The library, and what not all of them share. */
static void write_label(struct layer *layer, const json_t *shared)
{
    const char *word, *peer = layer->first->peer[0] == '\0' ? "weft" : layer->first->peer;
    json_t *words = json_copy(layer->first->words), *value;
    size_t length = (size_t)snprintf(layer->label, sizeof layer->label, "%s%s", peer,
                                     is_low_latency(layer->first) ? ", low latency" : "");
    figure_words_drop(words, shared);
    json_object_foreach (words, word, value)
        if (length < sizeof layer->label)
            length +=
                (size_t)snprintf(layer->label + length, sizeof layer->label - length, ", %s", word);
    json_decref(words);
}

/* Returns how many of them there are. */
static int find_layers(const struct figure_list *figures, struct layer layers[MAX_LAYERS])
{
    int count = 0;
    for (int i = 0; i < figures->count && count < MAX_LAYERS; i++)
        if (is_first_of_run(figures->list, i)) {
            read_layer(&layers[count], figures, i);
            count += layers[count].num_steps > 1;
        }
    return count;
}

int layers_draw(FILE *file, const struct figure_list *figures, json_t **shared)
{
    struct layer layers[MAX_LAYERS];
    struct lane lanes[MAX_LAYERS];
    const int count = find_layers(figures, layers);
    const struct lanes all = {
        .title = "steps of a layer, medians", .x_title = "us", .num_lanes = count, .lanes = lanes};
    *shared = count > 0 ? json_copy(layers[0].first->words) : NULL;
    for (int i = 0; i < count; i++)
        figure_words_keep(*shared, layers[i].first->words);
    for (int i = 0; i < count; i++) {
        write_label(&layers[i], *shared);
        lanes[i] = (struct lane){layers[i].label, layers[i].num_steps, layers[i].steps};
    }
    return count > 0 ? lanes_write(file, &all) : 0;
}

void layers_write(FILE *file, const struct figure_list *figures)
{
    char *drawing = NULL;
    size_t num_bytes = 0;
    json_t *shared = NULL;
    FILE *memory = open_memstream(&drawing, &num_bytes);
    const int height = memory != NULL ? layers_draw(memory, figures, &shared) : 0;
    if (memory != NULL && fclose(memory) == 0 && height > 0) {
        fputs("<h3>Steps of a layer</h3>\n<p class=\"n\">", file);
        figures_write_words(file, shared);
        fprintf(file, "</p>\n<div class=\"p\">\n%s</div>\n", drawing);
    }
    json_decref(shared);
    free(drawing);
}
