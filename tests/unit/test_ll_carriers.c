/* SPDX-License-Identifier: MIT */
/* Which carrier WEFT_LL_AUTO takes, as weft_ll.h says, for ranks of a machine that need not be
 * there. */
#include "ep/low_latency.h"
#include "harness/cmocka.h"

/* Of hidden 7168, one for BF16 in and out, if nothing else is said. */
struct choice {
    int32_t num_ranks, num_experts, num_topk, max_tokens;
    weft_ll_carrier carrier;
    weft_ll_config other; /* what else is said */
};

#define FP8_OF(kind) .quantisation = {WEFT_FP8_E4M3, WEFT_SCALE_##kind, 128}
#define FP8          FP8_OF(FP32)
#define MASKED       .on_missing = WEFT_LL_MASK
#define WEIGHED_LATE .answer = WEFT_LL_ANSWER_SUMS_WEIGHED_LATE
#define WIDER        .answer_dtype = WEFT_FP32

static struct weft__ll_carrier carrier_of(const struct choice *choice, weft_machine kind,
                                          weft_ll_layout layout)
{
    const struct weft__machine machine = {.kind = kind};
    struct weft_comm comm = {
        .num_ranks = choice->num_ranks, .hooks = &machine.hooks, .topology = {.num_nodes = 1}};
    struct weft_ep ep = {.comm = &comm};
    weft_ep_config experts = WEFT_INIT(weft_ep_config);
    weft_ll_config config = choice->other;
    experts.num_experts = choice->num_experts;
    config.size = sizeof config;
    config.hidden = 7168;
    config.max_tokens = choice->max_tokens;
    config.num_topk = choice->num_topk;
    config.dtype = config.dtype == WEFT_DTYPE_NONE ? WEFT_BF16 : config.dtype;
    config.layout = layout;
    assert_int_equal(weft__placement_create(&ep.placement, &experts, choice->num_ranks), WEFT_OK);
    const struct wp_ll_plan plan = weft__ll_plan(&ep, &config);
    const struct weft__ll_carrier chosen = weft__ll_choose_carrier(&ep, &config);
    weft__placement_destroy(&ep.placement);
    assert_int_equal(wp_ll_has_packets(&plan), chosen.carrier != WEFT_LL_SIGNALS);
    assert_int_equal(plan.is_told, chosen.carrier == WEFT_LL_TOLD_PACKETS);
    return chosen;
}

static void check(const struct choice *choices, size_t num_choices, weft_ll_layout layout)
{
    for (size_t i = 0; i < num_choices; i++) {
        const struct choice *choice = &choices[i];
        const weft_ll_carrier on_gpus = carrier_of(choice, WEFT_MACHINE_CUDA, layout).carrier;
        if (on_gpus != choice->carrier)
            fail_msg("layout %d: of %d ranks, %d experts, top-%d, %d tokens (line %d): carrier %d",
                     (int)layout, choice->num_ranks, choice->num_experts, choice->num_topk,
                     choice->max_tokens, (int)i, (int)on_gpus);
        assert_int_equal(carrier_of(choice, WEFT_MACHINE_CPU, layout).carrier, WEFT_LL_SIGNALS);
    }
}

TEST(of_any_layout)
{
    static const struct choice choices[] = {
        {4, 256, 8, 16, WEFT_LL_PACKETS, {0}},
        {4, 256, 8, 16, WEFT_LL_PACKETS, {FP8}},
        {4, 256, 8, 17, WEFT_LL_TOLD_PACKETS, {0}},
        {4, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {FP8}},
        {4, 256, 8, 129, WEFT_LL_SIGNALS, {0}},
        {3, 255, 8, 170, WEFT_LL_TOLD_PACKETS, {0}}, /* 512 of all */
        {3, 255, 8, 171, WEFT_LL_SIGNALS, {0}},
        {8, 256, 8, 8, WEFT_LL_PACKETS, {0}}, /* 64 of all */
        {8, 256, 8, 9, WEFT_LL_TOLD_PACKETS, {0}},
        {9, 252, 8, 7, WEFT_LL_SIGNALS, {0}}, /* more ranks than go in packets */
        {4, 256, 10, 16, WEFT_LL_PACKETS, {0}},
        {4, 256, 17, 16, WEFT_LL_TOLD_PACKETS, {0}}, /* 272 choices */
        {2, 256, 8, 16, WEFT_LL_PACKETS, {FP8}},
        {2, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {0}},
        {2, 256, 8, 129, WEFT_LL_SIGNALS, {0}},
        {2, 256, 8, 17, WEFT_LL_SIGNALS, {FP8}},
        {4, 256, 33, 2, WEFT_LL_PACKETS, {0}},
        {4, 256, 33, 17, WEFT_LL_SIGNALS, {0}}, /* not usual */
        {4, 256, 8, 17, WEFT_LL_SIGNALS, {.dtype = WEFT_FP16}},
        {4, 256, 8, 8, WEFT_LL_PACKETS, {MASKED}},
        {4, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {MASKED, FP8}},
        {2, 256, 8, 64, WEFT_LL_TOLD_PACKETS, {MASKED, FP8}},
        {2, 256, 8, 64, WEFT_LL_TOLD_PACKETS, {MASKED}},
        {2, 256, 8, 65, WEFT_LL_SIGNALS, {MASKED}},
        {4, 256, 8, 8, WEFT_LL_SIGNALS, {MASKED, WIDER}},
        {4, 256, 8, 8, WEFT_LL_SIGNALS, {WIDER}}};
    check(choices, sizeof choices / sizeof *choices, WEFT_LL_BY_RANK);
    check(choices, sizeof choices / sizeof *choices, WEFT_LL_BY_EXPERT);
}

