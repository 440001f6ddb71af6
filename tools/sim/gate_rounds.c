/* SPDX-License-Identifier: MIT */
/* A round of the gate: a choice with its gradient, and then the biases learn of the counts. Each
 * rank has its own, since the gate is local. */
#include <string.h>

#include "ep_rounds.h"
#include "shape_draws.h"
#include "workload/gate_oracle.h"

weft_result party_open_gate(struct party *party)
{
    TRY(party_alloc(party, (struct party_array[]){{&party->gate_block, GATE_BLOCK_BYTES},
                                                  {&party->gate_inputs, GATE_BLOCK_BYTES},
                                                  {0}}));
    return weft_stream_create(party->comm, &party->stream);
}

/* Few are of many experts, since they take long. */
static void draw_case(struct party *party, int32_t round, struct gate_case *drawn)
{
    enum { LARGE_ONE_IN = 32, NUM_SMALL_SHAPES = 8 };
    struct rng rng = {rng_key(rng_key(party->shape->seed, (uint64_t)round), (uint64_t)party->rank)};
    const int32_t num_shapes =
        rng_below(&rng, LARGE_ONE_IN) == 0 ? GATE_NUM_SHAPES : NUM_SMALL_SHAPES;
    gate_case_draw(draw(&rng, 0, num_shapes * GATE_CASES_PER_SHAPE - 1), GATE_SMALL_TOKENS, drawn,
                   party->gate_inputs);
    weft__sim_host_writes(party->gate_block, drawn->end);
    memcpy(party->gate_block, party->gate_inputs, drawn->end);
}

static void check_choice(struct party *party, const struct gate_case *drawn)
{
    int32_t num_close = 0;
    weft__sim_host_reads(party->gate_block, drawn->end);
    const char *wrong = gate_case_check(drawn, party->gate_inputs, party->gate_block, &num_close);
    if (wrong != NULL)
        party_complain(party, "%s", wrong);
    memcpy(party->gate_inputs, party->gate_block, drawn->end);
}

static weft_result balance(struct party *party, const struct gate_case *drawn)
{
    const float step = 0.5f;
    char *block = party->gate_block;
    TRY(weft_gate_balance(
        party->comm,
        WEFT_ARGS(weft_gate_balance_args, .bias = (float *)(void *)(block + drawn->bias),
                  .num_tokens_per_expert = (int32_t *)(void *)(block + drawn->counts),
                  .num_experts = drawn->args.num_experts, .step = step),
        party->stream));
    TRY(weft_stream_synchronize(party->stream));
    const int64_t num_experts = drawn->args.num_experts;
    const int32_t *loads = (const int32_t *)(const void *)(party->gate_inputs + drawn->counts),
                  *counts = (const int32_t *)(const void *)(block + drawn->counts);
    const float *before = (const float *)(const void *)(party->gate_inputs + drawn->bias),
                *after = (const float *)(const void *)(block + drawn->bias);
    int64_t sum = 0;
    weft__sim_host_reads(block, drawn->end);
    for (int32_t i = 0; i < num_experts; i++)
        sum += loads[i];
    for (int32_t i = 0; i < num_experts; i++) {
        const int64_t load = loads[i] * num_experts;
        const float change = load < sum ? step : load > sum ? -step : 0.0f;
        party_expect(party, "bias", i, (double)after[i], (double)(before[i] + change));
        party_expect(party, "num_tokens_per_expert", i, counts[i], 0);
    }
    return WEFT_OK;
}

weft_result party_run_gate(struct party *party, int32_t round)
{
    struct gate_case drawn;
    draw_case(party, round, &drawn);
    const struct gate_calls calls = gate_case_calls(&drawn, party->gate_block);
    TRY(weft_gate_choose(party->comm, &calls.choose, party->stream));
    TRY(weft_gate_backward(party->comm, &calls.backward, party->stream));
    TRY(weft_stream_synchronize(party->stream));
    check_choice(party, &drawn);
    return balance(party, &drawn);
}
