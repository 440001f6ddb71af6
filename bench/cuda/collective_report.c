/* SPDX-License-Identifier: MIT */
#include "collective_report.h"

#include <stdio.h>
#include <string.h>

static double algbw(const struct collective_figure *figure)
{
    return (double)collective_bytes(figure->collective) / figure->us.median * 1e-3;
}

static double busbw(const struct collective_figure *figure)
{
    return algbw(figure) * collective_bus_factor(figure->collective);
}

static const char *redop_of(const struct collective *collective)
{
    return collective_reduces(collective->kind) ? reduce_op_names[collective->redop] : "none";
}

void collective_report_heading(void)
{
    printf("%-4s %-14s %-20s %10s %6s %5s %-17s %9s %9s %9s %8s %8s %6s\n", "", "operation",
           "algorithm", "bytes", "blocks", "warps", "kernel", "us", "us min", "us max", "algbw",
           "busbw", "wrong");
}

/* Measured figures stay, also when the program is ended. */
void collective_report_line(const struct collective_figure *figure)
{
    const char *how = figure->algorithm;
    char choice[32];
    if (strcmp(figure->asked, how) != 0) {
        snprintf(choice, sizeof(choice), "%s:%s", figure->asked, how);
        how = choice;
    }
    printf("%-4s %-14s %-20s %10llu %6d %5d %-17s %9.2f %9.2f %9.2f %8.2f %8.2f %6llu\n",
           figure->library, collective_names[figure->collective->kind], how,
           (unsigned long long)collective_bytes(figure->collective), figure->num_blocks,
           figure->num_warps, figure->kernel, figure->us.median, figure->us.min, figure->us.max,
           algbw(figure), busbw(figure), (unsigned long long)figure->num_wrong);
    fflush(stdout);
}

void collective_report_json(const struct collective_figure *figure)
{
    const struct collective *collective = figure->collective;
    const char *op = collective_names[collective->kind];
    const char *dtype = dtype_names[collective->source.dtype];
    const unsigned long long bytes = collective_bytes(collective);
    printf("{\"name\": \"%s_%s_us\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": \"cuda, "
           "%d ranks, %s, %llu bytes, %s, %s\", ",
           figure->library, op, figure->us.median, collective->num_ranks, dtype, bytes,
           figure->algorithm, figure->kernel);
    printf("\"op\": \"%s\", \"algo\": \"%s\", \"asked\": \"%s\", \"num_ranks\": %d, "
           "\"bytes\": %llu, \"dtype\": \"%s\", \"redop\": \"%s\", \"kernel\": \"%s\", ",
           op, figure->algorithm, figure->asked, collective->num_ranks, bytes, dtype,
           redop_of(collective), figure->kernel);
    printf("\"num_blocks\": %d, \"num_warps\": %d, \"us_min\": %.3f, \"us_max\": %.3f, "
           "\"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": %llu}\n",
           figure->num_blocks, figure->num_warps, figure->us.min, figure->us.max, algbw(figure),
           busbw(figure), (unsigned long long)figure->num_wrong);
    fflush(stdout);
}
