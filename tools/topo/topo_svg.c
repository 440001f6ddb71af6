/* SPDX-License-Identifier: MIT */
/* A drawing: processors above, what is below them in a tree with GB/s at each link, NVLinks below
 * the GPUs, and under that a lane for each different channel, in colours. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo_view.h"

enum {
    COLUMN_PX = 130,
    LEVEL_PX = 80,
    BOX_WIDTH_PX = 110,
    BOX_HEIGHT_PX = 34,
    BOX_LETTERS = 17,
    LANE_PX = 34,
    MARGIN_PX = 90,
    MAX_LANES = 32,
    MAX_LEVELS = 12
};

struct point {
    int x, y;
};

struct canvas {
    FILE *file;
    const struct topo_view *view;
    struct point *points[TOPO_NUM_KINDS]; /* the middle of each node's box */
    int num_columns, num_levels;
};

static struct point *point_of(const struct canvas *canvas, const struct topo_node *node)
{
    return &canvas->points[node->kind][node->index];
}

/* ------------------------------------------------------------------ layout */

/* Leaves get columns; what is above is in the middle of what is below. */
static void place(struct canvas *canvas, const struct topo_node *node, const struct topo_node *from,
                  int level)
{
    struct point *point = point_of(canvas, node);
    int first = -1, last = -1;
    for (int32_t i = 0; i < node->num_links && level < MAX_LEVELS; i++) {
        if (node->kind == TOPO_GPU || !topo_is_below(&node->links[i], from))
            continue;
        place(canvas, node->links[i].to, node, level + 1);
        last = point_of(canvas, node->links[i].to)->x;
        first = first < 0 ? last : first;
    }
    if (first < 0)
        first = last = MARGIN_PX + COLUMN_PX * canvas->num_columns++;
    *point = (struct point){(first + last) / 2, MARGIN_PX + LEVEL_PX * level};
    canvas->num_levels = level >= canvas->num_levels ? level + 1 : canvas->num_levels;
}

static int gpu_row(const struct canvas *canvas)
{
    return MARGIN_PX + LEVEL_PX * (canvas->num_levels - 1);
}

static void place_all(struct canvas *canvas)
{
    const struct topo *topo = canvas->view->topo;
    for (int32_t i = 0; i < topo_count(topo, TOPO_CPU); i++)
        place(canvas, topo_at(topo, TOPO_CPU, i), NULL, 0);
    for (int32_t i = 0; i < topo_count(topo, TOPO_GPU); i++)
        canvas->points[TOPO_GPU][i].y = gpu_row(canvas);
    for (int32_t i = 0; i < topo_count(topo, TOPO_NVS); i++)
        canvas->points[TOPO_NVS][i] = (struct point){
            MARGIN_PX + COLUMN_PX * (canvas->num_columns - 1) / 2, gpu_row(canvas) + 2 * LEVEL_PX};
}

/* ------------------------------------------------------------------ pieces */

static void print_text(const struct canvas *canvas, struct point at, const char *text)
{
    fprintf(canvas->file, "<text x=\"%d\" y=\"%d\">", at.x, at.y);
    for (; *text != '\0'; text++) {
        if (*text == '&' || *text == '<')
            fprintf(canvas->file, "&#%d;", *text);
        else
            fputc(*text, canvas->file);
    }
    fprintf(canvas->file, "</text>\n");
}

static void draw_link(const struct canvas *canvas, const struct topo_node *from,
                      const struct topo_link *link, const char *style)
{
    const struct point a = *point_of(canvas, from);
    struct point b = *point_of(canvas, link->to);
    char text[32];
    if (link->to->kind == TOPO_NVS)
        b.x = a.x; /* its box is as wide as the row of GPUs */
    snprintf(text, sizeof text, "%.4g", (double)link->bw);
    fprintf(canvas->file, "<path class=\"%s\" d=\"M%d %dL%d %d\"/>\n", style, a.x, a.y, b.x, b.y);
    print_text(canvas, (struct point){(a.x + 3 * b.x) / 4 + 22, (a.y + 3 * b.y) / 4 - 14}, text);
}

/* NVLinks between two GPUs: a curve below them. */
static void draw_curve(const struct canvas *canvas, const struct topo_node *from,
                       const struct topo_link *link)
{
    const struct point a = *point_of(canvas, from), b = *point_of(canvas, link->to);
    const int low = a.y + BOX_HEIGHT_PX / 2 + (b.x - a.x) / 5 + 20;
    char text[32];
    snprintf(text, sizeof text, "%.4g", (double)link->bw);
    fprintf(canvas->file, "<path class=\"nvlink\" d=\"M%d %dQ%d %d %d %d\"/>\n", a.x, a.y,
            (a.x + b.x) / 2, 2 * low - a.y, b.x, b.y);
    print_text(canvas, (struct point){(a.x + b.x) / 2, low}, text);
}

