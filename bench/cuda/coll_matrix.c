/* SPDX-License-Identifier: MIT */
#include "coll_matrix.h"

#include <stdio.h>
#include <string.h>

enum { LABEL_BYTES = 48, MIN_WIDTH = 9 };

/* oneshot/8x16: algorithm, blocks, warps. */
static void write_label(const struct way *way, char label[LABEL_BYTES])
{
    const char *name = weft_coll_algorithm_name(way->algorithm);
    if (way->num_warps > 0)
        snprintf(label, LABEL_BYTES, "%s/%dx%d", name, way->num_blocks, way->num_warps);
    else if (way->num_blocks > 0)
        snprintf(label, LABEL_BYTES, "%s/%d", name, way->num_blocks);
    else
        snprintf(label, LABEL_BYTES, "%s", name);
}

static int width_of(const struct way *way)
{
    char label[LABEL_BYTES];
    write_label(way, label);
    const int width = (int)strlen(label);
    return 1 + (width > MIN_WIDTH ? width : MIN_WIDTH);
}

void coll_matrix_heading(const struct collective *collective, const struct way *ways,
                         int32_t num_ways)
{
    char label[LABEL_BYTES];
    printf("%s of %s, %d ranks: us per call in a graph; algorithm/blocks x warps\n%10s",
           collective_names[collective->kind], dtype_names[collective->source.dtype],
           collective->num_ranks, "bytes");
    for (int32_t i = 0; i < num_ways; i++) {
        write_label(&ways[i], label);
        printf("%*s", width_of(&ways[i]), label);
    }
    printf("  best\n");
    fflush(stdout);
}

void coll_matrix_begin_line(struct coll_matrix *matrix, uint64_t bytes)
{
    matrix->best_us = 0;
    printf("%10llu", (unsigned long long)bytes);
}

void coll_matrix_cell(struct coll_matrix *matrix, const struct way *way, const struct figures *us,
                      uint64_t num_wrong)
{
    if (num_wrong > 0) {
        printf("%*s", width_of(way), "WRONG");
        return;
    }
    printf("%*.2f", width_of(way), us->median);
    if (matrix->best_us == 0 || us->median < matrix->best_us) {
        matrix->best_us = us->median;
        matrix->best = *way;
    }
}

void coll_matrix_empty_cell(const struct way *way)
{
    printf("%*s", width_of(way), "-");
}

void coll_matrix_end_line(const struct coll_matrix *matrix)
{
    char label[LABEL_BYTES] = "-";
    if (matrix->best_us > 0)
        write_label(&matrix->best, label);
    printf("  %s\n", label);
    fflush(stdout);
}
