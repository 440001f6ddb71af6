/* SPDX-License-Identifier: MIT */
/* What tool, tests, bench and examples make their inputs with: random numbers, router, payload. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "workload/figures.h"
#include "workload/payload.h"
#include "workload/progress.h"
#include "workload/rng.h"
#include "workload/router.h"

/* ---------------------------------------------------------------- random numbers */

TEST(hash_is_splitmix64)
{
    /* The first outputs of the published generator for the seed 1234567. */
    struct rng rng = {1234567};
    assert_true(rng_next(&rng) == 6457827717110365317u);
    assert_true(rng_next(&rng) == 3203168211198807973u);
    assert_true(rng_next(&rng) == 9817491932198370423u);
}

TEST(draws_stay_in_range)
{
    struct rng rng = {7};
    double sum = 0, square_sum = 0;
    enum { NUM_DRAWS = 100000 };
    for (int i = 0; i < NUM_DRAWS; i++) {
        assert_true(rng_below(&rng, 3) < 3);
        float uniform = rng_uniform(&rng);
        assert_true(uniform >= 0 && uniform < 1);
        double normal = rng_normal(&rng);
        sum += normal;
        square_sum += normal * normal;
    }
    assert_true(fabs(sum / NUM_DRAWS) < 0.02);
    assert_true(fabs(square_sum / NUM_DRAWS - 1) < 0.02);
}

/* ---------------------------------------------------------------- router */

enum { NUM_TOKENS = 2048, NUM_EXPERTS = 64, NUM_TOPK = 6 };

struct routes {
    int32_t topk_idx[NUM_TOKENS * NUM_TOPK];
    float topk_weights[NUM_TOKENS * NUM_TOPK];
};

static struct router_config default_config(float skew)
{
    return (struct router_config){
        .seed = 1, .num_experts = NUM_EXPERTS, .num_topk = NUM_TOPK, .skew = skew};
}

static struct routes *route(float skew)
{
    struct router_config config = default_config(skew);
    struct router *router = router_create(&config);
    struct routes *routes = malloc(sizeof *routes);
    assert_non_null(router);
    assert_non_null(routes);
    router_route(router, 0, NUM_TOKENS, routes->topk_idx, routes->topk_weights);
    router_destroy(router);
    return routes;
}

static double max_over_mean_load(const struct routes *routes)
{
    int load[NUM_EXPERTS] = {0}, max_load = 0;
    for (int i = 0; i < NUM_TOKENS * NUM_TOPK; i++)
        load[routes->topk_idx[i]]++;
    for (int e = 0; e < NUM_EXPERTS; e++)
        max_load = load[e] > max_load ? load[e] : max_load;
    return (double)max_load * NUM_EXPERTS / (NUM_TOKENS * NUM_TOPK);
}

TEST(routes_are_distinct_and_ordered)
{
    struct routes *routes = route(0.5f);
    for (size_t t = 0; t < NUM_TOKENS; t++) {
        const int32_t *topk_idx = &routes->topk_idx[t * NUM_TOPK];
        const float *topk_weights = &routes->topk_weights[t * NUM_TOPK];
        uint64_t chosen = 0;
        float sum = 0;
        for (int k = 0; k < NUM_TOPK; k++) {
            int32_t expert = topk_idx[k];
            assert_in_range(expert, 0, NUM_EXPERTS - 1);
            assert_false(chosen >> expert & 1);
            chosen |= (uint64_t)1 << expert;
            assert_true(topk_weights[k] > 0);
            assert_true(k == 0 || topk_weights[k] <= topk_weights[k - 1]);
            sum += topk_weights[k];
        }
        assert_true(sum < 1);
    }
    free(routes);
}

TEST(weights_of_all_experts_add_up_to_1)
{
    struct router_config config = {.seed = 3, .num_experts = 5, .num_topk = 5, .skew = 2};
    struct router *router = router_create(&config);
    int32_t topk_idx[5];
    float topk_weights[5];
    for (int64_t token = 0; token < 100; token++) {
        double sum = 0;
        router_route(router, token, 1, topk_idx, topk_weights);
        for (int k = 0; k < 5; k++)
            sum += topk_weights[k];
        assert_true(fabs(sum - 1) < 1e-6);
    }
    router_destroy(router);
}

