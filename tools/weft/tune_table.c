/* SPDX-License-Identifier: MIT */
#include "tune_table.h"

#include <math.h>
#include <time.h>

#include "coll_report.h"
#include "job.h"

static int is_same(const struct tune_variant *a, const struct tune_variant *b)
{
    return a->algorithm == b->algorithm && a->num_blocks == b->num_blocks &&
           a->num_warps == b->num_warps;
}

static void print_row(const struct tune_table *table, weft_collective op, const char *max_bytes,
                      const struct tune_variant *variant)
{
    fprintf(table->file, "%s %d %s %s %s %d %d\n", job_machine_names[table->machine],
            table->num_ranks, collective_names[op], max_bytes,
            weft_coll_algorithm_name(variant->algorithm), variant->num_blocks, variant->num_warps);
}

/* A row reaches to the middle, on a logarithmic scale, between its last point and the next one. */
void tune_table_add(const struct tune_table *table, const struct tune_curve *curve)
{
    for (int i = 0; i < curve->num_points; i++) {
        const struct tune_point *point = &curve->points[i], *next = point + 1;
        char max_bytes[COLL_SIZE_CHARS] = "inf";
        if (i + 1 < curve->num_points) {
            if (is_same(&point->best, &next->best))
                continue;
            coll_size_text((uint64_t)sqrt((double)point->bytes * (double)next->bytes), max_bytes);
        }
        print_row(table, curve->op, max_bytes, &point->best);
    }
}

static void print_device(const struct tune_table *table)
{
    weft_device_info device = WEFT_INIT(weft_device_info);
    if (weft_device_query(table->machine, 0, &device) == WEFT_OK)
        fprintf(table->file, " (%s)", device.name);
}

void tune_table_begin(const struct tune_table *table, const struct tune_options *options)
{
    const uint32_t version = weft_version();
    const time_t now = time(NULL);
    struct tm utc;
    char date[32] = "";
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%d", &utc);
    fprintf(table->file, "# weft tune %u.%u.%u, %s: machine %s", version / 10000,
            version / 100 % 100, version % 100, date, job_machine_names[table->machine]);
    print_device(table);
    fprintf(table->file,
            ", %d ranks, median of %d iterations%s, the slower of out of place and in place\n"
            "# machine ranks collective max_bytes algorithm blocks warps\n",
            table->num_ranks, options->coll.num_iters,
            options->coll.launch == COLL_LAUNCH_GRAPHS ? " in graphs" : "");
}
