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

static int run_rank(int32_t number, void *argument)
{
    weft_comm *comm;
    weft_stream *stream;
    void *area;
    int failed = 0;
    if (sim_job_open(argument, number, &comm) != WEFT_OK ||
        weft_heap_alloc(comm, sizeof(struct area), &area) != WEFT_OK ||
        weft_stream_create(comm, &stream) != WEFT_OK)
        return 1;
    for (int form = 0; form < NUM_FORMS; form++)
        failed |= run_form(comm, stream, area, form);
    failed |= weft_stream_destroy(stream) != WEFT_OK;
    failed |= weft_heap_free(comm, area) != WEFT_OK;
    return failed | (weft_comm_destroy(comm) != WEFT_OK);
}

TEST(rows_are_those_of_the_cpu_machine)
{
    static struct weft__sim_result result; /* large */
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        struct sim_job job = {
            .num_nodes = 1, .ranks_per_node = 1, .weakened_site = WEFT__SIM_NO_SITE};
        sim_job_run(&job, run_rank, &job, seed, &result);
        sim_expect_sound(&result, seed);
    }
}