TEST(any_rank_can_recompute_any_token)
{
    struct routes *all = route(0);
    struct router_config config = default_config(0);
    struct router *router = router_create(&config);
    struct routes *part = malloc(sizeof *part);
    for (size_t begin = 0, end; begin < NUM_TOKENS; begin = end) {
        end = begin + 1 + begin % 100;
        end = end < NUM_TOKENS ? end : NUM_TOKENS;
        router_route(router, (int64_t)begin, (int64_t)(end - begin),
                     &part->topk_idx[begin * NUM_TOPK], &part->topk_weights[begin * NUM_TOPK]);
    }
    assert_memory_equal(part, all, sizeof *all);
    router_destroy(router);
    free(part);
    free(all);
}

TEST(seeds_differ)
{
    struct routes *first = route(0);
    struct router_config config = default_config(0);
    config.seed = 2;
    struct router *router = router_create(&config);
    int32_t topk_idx[NUM_TOPK];
    router_route(router, 0, 1, topk_idx, NULL);
    assert_memory_not_equal(topk_idx, first->topk_idx, sizeof topk_idx);
    router_destroy(router);
    free(first);
}

TEST(skew_moves_load)
{
    const float skews[] = {0, 0.5f, 1, 2};
    const double at_least[] = {1, 2.5, 4.5, 7}, below[] = {1.4, 4.5, 7, 11};
    for (int i = 0; i < 4; i++) {
        struct routes *routes = route(skews[i]);
        double load = max_over_mean_load(routes);
        assert_true(load >= at_least[i]);
        assert_true(load < below[i]);
        free(routes);
    }
}

TEST(refuses_impossible_routers)
{
    struct router_config configs[] = {default_config(0), default_config(0), default_config(0),
                                      default_config(-1), default_config(NAN)};
    configs[0].num_experts = 0;
    configs[1].num_topk = NUM_EXPERTS + 1;
    configs[2].num_topk = 0;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        errno = 0;
        assert_null(router_create(&configs[i]));
        assert_int_equal(errno, EINVAL);
    }
}

/* ---------------------------------------------------------------- payload */

TEST(rows_depend_on_seed_token_and_plane)
{
    const struct payload payload = {.seed = 1, .dtype = WEFT_UINT8};
    const struct payload reseeded = {.seed = 2, .dtype = WEFT_UINT8};
    unsigned char row[100], again[100], other[3][100];
    payload_fill_row(&payload, 1234567890123, 1, row, sizeof row);
    payload_fill_row(&payload, 1234567890123, 1, again, sizeof again);
    payload_fill_row(&reseeded, 1234567890123, 1, other[0], sizeof row);
    payload_fill_row(&payload, 1234567890124, 1, other[1], sizeof row);
    payload_fill_row(&payload, 1234567890123, 2, other[2], sizeof row);
    assert_memory_equal(row, again, sizeof row);
    for (int i = 0; i < 3; i++)
        assert_memory_not_equal(row, other[i], sizeof row);
}

TEST(rows_are_written_exactly)
{
    const struct payload payload = {.seed = 1, .dtype = WEFT_UINT8};
    unsigned char whole[64], part[64];
    payload_fill_row(&payload, 5, 0, whole, sizeof whole);
    for (size_t bytes = 0; bytes < sizeof part; bytes++) {
        memset(part, 0xa5, sizeof part);
        payload_fill_row(&payload, 5, 0, part + 1, bytes > 0 ? bytes - 1 : 0);
        assert_int_equal(part[0], 0xa5);
        for (size_t i = 1; i < sizeof part; i++)
            assert_int_equal(part[i], i < bytes ? whole[i - 1] : 0xa5);
    }
}

