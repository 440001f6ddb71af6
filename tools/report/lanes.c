/* SPDX-License-Identifier: MIT */
/* Time lines, one lane below the other, and matrices. */
#include <math.h>
#include <string.h>

#include "report/page.h"
#include "report/plot.h"

enum {
    TOP = 24,
    BAR_PX = 14,
    LABEL_PX = 14, /* above a bar, when labels are long */
    SHORT_LETTERS = 9,
    LETTER_PX = 7,
    MAX_NAMES = 24,
    NUM_TICKS = 5
};

struct drawing {
    FILE *file;
    const struct lanes *lanes;
    double end;
    int left, lane_px;
    int num_names;
    const char *names[MAX_NAMES];
};

/* ------------------------------------------------------------------ time lines */

/* Names beyond the last share its colour. */
static int name_index(struct drawing *drawing, const char *name)
{
    for (int i = 0; i < drawing->num_names; i++)
        if (strcmp(drawing->names[i], name) == 0)
            return i;
    if (drawing->num_names < MAX_NAMES)
        drawing->names[drawing->num_names++] = name;
    return drawing->num_names - 1;
}

static double time_px(const struct drawing *drawing, double time)
{
    return drawing->left + time / drawing->end * (PLOT_WIDTH - 8 - drawing->left);
}

static void draw_segment(struct drawing *drawing, const struct lane_segment *segment, int y)
{
    const int colour = name_index(drawing, segment->name) % PAGE_NUM_COLOURS;
    const double x = time_px(drawing, segment->start);
    const double width = fmax(time_px(drawing, segment->end) - x - 1, 0.7);
    fprintf(drawing->file,
            "<rect class=\"%s k%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
            segment->state == LANE_ENDED ? "f" : "open", colour, x, y, width, BAR_PX);
    if (width < (double)strlen(segment->name) * LETTER_PX)
        return;
    page_print(drawing->file, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>",
               segment->state == LANE_ENDED ? "in" : "", x + 3, y + 11, segment->name);
}

static void draw_lane(struct drawing *drawing, const struct lane *lane, int y)
{
    const int is_beside = drawing->left > 0;
    const int bar_y = is_beside ? y : y + LABEL_PX;
    page_print(drawing->file, "<text class=\"m%s\" x=\"%d\" y=\"%d\">%s</text>\n",
               is_beside ? " e" : "", is_beside ? drawing->left - 5 : 0,
               is_beside ? y + 11 : y + 10, lane->label);
    for (int i = 0; i < lane->num_segments; i++)
        draw_segment(drawing, &lane->segments[i], bar_y);
    fputc('\n', drawing->file);
}

static void draw_time_axis(const struct drawing *drawing, int y)
{
    const double step = plot_step(drawing->end / NUM_TICKS);
    for (int i = 0; i * step <= drawing->end; i++) {
        const double x = time_px(drawing, i * step);
        fprintf(drawing->file,
                "<path class=\"g\" d=\"M%.1f %dV%d\"/><text class=\"m %s\" x=\"%.1f\" "
                "y=\"%d\">%.6g</text>\n",
                x, TOP, y, i == 0 ? "" : "c", x, y + 14, i * step);
    }
    page_print(drawing->file, "<text class=\"m e\" x=\"%d\" y=\"%d\">%s</text>\n", PLOT_WIDTH - 4,
               y + 28, drawing->lanes->x_title);
}

/* Names from left to right, in as many lines as they need. Returns where the last one ends. */
static int draw_legend(const struct drawing *drawing, int y, FILE *file)
{
    int x = 0;
    for (int i = 0; i < drawing->num_names; i++) {
        const int width = 22 + (int)strlen(drawing->names[i]) * LETTER_PX;
        if (x > 0 && x + width > PLOT_WIDTH) {
            x = 0;
            y += 17;
        }
        if (file != NULL) {
            page_print(file,
                       "<rect class=\"f k%d\" x=\"%d\" y=\"%d\" width=\"10\" height=\"10\"/>"
                       "<text x=\"%d\" y=\"%d\">%s</text>\n",
                       i % PAGE_NUM_COLOURS, x, y, x + 14, y + 10, drawing->names[i]);
        }
        x += width;
    }
    return y + 17;
}