/* By expert a warp tells of all choices and experts of a rank. */
TEST(of_many_experts)
{
    static const struct choice by_rank[] = {{4, 512, 8, 16, WEFT_LL_PACKETS, {0}},
                                            {4, 256, 16, 16, WEFT_LL_PACKETS, {0}}};
    static const struct choice by_expert[] = {
        {4, 512, 8, 16, WEFT_LL_PACKETS, {0}},
        {4, 256, 12, 16, WEFT_LL_PACKETS, {0}},
        {4, 256, 13, 16, WEFT_LL_TOLD_PACKETS, {0}}, /* 208 choices and 64 experts */
        {4, 516, 8, 15, WEFT_LL_PACKETS, {0}},
        {4, 516, 8, 16, WEFT_LL_TOLD_PACKETS, {0}}, /* 128 choices and 129 experts */
        {8, 512, 8, 8, WEFT_LL_PACKETS, {0}},
        {4, 256, 8, 16, WEFT_LL_PACKETS, {WEIGHED_LATE, FP8}},
        {4, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {WEIGHED_LATE, FP8}},
        {4, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {WEIGHED_LATE, MASKED, FP8}},
        {4, 256, 8, 128, WEFT_LL_TOLD_PACKETS, {FP8_OF(FP32_POWER_OF_TWO)}},
        /* These two have no program of their own. */
        {4, 256, 8, 128, WEFT_LL_SIGNALS, {FP8_OF(FP32_POWER_OF_TWO), MASKED}},
        {4, 256, 8, 128, WEFT_LL_SIGNALS, {WEIGHED_LATE, WIDER}},
        {4, 256, 8, 8, WEFT_LL_PACKETS, {FP8_OF(FP32_POWER_OF_TWO)}},
        {4, 256, 8, 8, WEFT_LL_SIGNALS, {FP8_OF(UE8M0)}},
        {4, 256, 8, 8, WEFT_LL_SIGNALS, {.answer = WEFT_LL_ANSWER_ROWS}}};
    check(by_rank, sizeof by_rank / sizeof *by_rank, WEFT_LL_BY_RANK);
    check(by_expert, sizeof by_expert / sizeof *by_expert, WEFT_LL_BY_EXPERT);
}

/* Why a faster carrier was not chosen: which one, and a word of what it needs. */
TEST(reasons)
{
    static const struct {
        struct choice choice;
        weft_machine machine;
        weft_ll_carrier wanted;
        const char *needs; /* NULL: nothing */
    } cases[] = {
        {{4, 256, 8, 16, WEFT_LL_PACKETS, {0}}, WEFT_MACHINE_CUDA, WEFT_LL_PACKETS, NULL},
        {{4, 256, 8, 16, WEFT_LL_SIGNALS, {0}}, WEFT_MACHINE_CPU, WEFT_LL_PACKETS, "cuda"},
        {{4, 256, 8, 17, WEFT_LL_SIGNALS, {0}}, WEFT_MACHINE_CPU, WEFT_LL_TOLD_PACKETS, "cuda"},
        {{4, 256, 8, 17, WEFT_LL_TOLD_PACKETS, {0}}, WEFT_MACHINE_CUDA, WEFT_LL_TOLD_PACKETS, NULL},
        {{4, 256, 13, 16, WEFT_LL_TOLD_PACKETS, {0}},
         WEFT_MACHINE_CUDA,
         WEFT_LL_PACKETS,
         "of at most 256 together"},
        {{4, 256, 8, 129, WEFT_LL_SIGNALS, {0}}, WEFT_MACHINE_CUDA, WEFT_LL_TOLD_PACKETS, "512"},
        {{2, 256, 8, 17, WEFT_LL_SIGNALS, {FP8}},
         WEFT_MACHINE_CUDA,
         WEFT_LL_TOLD_PACKETS,
         "between two ranks"},
        {{4, 256, 8, 8, WEFT_LL_SIGNALS, {.answer = WEFT_LL_ANSWER_ROWS}},
         WEFT_MACHINE_CUDA,
         WEFT_LL_PACKETS,
         "WEFT_LL_ANSWER_SUMS"},
        {{4, 256, 8, 17, WEFT_LL_SIGNALS, {.dtype = WEFT_FP16}},
         WEFT_MACHINE_CUDA,
         WEFT_LL_TOLD_PACKETS,
         "BF16"},
        {{4, 256, 8, 17, WEFT_LL_SIGNALS, {.carrier = WEFT_LL_SIGNALS}},
         WEFT_MACHINE_CUDA,
         WEFT_LL_SIGNALS,
         NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct weft__ll_carrier chosen =
            carrier_of(&cases[i].choice, cases[i].machine, WEFT_LL_BY_EXPERT);
        assert_int_equal(chosen.carrier, cases[i].choice.carrier);
        assert_int_equal(chosen.wanted, cases[i].wanted);
        assert_int_equal(chosen.lacks != NULL, cases[i].needs != NULL);
        if (chosen.lacks != NULL && strstr(chosen.lacks, cases[i].needs) == NULL)
            fail_msg("line %zu: %s", i, chosen.lacks);
    }
}
