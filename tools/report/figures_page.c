/* SPDX-License-Identifier: MIT */
/* The part of a page that shows the figures of one file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "report/parts.h"
#include "report/plot.h"

static const char *const axis_titles[FIGURE_NO_AXIS + 1] = {
    [FIGURE_BYTES] = "bytes of the operation",
    [FIGURE_TOKENS] = "tokens per rank",
    [FIGURE_SMS] = "SMs",
    [FIGURE_LAYER] = "layer of the model",
};
static const char *const measure_titles[] = {
    [FIGURE_VALUE] = NULL, /* the figure's unit */
    [FIGURE_GBPS] = "GB/s",
    [FIGURE_IMBALANCE] = "imbalance: busiest rank / mean",
};

static const char *title_of(const struct group *group, enum figure_measure measure)
{
    if (measure != FIGURE_VALUE)
        return measure_titles[measure];
    return strcmp(group->unit, "us") == 0 ? "time, us" : group->unit;
}

void figures_write_words(FILE *file, const json_t *words)
{
    const char *word, *comma = "";
    json_t *value;
    json_object_foreach ((json_t *)words, word, value) {
        page_print(file, "%s%s", comma, word);
        comma = ", ";
    }
}

/* ------------------------------------------------------------------ charts */

/* What a scale can be drawn for. */
static int is_drawable(double value)
{
    return value > 1e-12 && value < 1e15;
}

/* Returns the number of points, those that can be drawn. */
static int fill_points(const struct series *series, const struct group *group,
                       enum figure_measure measure, struct plot_point *points)
{
    int count = 0;
    for (int i = 0; i < series->num_figures; i++) {
        const struct figure *figure = series->figures[i];
        const double x = figure->at[group->axis], y = figure->measures[measure];
        if (is_drawable(y) && !(count > 0 && points[count - 1].x == x))
            points[count++] = (struct plot_point){x, y};
    }
    return count;
}

int figures_write_chart(FILE *file, const struct group *group, enum figure_measure measure)
{
    if (group->axis == FIGURE_NO_AXIS)
        return 0;
    struct plot_curve *curves = calloc((size_t)group->num_series, sizeof *curves);
    struct plot_point *points = calloc((size_t)group->num_figures, sizeof *points);
    struct plot plot = {
        .title = title_of(group, measure),
        .x_title = axis_titles[group->axis],
        .x_scale = group->axis == FIGURE_LAYER ? PLOT_LINEAR : PLOT_LOGARITHMIC,
        .y_scale = measure == FIGURE_IMBALANCE ? PLOT_LINEAR : PLOT_LOGARITHMIC,
        .x_unit = group->axis == FIGURE_BYTES ? PLOT_BYTES : PLOT_PLAIN,
        .curves = curves,
    };
    int num_points = 0, num_charted = 0;
    for (int i = 0; curves != NULL && points != NULL && i < group->num_series; i++) {
        const struct series *series = &group->series[i];
        const int count = fill_points(series, group, measure, points + num_points);
        if (count < 2)
            continue;
        curves[plot.num_curves++] = (struct plot_curve){
            .label = series->is_charted ? series->label : NULL,
            .colour = series->colour,
            .dash = series->variant,
            .num_points = count,
            .points = points + num_points,
        };
        num_points += count;
        num_charted += series->is_charted;
    }
    const int height = num_charted > 0 ? plot_write(file, &plot) : 0;
    free(points);
    free(curves);
    return height;
}

/* ------------------------------------------------------------------ tables */

static const struct figure *at_size(const struct series *series, enum figure_axis axis, double size,
                                    int *next)
{
    for (; *next < series->num_figures; (*next)++)
        if (series->figures[*next]->at[axis] == size)
            return series->figures[(*next)++];
    return NULL;
}

static double best_at(const struct group *group, double size)
{
    double best = INFINITY;
    for (int i = 0; i < group->num_series; i++) {
        int next = 0;
        const struct figure *figure = at_size(&group->series[i], group->axis, size, &next);
        if (figure != NULL)
            best = fmin(best, figure->measures[FIGURE_VALUE]);
    }
    return best;
}

static void write_number(FILE *file, double value, int is_wrong)
{
    char text[PAGE_NUMBER_CHARS];
    if (!isnan(value))
        fprintf(file, is_wrong ? "<span class=\"x\">%s wrong</span>" : "%s",
                page_number(value, text));
}

/* The least time of a column is bold. Figures of one size that nothing tells apart share a cell. */
static void write_cell(FILE *file, const struct group *group, const struct series *series,
                       enum figure_measure measure, int column, double best)
{
    int next = 0;
    const struct figure *figure;
    const char *before = "";
    fputs("<td>", file);
    while ((figure = at_size(series, group->axis, group->sizes[column], &next)) != NULL) {
        const double value = figure->measures[measure];
        const int is_best = measure == FIGURE_VALUE && value == best;
        fprintf(file, "%s%s", before, is_best ? "<b>" : "");
        write_number(file, value, figure->num_wrong > 0);
        fputs(is_best ? "</b>" : "", file);
        before = " / ";
    }
    fputs("</td>", file);
}

