/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdio.h>

static double gb_per_s(double bytes, double us)
{
    return bytes / us * 1e-3;
}

void report_print(const struct report *report, const struct measured *measured)
{
    printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": \"cuda, "
           "%d ranks, tokens per rank %d, rows of %s bytes, top-%d of %d experts, %s",
           measured->name, measured->us.median, report->num_ranks, measured->num_tokens,
           measured->rows, report->num_topk, report->num_experts, measured->kernel);
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
    fflush(stdout); /* measured figures stay, also when the program is ended */
}
