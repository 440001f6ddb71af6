/* SPDX-License-Identifier: MIT */
/*
 * Copies of experts for one step (weft_balance_fill), on traces of a real model, as JSON lines: the
 * rows of the busiest rank over the mean, before and with copies, and the bytes that copies move.
 * A row is a token's choice of an expert. The rows are counted, token by token, by their granules.
 *
 *     balance_bench --ranks 8 --spare 2 TRACE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weft.h"
#include "workload/options.h"
#include "workload/trace.h"

struct balance_bench {
    struct option_texts traces;
    int32_t num_ranks, num_spare, num_steps;
    uint64_t expert_bytes;
    double target;
};

#define AT(member) OPTION_AT(struct balance_bench, member)

static const struct option_row option_table[] = {
    {OPTION_INTEGER, "ranks", "R", "Place the experts evenly on R ranks", "8", AT(num_ranks),
     .min = 1, .max = 1024},
    {OPTION_INTEGER, "spare", "S", "Each rank has S spare replicas", "2", AT(num_spare), .min = 0,
     .max = 1024},
    {OPTION_INTEGER, "steps", "N", "Divide each trace into N steps", "1", AT(num_steps), .min = 1,
     .max = 4096},
    {OPTION_REAL, "target", "X", "Copy until the busiest rank has X times the mean", "1.01",
     AT(target), .min = 1, .max = 1000},
    {OPTION_SIZE, "expert-bytes", "SIZE",
     "Bytes of an expert's weights; those of DeepSeek-V2-Lite are 3 x 2048 x 1408 in bf16",
     "17301504", AT(expert_bytes), .min = 1, .max = INT64_MAX / 65536},
    {OPTION_ARGUMENTS, .arg = "TRACE...", AT(traces)},
    {0}};

static const char documentation[] =
    "Prints how even the ranks' rows become by copies of experts for one step, on traces.";

/* One value for each layer of each step of a trace. */
struct results {
    int32_t count;
    double *before, *after, *num_copies;
    double cpu_us;
};

struct step {
    const struct balance_bench *bench;
    const struct trace *trace;
    weft_balance_config config;
    int32_t num_tokens;
    int32_t *topk_idx; /* [num_tokens][num_topk] */
    float *loads;
    int32_t *base, *experts, *granules;
    int64_t *rank_rows;
};

static void fail(const char *what)
{
    fprintf(stderr, "balance_bench: %s\n", what);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL)
        fail("no memory");
    return memory;
}

/* The rows of the busiest rank over the mean, counted. */
static double count_rows(const struct step *step)
{
    const int32_t num_ranks = step->config.num_ranks, num_topk = step->trace->num_topk,
                  rank_replicas = step->config.num_replicas / num_ranks;
    int64_t busiest = 0, sum = 0;
    memset(step->rank_rows, 0, (size_t)num_ranks * sizeof *step->rank_rows);
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const int64_t num_tokens = step->num_tokens;
        const int32_t begin = (int32_t)(num_tokens * rank / num_ranks),
                      end = (int32_t)(num_tokens * (rank + 1) / num_ranks);
        for (int32_t i = begin * num_topk; i < end * num_topk; i++) {
            const int32_t granule = (rank + i / num_topk - begin) % WEFT_BALANCE_GRANULES;
            const int32_t replica =
                step->granules[step->topk_idx[i] * WEFT_BALANCE_GRANULES + granule];
            step->rank_rows[replica / rank_replicas]++;
        }
    }
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        busiest = step->rank_rows[rank] > busiest ? step->rank_rows[rank] : busiest;
        sum += step->rank_rows[rank];
    }
    return sum > 0 ? (double)(busiest * num_ranks) / (double)sum : 1;
}

static double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void fill(struct step *step, double target)
{
    step->config.target_imbalance = (float)target;
    memcpy(step->experts, step->base, (size_t)step->config.num_replicas * sizeof *step->base);
    if (weft_balance_fill(&step->config, step->loads, step->experts, step->granules, NULL) !=
        WEFT_OK)
        fail(weft_last_error());
}