int lanes_write(FILE *file, const struct lanes *lanes)
{
    struct drawing drawing = {.file = file, .lanes = lanes};
    size_t longest = 0;
    for (int l = 0; l < lanes->num_lanes; l++) {
        longest = fmax((double)longest, (double)strlen(lanes->lanes[l].label));
        for (int i = 0; i < lanes->lanes[l].num_segments; i++) {
            drawing.end = fmax(drawing.end, lanes->lanes[l].segments[i].end);
            name_index(&drawing, lanes->lanes[l].segments[i].name);
        }
    }
    if (!(drawing.end > 0))
        drawing.end = 1;
    drawing.left = longest <= SHORT_LETTERS ? (int)longest * LETTER_PX + 8 : 0;
    drawing.lane_px = BAR_PX + 4 + (drawing.left > 0 ? 0 : LABEL_PX);
    const int bottom = TOP + lanes->num_lanes * drawing.lane_px;
    const int height = draw_legend(&drawing, bottom + 36, NULL);
    plot_open(file, height, lanes->title);
    draw_time_axis(&drawing, bottom);
    for (int l = 0; l < lanes->num_lanes; l++)
        draw_lane(&drawing, &lanes->lanes[l], TOP + l * drawing.lane_px);
    draw_legend(&drawing, bottom + 36, file);
    fputs("</svg>\n", file);
    return height;
}

/* ------------------------------------------------------------------ matrices */

enum { HEAT_LEFT = 40, HEAT_TOP = 58, MAX_CELL_PX = 46, NUMBERED_CELL_PX = 34 };

static void draw_cell(FILE *file, double value, double strength, const int box[3])
{
    char text[PAGE_NUMBER_CHARS];
    fprintf(file,
            "<rect class=\"f k0\" fill-opacity=\"%.2f\" x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/>",
            strength, box[0], box[1], box[2] - 1, box[2] - 1);
    if (box[2] >= NUMBERED_CELL_PX)
        fprintf(file, "<text class=\"c%s\" x=\"%d\" y=\"%d\">%s</text>\n",
                strength > 0.55 ? " in" : "", box[0] + box[2] / 2, box[1] + box[2] / 2 + 4,
                page_number(value, text));
}

static void draw_numbers(FILE *file, const struct heat *heat, int cell)
{
    const int every = cell >= 18 ? 1 : 18 / cell + 1;
    for (int c = 0; c < heat->num_columns; c += every)
        fprintf(file, "<text class=\"m c\" x=\"%d\" y=\"%d\">%d</text>\n",
                HEAT_LEFT + c * cell + cell / 2, HEAT_TOP - 6, c);
    for (int r = 0; r < heat->num_rows; r += every)
        fprintf(file, "<text class=\"m e\" x=\"%d\" y=\"%d\">%d</text>\n", HEAT_LEFT - 6,
                HEAT_TOP + r * cell + cell / 2 + 4, r);
    page_print(file, "<text class=\"m\" x=\"0\" y=\"32\">%s \xe2\x86\x93  %s \xe2\x86\x92</text>\n",
               heat->row_title, heat->column_title);
}

int heat_write(FILE *file, const struct heat *heat)
{
    const int fits = (PLOT_WIDTH - HEAT_LEFT) / (heat->num_columns > 0 ? heat->num_columns : 1);
    const int cell = fits > MAX_CELL_PX ? MAX_CELL_PX : fits < 3 ? 3 : fits;
    double min = INFINITY, max = -INFINITY;
    for (int i = 0; i < heat->num_rows * heat->num_columns; i++)
        if (heat->values[i] > 0) {
            min = fmin(min, heat->values[i]);
            max = fmax(max, heat->values[i]);
        }
    const int height = HEAT_TOP + heat->num_rows * cell + 4;
    plot_open(file, height, heat->title);
    draw_numbers(file, heat, cell);
    for (int i = 0; i < heat->num_rows * heat->num_columns; i++) {
        const double value = heat->values[i];
        const int box[] = {HEAT_LEFT + i % heat->num_columns * cell,
                           HEAT_TOP + i / heat->num_columns * cell, cell};
        if (isnan(value))
            continue;
        const double above = value > 0 && max > min ? log(value / min) / log(max / min) : value > 0;
        draw_cell(file, value, value > 0 ? 0.12 + 0.88 * above : 0.04, box);
    }
    fputs("</svg>\n", file);
    return height;
}