TEST(numbers_are_moderate_and_survive_the_round_trip)
{
    const weft_dtype kinds[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32};
    enum { NUM_ELEMENTS = 1001 };
    for (int i = 0; i < 3; i++) {
        const struct payload payload = {.seed = 9, .dtype = kinds[i]};
        size_t row_bytes = NUM_ELEMENTS * dtype_bytes(kinds[i]);
        float row[NUM_ELEMENTS], back[NUM_ELEMENTS], values[NUM_ELEMENTS];
        double square_sum = 0;
        payload_fill_row(&payload, 77, 0, row, row_bytes);
        elements_to_fp32(kinds[i], row, NUM_ELEMENTS, values);
        elements_from_fp32(kinds[i], values, NUM_ELEMENTS, back);
        assert_memory_equal(row, back, row_bytes);
        for (int e = 0; e < NUM_ELEMENTS; e++) {
            assert_true(fabsf(values[e]) <= 2);
            square_sum += (double)values[e] * (double)values[e];
        }
        assert_true(square_sum / NUM_ELEMENTS > 1 && square_sum / NUM_ELEMENTS < 1.7);
    }
}

/* ---------------------------------------------------------------- figures */

TEST(figures_are_min_median_max)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {5};
    struct figures of_odd = figures_of(odd, 3), of_even = figures_of(even, 4),
                   of_one = figures_of(one, 1);
    assert_true(of_odd.min == 1 && of_odd.median == 2 && of_odd.max == 3);
    assert_true(of_even.min == 1 && of_even.median == 2.5 && of_even.max == 4);
    assert_true(of_one.min == 5 && of_one.median == 5 && of_one.max == 5);
}

/* ---------------------------------------------------------------- progress */

static int open_terminal(int *other_end)
{
    *other_end = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*other_end >= 0 && grantpt(*other_end) == 0 && unlockpt(*other_end) == 0);
    return open(ptsname(*other_end), O_RDWR | O_NOCTTY);
}

/* What progress of 3 steps writes to standard error, which is `fd`. */
static void write_progress(int fd, enum progress_visibility visibility, int64_t quiet_ns)
{
    struct progress progress;
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    progress_begin(&progress, visibility, "work", 3);
    assert_true(progress.quiet_ns == INT64_C(2000000000));
    progress.quiet_ns = quiet_ns;
    progress.redraw_ns = 0;
    for (int i = 0; i < 3; i++)
        progress_step(&progress);
    progress_end(&progress);
    assert_true(dup2(saved, STDERR_FILENO) >= 0 && close(saved) == 0);
}

/* The same on a terminal, which may hand it out in pieces. */
static void terminal_of_progress(enum progress_visibility visibility, int64_t quiet_ns, char *text,
                                 size_t text_bytes)
{
    int other_end;
    const int terminal = open_terminal(&other_end);
    write_progress(terminal, visibility, quiet_ns);
    assert_true(write(terminal, "end", 3) == 3);
    size_t length = 0;
    do {
        const ssize_t count = read(other_end, text + length, text_bytes - length);
        assert_true(count > 0);
        length += (size_t)count;
    } while (length < 3 || memcmp(text + length - 3, "end", 3) != 0);
    text[length - 3] = '\0';
    close(terminal);
    close(other_end);
}

TEST(progress_is_drawn_on_a_terminal)
{
    char text[512];
    terminal_of_progress(PROGRESS_SHOWN, 0, text, sizeof text);
    assert_non_null(strstr(text, "work [#############"));
    assert_non_null(strstr(text, " 2/3, 0 s left"));
    assert_string_equal(text + strlen(text) - 4, "\r\033[K");
    terminal_of_progress(PROGRESS_HIDDEN, 0, text, sizeof text);
    assert_string_equal(text, "");
    terminal_of_progress(PROGRESS_SHOWN, INT64_C(3600000000000), text, sizeof text);
    assert_string_equal(text, "");
}

TEST(progress_is_silent_off_a_terminal)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    write_progress(fileno(file), PROGRESS_SHOWN, 0);
    assert_true(lseek(fileno(file), 0, SEEK_END) == 0);
    fclose(file);
}
