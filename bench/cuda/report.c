/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdio.h>

static double gb_per_s(double bytes, double us)
{
    return bytes / us * 1e-3;
}

static void print_table(struct report *report, const struct measured *measured)
{
    if (report->num_lines++ == 0)
        printf("%-27s %7s %10s %-17s %4s %10s %10s %10s %10s %10s %6s\n", "figure", "tokens",
               "bytes", "kernel", "SMs", "us", "us min", "us max", "GB/s", "NVLink", "wrong");
    printf("%-27s %7d %10s %-17s %4d %10.2f %10.2f %10.2f %10.1f %10.1f %6lld\n", measured->name,
           measured->num_tokens, measured->rows, measured->kernel, measured->num_sms,
           measured->us.median, measured->us.min, measured->us.max,
           gb_per_s(measured->bytes.counted, measured->us.median),
           gb_per_s(measured->bytes.over_nvlink, measured->us.median),
           (long long)measured->num_wrong);
}

static void print_json(const struct report *report, const struct measured *measured)
{
    printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": \"cuda, "
           "%d ranks, ",
           measured->name, measured->us.median, report->num_ranks);
    if (measured->num_tokens != 0)
        printf("tokens per rank %d, rows of %s bytes, top-%d of %d experts", measured->num_tokens,
               measured->rows, report->num_topk, report->num_experts);
    else
        printf("copies of %s bytes", measured->rows);
    printf(", %s", measured->kernel);
    if (measured->num_sms != 0)
        printf(", %d SMs", measured->num_sms);
    printf("\", \"num_ranks\": %d, \"num_tokens\": %d, "
           "\"num_experts\": %d, \"bytes\": \"%s\", \"kernel\": \"%s\", "
           "\"num_sms\": %d, \"us_min\": %.3f, \"us_max\": %.3f, \"gb_per_s\": %.2f, "
           "\"nvlink_gb_per_s\": %.2f, \"wrong\": %lld}\n",
           report->num_ranks, measured->num_tokens, report->num_experts, measured->rows,
           measured->kernel, measured->num_sms, measured->us.min, measured->us.max,
           gb_per_s(measured->bytes.counted, measured->us.median),
           gb_per_s(measured->bytes.over_nvlink, measured->us.median),
           (long long)measured->num_wrong);
}

void report_print(struct report *report, const struct measured *measured)
{
    if (report->output == OUTPUT_JSON)
        print_json(report, measured);
    else
        print_table(report, measured);
    fflush(stdout); /* what is measured stays, also when the program is ended */
}
