/* SPDX-License-Identifier: MIT */
#include "ll_script.h"

#include "shape_draws.h"

enum { FEW_ROWS = 4 };

static void draw_quantisation(struct ll_terms *terms, struct rng *rng)
{
    if (draw(rng, 0, 1) == 0)
        return;
    terms->quantisation.dtype = draw(rng, 0, 1) ? WEFT_FP8_E4M3 : WEFT_INT8;
    terms->quantisation.scale = (weft_scale_kind)draw(rng, WEFT_SCALE_FP32, WEFT_SCALE_UE8M0);
    do
        terms->quantisation.group_elements = draw(rng, 1, terms->hidden);
    while (terms->hidden % terms->quantisation.group_elements != 0);
    terms->has_columns = draw(rng, 0, 1);
}

void ll_draw_terms(struct ll_terms *terms, struct rng *rng, int32_t max_hidden)
{
    static const weft_dtype answer_dtypes[] = {WEFT_DTYPE_NONE, WEFT_BF16, WEFT_FP32};
    const int is_by_expert = draw(rng, 0, 2) > 0;
    *terms = (struct ll_terms){.layout = is_by_expert ? WEFT_LL_BY_EXPERT : WEFT_LL_BY_RANK};
    terms->hidden = draw(rng, 1, max_hidden);
    if (is_by_expert) {
        terms->answer = (weft_ll_answer)draw(rng, WEFT_LL_ANSWER_SUMS, WEFT_LL_ANSWER_IN_SLOTS);
        if (draw(rng, 0, 1))
            terms->expert_capacity = draw(rng, 1, FEW_ROWS);
    } else if (draw(rng, 0, 1)) {
        terms->answer = WEFT_LL_ANSWER_IN_SLOTS;
        terms->fills_slots = draw(rng, 0, 1);
    }
    terms->answer_dtype = answer_dtypes[terms->fills_slots ? 0 : draw(rng, 0, 2)];
    terms->num_results = draw(rng, 1, LL_MAX_RESULTS);
    terms->has_weights = draw(rng, 0, 1);
    draw_quantisation(terms, rng);
}

/* ---------------------------------------------------------------- the order of a round */

struct state {
    const struct ll_terms *terms;
    int32_t num_results; /* of the round */
    enum ll_ending endings[LL_MAX_RESULTS];
    int32_t rows_sent, rows_received, answered, ended;
    int32_t num_combines; /* of result `answered`, so far */
    struct ll_move answers[LL_MAX_RESULTS * LL_MAX_COMBINES];
    int32_t answers_sent, answers_received;
};

static int32_t combines_of(enum ll_ending ending)
{
    static const int32_t num_combines[LL_NUM_ENDINGS] = {
        [LL_COMBINED] = 1, [LL_COMBINED_TWICE] = 2, [LL_COMBINED_AND_RELEASED] = 1};
    return num_combines[ending];
}

/* Answers in slots end their result. */
static int keeps(enum ll_ending ending)
{
    return ending == LL_COMBINED_TWICE || ending == LL_COMBINED_AND_RELEASED;
}

static int is_allowed(const struct state *state, enum ll_step step)
{
    const int has_result = state->answered < state->rows_received;
    const int32_t most = state->terms->num_results;
    const int32_t wanted = has_result ? combines_of(state->endings[state->answered]) : 0;
    switch (step) {
    case LL_SEND_ROWS:
        return state->rows_sent < state->num_results && state->rows_sent - state->ended < most;
    case LL_RECEIVE_ROWS:
        return state->rows_received < state->rows_sent;
    case LL_SEND_ANSWERS:
        return state->num_combines < wanted && state->answers_sent - state->answers_received < most;
    case LL_RECEIVE_ANSWERS:
        return state->answers_received < state->answers_sent;
    case LL_RELEASE:
        break;
    }
    return has_result && state->num_combines == wanted &&
           state->answers_received == state->answers_sent;
}

static void end_answered(struct state *state)
{
    state->answered++;
    state->num_combines = 0;
}

static struct ll_move move(struct state *state, enum ll_step step)
{
    struct ll_move move = {.step = step};
    switch (step) {
    case LL_SEND_ROWS:
        move.result = state->rows_sent++;
        break;
    case LL_RECEIVE_ROWS:
        move.result = state->rows_received++;
        break;
    case LL_SEND_ANSWERS:
        move.result = state->answered;
        move.combine = state->num_combines++;
        move.keeps = state->endings[move.result] == LL_COMBINED_AND_RELEASED ||
                     state->num_combines < combines_of(state->endings[move.result]);
        state->answers[state->answers_sent++] = move;
        if (!move.keeps)
            end_answered(state);
        break;
    case LL_RECEIVE_ANSWERS:
        move = state->answers[state->answers_received++];
        move.step = LL_RECEIVE_ANSWERS;
        state->ended += !move.keeps;
        break;
    case LL_RELEASE:
        move.result = state->answered;
        end_answered(state);
        state->ended++;
        break;
    }
    return move;
}

static int joins(const struct ll_move *send, const struct ll_move *receive)
{
    const int are_phases = (send->step == LL_SEND_ROWS && receive->step == LL_RECEIVE_ROWS) ||
                           (send->step == LL_SEND_ANSWERS && receive->step == LL_RECEIVE_ANSWERS);
    return are_phases && send->result == receive->result && send->combine == receive->combine;
}

void ll_draw_script(struct ll_script *script, const struct ll_terms *terms, int32_t num_results,
                    struct rng *rng)
{
    struct state state = {.terms = terms, .num_results = num_results};
    script->num_moves = 0;
    for (int32_t i = 0; i < num_results; i++)
        do
            state.endings[i] = (enum ll_ending)draw(rng, 0, LL_NUM_ENDINGS - 1);
        while (terms->answer == WEFT_LL_ANSWER_IN_SLOTS && keeps(state.endings[i]));
    for (int32_t i = 0; i < num_results && terms->is_unanswered; i++)
        state.endings[i] = LL_RELEASED;
    while (state.ended < num_results) {
        const enum ll_step step = (enum ll_step)draw(rng, LL_SEND_ROWS, LL_RELEASE);
        if (is_allowed(&state, step))
            script->moves[script->num_moves++] = move(&state, step);
    }
    for (int32_t i = 0; i + 1 < script->num_moves; i++)
        script->moves[i].may_join = joins(&script->moves[i], &script->moves[i + 1]);
}
