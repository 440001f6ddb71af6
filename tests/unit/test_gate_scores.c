/* SPDX-License-Identifier: MIT */
/* The gate's functions in fp32, against double, in units in the last place: all BF16 and FP16
 * numbers, and a grid of FP32. docs/gate.md tells these limits. And the programs as processors
 * without wide vectors run them. */
#include <math.h>
#include <stdio.h>

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"
#include "machine/cpu/cpu_rows.h"
#include "programs/gate/gate.h"
#include "workload/gate_oracle.h"

#define LEAST 0x1p-125 /* below it 0 is right, too */

struct function {
    const char *name;
    float (*single)(float x);
    double (*exact)(double x);
    double ulp;
};

static float single_exp(float x)
{
    return wp_exp_negative(-wp_magnitude(x));
}

static double exact_exp(double x)
{
    return exp(-fabs(x));
}

static float single_sigmoid(float x)
{
    return wp_sigmoid(x);
}

static double exact_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static float single_sqrt_softplus(float x)
{
    return wp_sqrt_softplus(x);
}

static double exact_sqrt_softplus(double x)
{
    return sqrt((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
}

static const struct function functions[] = {
    {"exp", single_exp, exact_exp, 1.0},
    {"sigmoid", single_sigmoid, exact_sigmoid, 2.3},
    {"sqrt_softplus", single_sqrt_softplus, exact_sqrt_softplus, 1.9}};
enum { NUM_FUNCTIONS = sizeof functions / sizeof *functions };

static double errors[NUM_FUNCTIONS];
static float worst[NUM_FUNCTIONS];

static void compare(float x)
{
    for (int f = 0; f < NUM_FUNCTIONS; f++) {
        const float got = functions[f].single(x);
        const double exact = functions[f].exact((double)x);
        if (isnan(exact)) {
            assert_true(isnan(got));
            continue;
        }
        if ((double)got == exact || (got == 0.0f && exact < LEAST))
            continue;
        const double ulp = ldexp(1, ilogb(exact) - 23);
        const double error = fabs((double)got - exact) / ulp;
        if (!(error <= errors[f])) {
            errors[f] = error;
            worst[f] = x;
        }
    }
}

TEST(errors_are_within_their_limits)
{
    int failed = 0;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        compare(wp_float_of(bits << 16));
        compare(wp_float_of_fp16((uint16_t)bits));
    }
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1009)
        compare(wp_float_of((uint32_t)bits));
    for (int f = 0; f < NUM_FUNCTIONS; f++) {
        print_message("%s: %.3f ulp, of %.9g\n", functions[f].name, errors[f], (double)worst[f]);
        failed |= errors[f] > functions[f].ulp;
    }
    assert_false(failed);
}

/* ---------------------------------------------------------------- the narrowest vectors */

const struct weft__row_functions *__wrap_weft__cpu_rows_of(enum weft__row_variant variant);
const struct weft__row_functions *__real_weft__cpu_rows_of(enum weft__row_variant variant);

/* The processor has no others. */
const struct weft__row_functions *__wrap_weft__cpu_rows_of(enum weft__row_variant variant)
{
    return variant == WEFT__ROWS_BASE ? __real_weft__cpu_rows_of(variant) : NULL;
}

TEST_ON_RANKS(bits_do_not_depend_on_the_instruction_set, RANKS_THREADS, 1)
{
    struct gate_case drawn;
    uint64_t digest = 0;
    char *block = tests_alloc(GATE_BLOCK_BYTES);
    weft_comm *const comm = ranks_comm(context, NULL);
    weft_stream *const stream = ranks_stream(context);
    for (int32_t number = 0; number < GATE_NUM_CASES; number++) {
        gate_case_draw(number, INT32_MAX, &drawn, block);
        const struct gate_calls calls = gate_case_calls(&drawn, block);
        CHECK_OK(weft_gate_choose(comm, &calls.choose, stream));
        CHECK_OK(weft_gate_backward(comm, &calls.backward, stream));
        CHECK_OK(weft_stream_synchronize(stream));
        digest = gate_case_digest(&drawn, block, digest);
    }
    CHECK(digest == GATE_DIGEST, "the digest is %#llx", (unsigned long long)digest);
    tests_free(block);
    return 0;
}
