/* SPDX-License-Identifier: MIT */
/* Curves, each with its name at its end. */
#include "report/plot.h"

#include <math.h>
#include <stdlib.h>

#include "report/page.h"
#include "workload/figures.h"

enum {
    HEIGHT = 300,
    LEFT = 50,
    RIGHT = 340, /* of the curves; behind them are the labels */
    TOP = 34,
    BOTTOM = 262,
    LABEL_LETTERS = 18,
    LABEL_PX = 13,
    TICK_PX = 28, /* between two, at least */
    BYTES_TICK_PX = 48,
    MAX_LABELS = 16
};

struct range {
    double min, max;
};

struct frame {
    FILE *file;
    const struct plot *plot;
    struct range x, y;
};

static double on_scale(double value, enum plot_scale scale)
{
    return scale == PLOT_LOGARITHMIC ? log10(value) : value;
}

static double place(double value, const struct range *range, enum plot_scale scale)
{
    const double min = on_scale(range->min, scale), max = on_scale(range->max, scale);
    return max > min ? (on_scale(value, scale) - min) / (max - min) : 0.5;
}

static double x_px(const struct frame *frame, double x)
{
    return LEFT + 6 + place(x, &frame->x, frame->plot->x_scale) * (RIGHT - LEFT - 12);
}

static double y_px(const struct frame *frame, double y)
{
    return BOTTOM - place(y, &frame->y, frame->plot->y_scale) * (BOTTOM - TOP);
}

static void extend(struct range *range, double value)
{
    range->min = fmin(range->min, value);
    range->max = fmax(range->max, value);
}

static void find_ranges(struct frame *frame)
{
    const struct plot *plot = frame->plot;
    frame->x = frame->y = (struct range){INFINITY, -INFINITY};
    for (int c = 0; c < plot->num_curves; c++)
        for (int i = 0; i < plot->curves[c].num_points; i++) {
            extend(&frame->x, plot->curves[c].points[i].x);
            extend(&frame->y, plot->curves[c].points[i].y);
        }
    const double margin = plot->y_scale == PLOT_LOGARITHMIC
                              ? fmax(pow(frame->y.max / frame->y.min, 0.04), 1.1)
                              : fmax((frame->y.max - frame->y.min) * 0.06, frame->y.max * 0.01);
    if (plot->y_scale == PLOT_LOGARITHMIC)
        frame->y = (struct range){frame->y.min / margin, frame->y.max * margin};
    else
        frame->y = (struct range){frame->y.min - margin, frame->y.max + margin};
}

/* ------------------------------------------------------------------ axes */

static void y_tick(const struct frame *frame, double value)
{
    char text[PAGE_NUMBER_CHARS];
    const double y = y_px(frame, value);
    if (value < frame->y.min || value > frame->y.max)
        return;
    snprintf(text, sizeof text, value < 1e6 ? "%.6g" : "%.3g", value);
    fprintf(frame->file,
            "<path class=\"g\" d=\"M%d %.1fH%d\"/><text class=\"m e\" x=\"%d\" "
            "y=\"%.1f\">%s</text>\n",
            LEFT, y, RIGHT, LEFT - 5, y + 4, text);
}

/* 1, 2, 5, 10, ... or powers of ten where these are many. */
static void log_ticks(const struct frame *frame)
{
    static const double steps[] = {1, 2, 5};
    const double decades = log10(frame->y.max / frame->y.min);
    const int num_steps = decades < 2.6 ? 3 : 1;
    const int every = decades > 8 ? 2 : 1;
    for (int exponent = (int)floor(log10(frame->y.min)); exponent <= log10(frame->y.max);
         exponent += every)
        for (int i = 0; i < num_steps; i++)
            y_tick(frame, steps[i] * pow(10, exponent));
}

double plot_step(double least)
{
    const double power = pow(10, floor(log10(least)));
    return (least / power > 5 ? 10 : least / power > 2 ? 5 : 2) * power;
}

static void linear_ticks(const struct frame *frame)
{
    const double step = plot_step((frame->y.max - frame->y.min) / 5);
    for (int i = 0; i < 8; i++)
        y_tick(frame, (ceil(frame->y.min / step) + i) * step);
}

static void x_tick(const struct frame *frame, double value)
{
    char text[PAGE_NUMBER_CHARS];
    if (frame->plot->x_unit == PLOT_BYTES)
        page_bytes(value, text);
    else
        snprintf(text, sizeof text, "%.6g", value);
    fprintf(frame->file,
            "<path class=\"g\" d=\"M%.1f %dV%d\"/><text class=\"m c\" x=\"%.1f\" "
            "y=\"%d\">%s</text>\n",
            x_px(frame, value), TOP, BOTTOM, x_px(frame, value), BOTTOM + 16, text);
}

/* At sizes that were measured, as far as there is room. */
static void x_ticks(const struct frame *frame)
{
    const struct plot *plot = frame->plot;
    size_t count = 0, room = 0;
    for (int c = 0; c < plot->num_curves; c++)
        room += (size_t)plot->curves[c].num_points;
    double *sizes = calloc(room + 1, sizeof *sizes);
    for (int c = 0; sizes != NULL && c < plot->num_curves; c++)
        for (int i = 0; i < plot->curves[c].num_points; i++)
            sizes[count++] = plot->curves[c].points[i].x;
    figures_sort(sizes, count);
    const int apart_px = plot->x_unit == PLOT_BYTES ? BYTES_TICK_PX : TICK_PX;
    double last = -INFINITY;
    for (size_t i = 0; i < count; i++)
        if (x_px(frame, sizes[i]) >= last + apart_px) {
            x_tick(frame, sizes[i]);
            last = x_px(frame, sizes[i]);
        }
    free(sizes);
}