static void draw_links_of(const struct canvas *canvas, const struct topo_node *node)
{
    for (int32_t i = 0; i < node->num_links; i++) {
        const struct topo_link *link = &node->links[i];
        const struct point a = *point_of(canvas, node), b = *point_of(canvas, link->to);
        const int is_nvlink = link->type == TOPO_NVL;
        if (is_nvlink && node->kind == TOPO_GPU && link->to->kind == TOPO_GPU) {
            if (a.x < b.x)
                draw_curve(canvas, node, link);
        } else if (a.y < b.y || (a.y == b.y && a.x < b.x)) { /* one of the two ways */
            draw_link(canvas, node, link, is_nvlink ? "nvlink" : "link");
        }
    }
}

static void draw_box(const struct canvas *canvas, const struct topo_node *node)
{
    const struct point at = *point_of(canvas, node);
    const int width = node->kind == TOPO_NVS ? COLUMN_PX * (canvas->num_columns - 1) + BOX_WIDTH_PX
                                             : BOX_WIDTH_PX;
    char text[64];
    topo_node_text(node, text);
    if (strncmp(text, "NIC ", 4) == 0 && strlen(text) > BOX_LETTERS)
        text[3] = '\0';
    fprintf(canvas->file,
            "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n",
            topo_kind_name(node->kind), at.x - width / 2, at.y - BOX_HEIGHT_PX / 2, width,
            BOX_HEIGHT_PX);
    if (strncmp(text, "PCI switch ", 11) == 0)
        print_text(canvas, (struct point){at.x, at.y + 4}, text + 11);
    else
        print_text(canvas, (struct point){at.x, at.y + 4}, text);
}

static void draw_machine(const struct canvas *canvas)
{
    const struct topo *topo = canvas->view->topo;
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            draw_links_of(canvas, topo->sets[kind].nodes[i]);
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            draw_box(canvas, topo->sets[kind].nodes[i]);
}

/* ------------------------------------------------------------------ channels */

/* How often channel c is there, 0 if an earlier one is like it. */
static int count_alike(const struct channels *channels, int32_t c)
{
    int count = 0;
    for (int32_t i = 0; i < channels->num_channels; i++) {
        if (!topo_channels_are_same(channels, i, c))
            continue;
        if (i < c)
            return 0;
        count++;
    }
    return count;
}

static void draw_hop(const struct canvas *canvas, const struct topo_node *from,
                     const struct topo_node *to, int y)
{
    const int a = point_of(canvas, from)->x, b = point_of(canvas, to)->x;
    const int bend = y - 4 - (abs(b - a) / COLUMN_PX) * 3;
    fprintf(canvas->file, "<path d=\"M%d %dQ%d %d %d %d\" marker-end=\"url(#arrow)\"/>\n", a, y,
            (a + b) / 2, bend, b, y);
}

static void draw_lane(const struct canvas *canvas, const struct channels *channels, int32_t c,
                      int y)
{
    const struct topo *topo = canvas->view->topo;
    const struct channel *channel = &channels->channel[c];
    const int32_t last = channels->num_gpus - 1;
    const struct topo_node *from = NULL;
    const int32_t comes_by = topo_port_of(canvas->view, channels, c, TOPO_COMES);
    const int32_t goes_by = topo_port_of(canvas->view, channels, c, TOPO_GOES);
    if (comes_by >= 0)
        from = topo_at(topo, TOPO_NET, comes_by);
    for (int32_t i = 0; i <= last; i++) {
        const struct topo_node *gpu = topo_gpu_of_rank(topo, channel->ranks[i]);
        if (from != NULL)
            draw_hop(canvas, from, gpu, y);
        from = gpu;
    }
    if (channels->pattern != PATTERN_RING || from == NULL)
        return;
    draw_hop(canvas, from,
             goes_by >= 0 ? topo_at(topo, TOPO_NET, goes_by)
                          : topo_gpu_of_rank(topo, channel->ranks[0]),
             y);
}