static void write_table(FILE *file, const struct group *group, enum figure_measure measure)
{
    const int is_compared =
        group->has_peers && strcmp(group->unit, "us") == 0 && measure == FIGURE_VALUE;
    fprintf(file, "<details%s>", measure == FIGURE_VALUE ? " open=\"open\"" : "");
    page_print(file,
               "<summary>%s, by %s</summary><div class=\"s\"><table>\n<thead><tr>"
               "<th class=\"a\">name</th><th class=\"a\">measured</th>",
               title_of(group, measure), axis_titles[group->axis]);
    for (int i = 0; i < group->num_sizes; i++) {
        char text[PAGE_NUMBER_CHARS];
        if (group->axis == FIGURE_BYTES)
            page_bytes(group->sizes[i], text);
        else
            snprintf(text, sizeof text, "%.6g", group->sizes[i]);
        fprintf(file, "<th>%s</th>", text);
    }
    fputs("</tr></thead><tbody>\n", file);
    for (int i = 0; i < group->num_series; i++) {
        const struct series *series = &group->series[i];
        fputs("<tr><th class=\"a\">", file);
        if (series->is_charted)
            page_print(file, "<i class=\"b k%d\"></i>", series->colour % PAGE_NUM_COLOURS);
        page_print(file, "%s</th><th class=\"a\">", series->first->name);
        figures_write_words(file, series->words);
        fputs("</th>", file);
        for (int c = 0; c < group->num_sizes; c++)
            write_cell(file, group, series, measure, c,
                       is_compared ? best_at(group, group->sizes[c]) : (double)NAN);
        fputs("</tr>\n", file);
    }
    fputs("</tbody></table></div></details>\n", file);
}

static void write_single(FILE *file, const struct figure *figure)
{
    page_print(file, "<tr><th class=\"a\">%s</th><td>", figure->name);
    write_number(file, figure->measures[FIGURE_VALUE], figure->num_wrong > 0);
    page_print(file, "</td><td class=\"a\">%s</td><td>", figure->unit);
    write_number(file, figure->least, 0);
    fputs(isnan(figure->least) ? "" : " to ", file);
    write_number(file, figure->most, 0);
    fputs("</td><td>", file);
    write_number(file, figure->measures[FIGURE_GBPS], 0);
    fputs("</td><td class=\"v\">", file);
    figures_write_words(file, figure->words);
    fputs("</td></tr>\n", file);
}

/* ------------------------------------------------------------------ groups */

static int has_chart(const struct group *group)
{
    for (int i = 0; i < group->num_series; i++)
        if (group->series[i].is_charted)
            return 1;
    return 0;
}

/* In a table by size a series has one name; those with the size in their names are told one by
 * one, and so are those without a size. */
static int is_in_table(const struct group *group, const struct figure *figure)
{
    if (!has_chart(group) || isnan(figure->at[group->axis]))
        return 0;
    for (int i = 0; i < group->num_series; i++)
        for (int k = 1; k < group->series[i].num_figures; k++)
            if (strcmp(group->series[i].figures[k]->name, group->series[i].first->name) != 0)
                return 0;
    return 1;
}

static void write_group(FILE *file, const struct group *group)
{
    int num_curves = 0, num_charted = 0, is_drawn[FIGURE_NUM_MEASURES];
    for (int i = 0; i < group->num_series; i++) {
        num_curves += group->series[i].num_figures > 1;
        num_charted += group->series[i].is_charted;
    }
    page_print(file, "<h3>%s%s</h3>\n<p class=\"n\">", group->op,
               group->axis == FIGURE_SMS ? " by SMs" : "");
    figures_write_words(file, group->words);
    if (num_charted < num_curves)
        fprintf(file, ". %d of %d curves have their names; the others are grey, and in the table",
                num_charted, num_curves);
    fputs("</p>\n<div class=\"p\">\n", file);
    for (int measure = 0; measure < FIGURE_NUM_MEASURES; measure++)
        is_drawn[measure] = figures_write_chart(file, group, (enum figure_measure)measure) > 0;
    fputs("</div>\n", file);
    for (int measure = 0; measure < FIGURE_NUM_MEASURES; measure++)
        if (is_drawn[measure] && is_in_table(group, group->series[0].first))
            write_table(file, group, (enum figure_measure)measure);
}

static void write_singles(FILE *file, const struct group *groups, int num_groups)
{
    int num_singles = 0;
    for (int i = 0; i < num_groups; i++)
        for (int k = 0; k < groups[i].num_figures; k++) {
            if (is_in_table(&groups[i], groups[i].figures[k]))
                continue;
            if (num_singles++ == 0)
                fputs("<h3>Single figures</h3>\n<div class=\"s\"><table><thead><tr>"
                      "<th class=\"a\">name</th><th>value</th><th class=\"a\">unit</th>"
                      "<th>least to most</th><th>GB/s</th><th class=\"v\">measured</th></tr>"
                      "</thead><tbody>\n",
                      file);
            write_single(file, groups[i].figures[k]);
        }
    if (num_singles > 0)
        fputs("</tbody></table></div>\n", file);
}

/* ------------------------------------------------------------------ the part */

int figures_write(FILE *file, const struct figure_list *figures)
{
    struct group *groups;
    const int num_groups = groups_create(figures, &groups);
    for (int i = 0; i < num_groups; i++)
        if (has_chart(&groups[i]))
            write_group(file, &groups[i]);
    layers_write(file, figures);
    write_singles(file, groups, num_groups);
    if (num_groups >= 0)
        groups_destroy(groups, num_groups);
    return num_groups < 0 ? -1 : 0;
}