static void measure(struct step *step, int32_t layer, int32_t first_token, struct results *results)
{
    enum { ANY = 1000000 }; /* needs no copy */
    const int32_t at = results->count++;
    trace_read(step->trace, layer, first_token, step->num_tokens, step->topk_idx, NULL);
    memset(step->loads, 0, (size_t)step->config.num_experts * sizeof *step->loads);
    for (int32_t i = 0; i < step->num_tokens * step->trace->num_topk; i++)
        step->loads[step->topk_idx[i]]++;
    fill(step, ANY);
    results->before[at] = count_rows(step);
    const double begin_us = cpu_us();
    fill(step, step->bench->target);
    results->cpu_us += cpu_us() - begin_us;
    results->after[at] = count_rows(step);
    for (int32_t i = 0; i < step->config.num_replicas; i++)
        results->num_copies[at] += step->experts[i] != step->base[i];
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median, and the greatest, of values that it sorts. */
static void print_values(const char *name, double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    printf(", \"%s_median\": %.3f, \"%s_worst\": %.3f", name,
           (values[(count - 1) / 2] + values[count / 2]) / 2, name, values[count - 1]);
}

static void print_results(const struct balance_bench *bench, const char *path,
                          const struct results *results)
{
    const char *slash = strrchr(path, '/');
    double sum = 0;
    for (int32_t i = 0; i < results->count; i++)
        sum += results->num_copies[i];
    printf("{\"name\": \"weft_balance_fill\", \"trace\": \"%s\", \"num_ranks\": %d, \"spare\": %d, "
           "\"num_steps\": %d, \"target\": %.3f",
           slash != NULL ? slash + 1 : path, bench->num_ranks, bench->num_spare, bench->num_steps,
           bench->target);
    print_values("before", results->before, results->count);
    print_values("imbalance", results->after, results->count);
    print_values("copies", results->num_copies, results->count);
    printf(", \"copies_mean\": %.2f, \"mb_mean\": %.1f, \"mb_worst\": %.1f, \"cpu_us\": %.2f}\n",
           sum / results->count, sum / results->count * (double)bench->expert_bytes / 1e6,
           results->num_copies[results->count - 1] * (double)bench->expert_bytes / 1e6,
           results->cpu_us / results->count);
}

/* Rank r has the experts E*r/R and so on, then its spare replicas. */
static void place_evenly(struct step *step)
{
    const int32_t num_ranks = step->config.num_ranks,
                  rank_replicas = step->config.num_replicas / num_ranks,
                  rank_experts = step->config.num_experts / num_ranks;
    for (int32_t i = 0; i < step->config.num_replicas; i++) {
        const int32_t local = i % rank_replicas;
        step->base[i] = local < rank_experts ? i / rank_replicas * rank_experts + local : -1;
    }
}

static void run_trace(const struct balance_bench *bench, const char *path)
{
    char error[TRACE_ERROR_BYTES];
    struct trace *trace = trace_open(path, error);
    if (trace == NULL)
        fail(error);
    if (trace->num_experts % bench->num_ranks != 0)
        fail("--ranks must divide the number of experts");
    const size_t num_experts = (size_t)trace->num_experts;
    const size_t count = (size_t)trace->num_layers * (size_t)bench->num_steps;
    struct results results = {.before = allocate(count, sizeof(double)),
                              .after = allocate(count, sizeof(double)),
                              .num_copies = allocate(count, sizeof(double))};
    struct step step = {.bench = bench, .trace = trace, .config = WEFT_INIT(weft_balance_config)};
    step.config.num_layers = 1;
    step.config.num_experts = trace->num_experts;
    step.config.num_ranks = bench->num_ranks;
    step.config.num_replicas = trace->num_experts + bench->num_ranks * bench->num_spare;
    step.topk_idx = allocate((size_t)trace->num_tokens * (size_t)trace->num_topk, sizeof(int32_t));
    step.loads = allocate(num_experts, sizeof(float));
    step.base = allocate((size_t)step.config.num_replicas, sizeof(int32_t));
    step.experts = allocate((size_t)step.config.num_replicas, sizeof(int32_t));
    step.granules = allocate(num_experts * WEFT_BALANCE_GRANULES, sizeof(int32_t));
    step.rank_rows = allocate((size_t)bench->num_ranks, sizeof(int64_t));
    place_evenly(&step);
    for (int32_t i = 0; i < bench->num_steps; i++) {
        const int32_t begin = trace_first_token(trace, i, bench->num_steps);
        step.num_tokens = trace_first_token(trace, i + 1, bench->num_steps) - begin;
        for (int32_t layer = 0; layer < trace->num_layers; layer++)
            measure(&step, layer, begin, &results);
    }
    print_results(bench, path, &results);
    void *const blocks[] = {results.before, results.after, results.num_copies,
                            step.topk_idx,  step.loads,    step.base,
                            step.experts,   step.granules, step.rank_rows};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    trace_close(trace);
}

int main(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, NULL};
    struct balance_bench bench = {.traces = {.count = 0}};
    options_parse(&set, &bench, argc, argv);
    for (int32_t i = 0; i < bench.traces.count; i++)
        run_trace(&bench, bench.traces.texts[i]);
    return EXIT_SUCCESS;
}