static int draw_set(const struct canvas *canvas, const struct channels *channels, int y)
{
    int num_lanes = 0;
    for (int32_t c = 0; c < channels->num_channels && num_lanes < MAX_LANES; c++) {
        const int count = count_alike(channels, c);
        char text[64];
        if (count == 0)
            continue;
        if (channels_were_found(channels))
            snprintf(text, sizeof text, "%s %" PRId32 "%s, %g GB/s", topo_set_name(channels->id), c,
                     count > 1 ? " ..." : "", (double)channels->bw_intra * count);
        else
            snprintf(text, sizeof text, "%s: none found, simple order",
                     topo_set_name(channels->id));
        fprintf(canvas->file, "<g class=\"lane\" stroke=\"hsl(%d,70%%,42%%)\">\n",
                (num_lanes * 67 + (int)channels->id * 30) % 360);
        draw_lane(canvas, channels, c, y);
        fprintf(canvas->file, "</g>\n");
        print_text(canvas, (struct point){MARGIN_PX / 2 + 60, y - 12}, text);
        y += LANE_PX;
        num_lanes++;
    }
    return y;
}

static int first_lane(const struct canvas *canvas)
{
    const int has_nvs = topo_count(canvas->view->topo, TOPO_NVS) > 0;
    const int y = gpu_row(canvas) + (has_nvs ? 3 : 2) * LEVEL_PX + LANE_PX;
    return has_nvs ? y : y + COLUMN_PX * canvas->num_columns / 5;
}

/* One of the sets that lanes are drawn for, or NULL. */
static const struct channels *drawn_set(const struct canvas *canvas, int i)
{
    const struct channels *channels = topo_view_set(canvas->view, topo_set_order[i]);
    return channels != NULL && channels->id != CHANNELS_NVLS ? channels : NULL;
}

static void draw_channels(const struct canvas *canvas)
{
    int y = first_lane(canvas);
    for (int i = 0; i < TOPO_NUM_SETS; i++)
        if (drawn_set(canvas, i) != NULL)
            y = draw_set(canvas, drawn_set(canvas, i), y);
}

/* ------------------------------------------------------------------ the file */

static int height_of(const struct canvas *canvas)
{
    int num_lanes = 0;
    for (int i = 0; i < TOPO_NUM_SETS; i++) {
        const struct channels *channels = drawn_set(canvas, i);
        for (int32_t c = 0; channels != NULL && c < channels->num_channels; c++)
            num_lanes += count_alike(channels, c) > 0;
    }
    return first_lane(canvas) + LANE_PX * num_lanes;
}

static void draw(const struct canvas *canvas)
{
    const int width = 2 * MARGIN_PX + COLUMN_PX * canvas->num_columns;
    fprintf(canvas->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n"
            "<style>rect{fill:#eee;stroke:#555}rect.GPU{fill:#cde8c0}rect.NVS{fill:#dfd0f0}"
            "rect.NET{fill:#cfe3f7}rect.CPU{fill:#f7e3c0}.link{stroke:#777;fill:none}"
            ".nvlink{stroke:#7a4fb5;stroke-width:2;fill:none}.lane path{fill:none;stroke-width:2}"
            "</style>\n"
            "<defs><marker id=\"arrow\" markerWidth=\"7\" markerHeight=\"7\" refX=\"6\" refY=\"3\" "
            "orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" fill=\"#444\" "
            "stroke=\"none\"/></marker></defs>\n"
            "<rect width=\"%d\" height=\"%d\" style=\"fill:#fff;stroke:none\"/>\n",
            width, height_of(canvas), width, height_of(canvas));
    print_text(canvas, (struct point){width / 2, 30}, canvas->view->name);
    print_text(canvas, (struct point){width / 2, 48}, "bandwidths in GB/s one way");
    draw_machine(canvas);
    draw_channels(canvas);
    fprintf(canvas->file, "</svg>\n");
}

static int create_points(struct canvas *canvas)
{
    int is_created = 1;
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++) {
        const size_t count = (size_t)canvas->view->topo->sets[kind].count;
        canvas->points[kind] = calloc(count + 1, sizeof(struct point));
        is_created &= canvas->points[kind] != NULL;
    }
    return is_created;
}

int topo_write_svg(const struct topo_view *view, const char *path)
{
    struct canvas canvas = {.file = fopen(path, "we"), .view = view};
    int is_written = canvas.file != NULL && create_points(&canvas);
    if (is_written) {
        place_all(&canvas);
        draw(&canvas);
        is_written = !ferror(canvas.file);
    }
    if (canvas.file != NULL && fclose(canvas.file) != 0)
        is_written = 0;
    if (!is_written)
        fprintf(stderr, "weft topo: cannot write %s: %s\n", path, strerror(errno));
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        free(canvas.points[kind]);
    return is_written ? 0 : -1;
}
