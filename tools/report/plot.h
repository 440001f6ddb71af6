/* SPDX-License-Identifier: MIT */
/* Drawings in SVG, for a report's page or a file: curves against a size, time lines in lanes, and
 * matrices in colours. Each returns its height in pixels; all are PLOT_WIDTH wide. */
#pragma once

#include <stdio.h>

enum { PLOT_WIDTH = 480 };

enum plot_scale { PLOT_LINEAR, PLOT_LOGARITHMIC };
enum plot_unit { PLOT_PLAIN, PLOT_BYTES };

struct plot_point {
    double x, y;
};

struct plot_curve {
    const char *label; /* NULL: a grey curve in the background */
    int colour, dash;  /* variants of one colour differ by their dashes */
    int num_points;
    struct plot_point *points; /* by x */
};

struct plot {
    const char *title, *x_title;
    enum plot_scale x_scale, y_scale;
    enum plot_unit x_unit;
    int num_curves;
    const struct plot_curve *curves;
};
int plot_write(FILE *file, const struct plot *plot);

enum lane_state { LANE_ENDED, LANE_NOT_ENDED };
struct lane_segment {
    const char *name; /* those with one name have one colour */
    double start, end;
    enum lane_state state;
};
struct lane {
    const char *label;
    int num_segments;
    const struct lane_segment *segments;
};
struct lanes {
    const char *title, *x_title;
    int num_lanes;
    const struct lane *lanes;
};
int lanes_write(FILE *file, const struct lanes *lanes);

/* NAN: an empty cell. Colours are by the logarithm. */
struct heat {
    const char *title, *row_title, *column_title;
    int num_rows, num_columns;
    const double *values; /* [row][column] */
};
int heat_write(FILE *file, const struct heat *heat);

/* The least of 2, 5, 10, 20, 50, ... and 0.5, 0.2, ... that is not below `least`. */
double plot_step(double least);
/* Opens a drawing with its title. */
void plot_open(FILE *file, int height, const char *title);
