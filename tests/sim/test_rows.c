/* SPDX-License-Identifier: MIT */
/* Rows that are quantised and restored on the sim: lanes take turns in their parts, and what comes
 * is what the cpu machine makes of whole rows. */
#include <string.h>

#include "harness/cmocka.h"
#include "machine/cpu/cpu_rows.h"
#include "machine/machine.h"
#include "sim_job.h"

enum { NUM_SEEDS = 60, NUM_ROWS = 2, HIDDEN = 1152, GROUP = 128, NUM_FORMS = 2 };
enum { NUM_ELEMENTS = NUM_ROWS * HIDDEN, NUM_GROUPS = NUM_ELEMENTS / GROUP };

struct area {
    uint16_t src[NUM_ELEMENTS]; /* bf16 */
    uint16_t back[NUM_ELEMENTS];
    char narrow[NUM_ELEMENTS];
    float scales[NUM_GROUPS];
};

static const weft_rows_args forms[NUM_FORMS] = {
    {.quantisation = {WEFT_FP8_E4M3, WEFT_SCALE_FP32, GROUP}},
    {.quantisation = {WEFT_INT8, WEFT_SCALE_UE8M0, GROUP}}};

static weft_rows_args args_of(int form, const void *src, void *dst, struct area *area)
{
    weft_rows_args args = forms[form];
    args.size = sizeof args;
    args.src = src;
    args.dst = dst;
    args.scales = area->scales;
    args.num_rows = NUM_ROWS;
    args.hidden = HIDDEN;
    args.dtype = WEFT_BF16;
    return args;
}

/* The rows are whole groups, so that scales of one row after the other are those of one long
 * row. */
static void expect(int form, const struct area *area, struct area *expected)
{
    const struct weft__row_functions *cpu = weft__cpu_rows_of(WEFT__ROWS_BASE);
    const weft_rows_args *args = &forms[form];
    const struct wp_quantisation there = {WEFT_BF16, args->quantisation.dtype,
                                          (enum wp_scale_kind)args->quantisation.scale, GROUP, 0};
    const struct wp_quantisation back = {args->quantisation.dtype, WEFT_BF16,
                                         (enum wp_scale_kind)args->quantisation.scale, GROUP, 0};
    const void *narrow = expected->narrow, *scales = expected->scales;
    const struct wp_quantised_rows to = {&narrow, &scales, 0, 1};
    cpu->quantise(to, area->src, there, NUM_ELEMENTS);
    cpu->dequantise(expected->back, expected->narrow, expected->scales, back, NUM_ELEMENTS);
}

/* 0: there and back as on the cpu machine. */
static int run_form(weft_comm *comm, weft_stream *stream, struct area *area, int form)
{
    static struct area expected;
    const weft_rows_args there = args_of(form, area->src, area->narrow, area);
    const weft_rows_args back = args_of(form, area->narrow, area->back, area);
    memset(&expected, 0, sizeof expected);
    weft__sim_host_writes(area, sizeof *area);
    memset(area, 0, sizeof *area);
    for (int i = 0; i < NUM_ELEMENTS; i++)
        area->src[i] = (uint16_t)(0x3d00 + 37 * i % 1024 + (i % 3 == 0 ? 0x8000 : 0));
    expect(form, area, &expected);
    if (weft_rows_quantise(comm, &there, stream) != WEFT_OK ||
        weft_rows_dequantise(comm, &back, stream) != WEFT_OK ||
        weft_stream_synchronize(stream) != WEFT_OK)
        return 1;
    weft__sim_host_reads(area, sizeof *area);
    return memcmp(area->narrow, expected.narrow, sizeof area->narrow) != 0 ||
           memcmp(area->scales, expected.scales, sizeof area->scales) != 0 ||
           memcmp(area->back, expected.back, sizeof area->back) != 0;
}

static int run_forms(weft_comm *comm, weft_stream *stream, void *area)
{
    int failed = 0;
    for (int form = 0; form < NUM_FORMS; form++)
        failed |= run_form(comm, stream, area, form);
    return failed;
}

static int run_rank(int32_t number, void *job)
{
    return sim_job_use_block(job, number, sizeof(struct area), run_forms);
}

static void run_schedule(const void *none, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    struct sim_job job = {.num_nodes = 1, .ranks_per_node = 1, .weakened_site = weakened_site};
    (void)none;
    sim_job_run(&job, run_rank, &job, seed, result);
}

TEST_CALL(rows_are_those_of_the_cpu_machine,
          schedules_expect_sound(&(struct schedules){run_schedule, NULL, NUM_SEEDS}))