static void axes(const struct frame *frame)
{
    if (frame->plot->y_scale == PLOT_LOGARITHMIC && frame->y.max > 4 * frame->y.min)
        log_ticks(frame);
    else
        linear_ticks(frame);
    x_ticks(frame);
    page_print(frame->file, "<text class=\"m c\" x=\"%d\" y=\"%d\">%s</text>\n", (LEFT + RIGHT) / 2,
               BOTTOM + 33, frame->plot->x_title);
}

/* ------------------------------------------------------------------ curves */

static void curve(const struct frame *frame, const struct plot_curve *curve)
{
    const int colour = curve->colour % PAGE_NUM_COLOURS;
    if (curve->label == NULL)
        fputs("<path class=\"o\" d=\"", frame->file);
    else
        fprintf(frame->file, "<path class=\"l k%d d%d\" d=\"", colour, curve->dash % 4);
    for (int i = 0; i < curve->num_points; i++)
        fprintf(frame->file, "%c%.1f %.1f", i == 0 ? 'M' : 'L', x_px(frame, curve->points[i].x),
                y_px(frame, curve->points[i].y));
    fputs("\"/>\n", frame->file);
    if (curve->label == NULL)
        return;
    fprintf(frame->file, "<path class=\"q k%d\" d=\"", colour);
    for (int i = 0; i < curve->num_points; i++)
        fprintf(frame->file, "M%.1f %.1fh0", x_px(frame, curve->points[i].x),
                y_px(frame, curve->points[i].y));
    fputs("\"/>\n", frame->file);
}

struct label {
    const struct plot_curve *curve;
    double from, y; /* of its first line */
    char lines[2][4 * LABEL_LETTERS + 4];
};

static int compare_labels(const void *a, const void *b)
{
    const double left = ((const struct label *)a)->y, right = ((const struct label *)b)->y;
    return (left > right) - (left < right);
}

static double height_of(const struct label *label)
{
    return label->lines[1][0] == '\0' ? LABEL_PX : 2 * LABEL_PX - 1;
}

/* Moves labels apart that would overlap: down, then those below the axis up again. */
static void spread(struct label *labels, int count)
{
    double bottom = BOTTOM + LABEL_PX;
    qsort(labels, (size_t)count, sizeof *labels, compare_labels);
    for (int i = 1; i < count; i++)
        labels[i].y = fmax(labels[i].y, labels[i - 1].y + height_of(&labels[i - 1]));
    for (int i = count - 1; i >= 0; i--) {
        labels[i].y = fmin(labels[i].y, bottom - height_of(&labels[i]));
        bottom = labels[i].y;
    }
}

/* The bytes of as many letters as there is room for, up to the last space if all do not fit. */
static size_t fitting(const char *text)
{
    int letters = 0;
    size_t length = 0, space = 0;
    for (; text[length] != '\0'; length++) {
        letters += ((unsigned char)text[length] & 0xc0) != 0x80;
        if (letters > LABEL_LETTERS || length >= (size_t)4 * LABEL_LETTERS)
            return space > 0 ? space : length;
        if (text[length] == ' ')
            space = length;
    }
    return length;
}

/* In two lines at most. */
static void wrap(const char *text, struct label *label)
{
    for (int line = 0; line < 2; line++) {
        const size_t length = fitting(text);
        snprintf(label->lines[line], sizeof label->lines[line], "%.*s%s", (int)length, text,
                 line == 1 && text[length] != '\0' ? "\xe2\x80\xa6" : "");
        text += length + (text[length] == ' ');
    }
}

static void write_label(const struct frame *frame, const struct label *label)
{
    const struct plot_curve *curve = label->curve;
    const double x = x_px(frame, curve->points[curve->num_points - 1].x);
    fprintf(frame->file, "<path class=\"o\" d=\"M%.1f %.1fL%d %.1f\"/>\n", x + 4, label->from,
            RIGHT + 4, label->y);
    for (int line = 0; line < 2 && label->lines[line][0] != '\0'; line++) {
        page_print(frame->file, "<text class=\"f k%d\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                   curve->colour % PAGE_NUM_COLOURS, RIGHT + 7,
                   label->y + 4 + line * (LABEL_PX - 1), label->lines[line]);
    }
}

static void write_labels(const struct frame *frame)
{
    struct label labels[MAX_LABELS];
    int count = 0;
    for (int c = 0; c < frame->plot->num_curves && count < MAX_LABELS; c++) {
        const struct plot_curve *curve = &frame->plot->curves[c];
        if (curve->label == NULL)
            continue;
        const double y = y_px(frame, curve->points[curve->num_points - 1].y);
        labels[count] = (struct label){.curve = curve, .from = y, .y = y};
        wrap(curve->label, &labels[count++]);
    }
    spread(labels, count);
    for (int i = 0; i < count; i++)
        write_label(frame, &labels[i]);
}

void plot_open(FILE *file, int height, const char *title)
{
    page_print(file,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
               "viewBox=\"0 0 %d %d\" role=\"img\"><title>%s</title>\n"
               "<text class=\"t\" x=\"0\" y=\"13\">%s</text>\n",
               PLOT_WIDTH, height, PLOT_WIDTH, height, title, title);
}

int plot_write(FILE *file, const struct plot *plot)
{
    struct frame frame = {.file = file, .plot = plot};
    find_ranges(&frame);
    plot_open(file, HEIGHT, plot->title);
    axes(&frame);
    for (int c = 0; c < plot->num_curves; c++)
        if (plot->curves[c].label == NULL)
            curve(&frame, &plot->curves[c]);
    for (int c = 0; c < plot->num_curves; c++)
        if (plot->curves[c].label != NULL)
            curve(&frame, &plot->curves[c]);
    write_labels(&frame);
    fputs("</svg>\n", file);
    return HEIGHT;
}
