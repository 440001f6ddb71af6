/* SPDX-License-Identifier: MIT */
/*
 * The scores of experts: one arithmetic for all machines, of fp32 operations that are rounded one
 * by one, without branches, so that loops over experts become vectors.
 *
 * A tile is a part of a token's experts. Of tile `first`, lane l has the WP_GATE_OWN experts from
 * first + l * WP_GATE_OWN on. The value of an expert that cannot be chosen is NaN, and so are the
 * values behind the last expert that a lane computes.
 */
#pragma once

#include "machine/machine.h"

enum {
    WP_GATE_TILE = 256,
    WP_GATE_OWN = WP_GATE_TILE / WP_WARP_SIZE, /* values of a tile that a lane has */
    WP_GATE_RUN = 8,                           /* experts side by side that are summed first */
    WP_GATE_RUNS = WP_GATE_TILE / WP_GATE_RUN,
    WP_GATE_OWN_RUNS = WP_GATE_OWN / WP_GATE_RUN
};

/* ------------------------------------------------------------------ numbers */

WP_FN float wp_nan(void)
{
    return wp_float_of(0x7fffffffu);
}

/* As results are stored: machines make different NaNs. */
WP_FN float wp_canonical(float value)
{
    return value == value ? value : wp_nan();
}

WP_FN float wp_float_of_fp16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    const uint32_t subnormal = wp_bits_of((float)(int32_t)magnitude * 0x1p-24f); /* exact */
    const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
    const uint32_t infinite = 0x7f800000u | magnitude << 13;
    const uint32_t finite = magnitude < 0x0400u ? subnormal : normal;
    return wp_float_of(sign | (magnitude >= 0x7c00u ? infinite : finite));
}

/* Grows with the value, and is greater than 0; of NaN 0. */
WP_FN uint32_t wp_order_of(float value)
{
    const uint32_t bits = wp_bits_of(value);
    const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
    return value == value ? order : 0;
}

WP_FN float wp_float_of_order(uint32_t order)
{
    return wp_float_of(order >> 31 ? order & 0x7fffffffu : ~order);
}

/* ------------------------------------------------------------------ functions */

/* exp(x) of x <= 0: at most 1 ulp away; 0 below -87.33, where it would have no full mantissa. */
WP_FN float wp_exp_negative(float x)
{
    const float to_integer = 0x1.8p23f; /* its last place is 1, so that adding it rounds */
    const float inside = x > -87.33f ? x : -87.33f;
    const float shifted = inside * 0x1.715476p+0f + to_integer;
    const float n = shifted - to_integer;
    /* n * 0x1.62e4p-1 is exact. */
    const float r = (inside - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float sum = 0x1.6db416p-10f;
    sum = sum * r + 0x1.123b4ap-7f;
    sum = sum * r + 0x1.55545ep-5f;
    sum = sum * r + 0x1.55548ep-3f;
    sum = sum * r + 0.5f;
    const float e = 1.0f + (r + r * r * sum);
    const float power = wp_float_of(wp_bits_of(e) + (wp_bits_of(shifted) << 23));
    const float below = x >= -87.33f ? power : 0.0f;
    return x == x ? below : x;
}

/* log(1 + e) of 0 <= e <= 1, by the series of the inverse hyperbolic tangent. */
WP_FN float wp_log_of_more(float e)
{
    const float s = e / (2.0f + e), z = s * s;
    float sum = 0x1.f1aef2p-4f;
    sum = sum * z + 0x1.b6d6a0p-4f;
    sum = sum * z + 0x1.250972p-3f;
    sum = sum * z + 0x1.9996a8p-3f;
    sum = sum * z + 0x1.555558p-2f;
    const float twice = s + s;
    return twice + twice * (z * sum);
}

WP_FN float wp_magnitude(float x)
{
    return wp_float_of(wp_bits_of(x) & 0x7fffffffu);
}

WP_FN float wp_sigmoid(float x)
{
    const float e = wp_exp_negative(-wp_magnitude(x));
    return wp_ratio(x < 0.0f ? e : 1.0f, 1.0f + e);
}

/* Below it sqrt(log(1 + exp(x))) is exp(x / 2), which does not vanish as early as exp(x). */
#define WP_SOFTPLUS_TAIL (-20.0f)

WP_FN float wp_sqrt_softplus(float x)
{
    const int is_tail = x < WP_SOFTPLUS_TAIL;
    const float e = wp_exp_negative(is_tail ? x * 0.5f : -wp_magnitude(x));
    const float root = wp_sqrt((x > 0.0f ? x : 0.0f) + wp_log_of_more(e));
    return is_tail ? e : root;
}

/* ------------------------------------------------------------------ rows of logits */

struct wp_gate_logits {
    const char *rows;
    uint64_t stride_bytes;
    const uint8_t *expert_mask; /* NULL: all may be chosen */
    weft_dtype dtype;
    weft_gate_score score;
    int32_t num_experts;
};

/* Those of a token; of softmax with the greatest logit, and the sum of exp(x - greatest). */
struct wp_gate_row {
    const struct wp_gate_logits *logits;
    const char *elements;
    float greatest, sum;
};

/* How many of the lane's experts of a tile come before the tile's expert n. */
WP_FN int32_t wp_gate_own_before(struct wp_warp *warp, int32_t n)
{
    const int32_t before = n - wp_lane_idx(warp) * WP_GATE_OWN;
    return before < 0 ? 0 : before < WP_GATE_OWN ? before : WP_GATE_OWN;
}

/* The lane's first expert of a tile. */
WP_FN int32_t wp_gate_own_first(struct wp_warp *warp, int32_t first)
{
    return first + wp_lane_idx(warp) * WP_GATE_OWN;
}

WP_FN int32_t wp_gate_tile_experts(const struct wp_gate_row *row, int32_t first)
{
    const int32_t rest = row->logits->num_experts - first;
    return rest < WP_GATE_TILE ? rest : WP_GATE_TILE;
}

/* The values of a tile that a lane computes. One lane of several computes all: so they do not
 * branch, and on GPUs the steps of several values overlap. */
WP_FN int32_t wp_gate_own(int32_t tile_experts)
{
    enum { VECTOR = 32 };
    return WP_WARP_SIZE > 1 ? WP_GATE_OWN : (tile_experts + VECTOR - 1) / VECTOR * VECTOR;
}

WP_FN float wp_gate_logit(const struct wp_gate_row *row, int32_t expert)
{
    if (row->logits->dtype == WEFT_BF16)
        return wp_float_of((uint32_t)((const uint16_t *)row->elements)[expert] << 16);
    if (row->logits->dtype == WEFT_FP16)
        return wp_float_of_fp16(((const uint16_t *)row->elements)[expert]);
    return ((const float *)row->elements)[expert];
}

WP_FN void wp_gate_load_tile(struct wp_warp *warp, const struct wp_gate_row *row, int32_t first,
                             float *values)
{
    const int32_t tile_experts = wp_gate_tile_experts(row, first);
    const int32_t own = wp_gate_own_before(warp, tile_experts);
    const int32_t expert = wp_gate_own_first(warp, first);
    const uint8_t *mask = row->logits->expert_mask;
    if (row->logits->dtype == WEFT_BF16) {
        const uint16_t *elements = (const uint16_t *)row->elements + expert;
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = wp_float_of((uint32_t)elements[i] << 16);
    } else if (row->logits->dtype == WEFT_FP16) {
        const uint16_t *elements = (const uint16_t *)row->elements + expert;
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = wp_float_of_fp16(elements[i]);
    } else {
        const float *elements = (const float *)row->elements + expert;
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = elements[i];
    }
    WP_EACH_OWN (i, own, wp_gate_own(tile_experts), WP_GATE_OWN)
        values[i] = wp_nan();
    if (mask != NULL)
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = mask[expert + i] != 0 ? values[i] : wp_nan();
}

/* ------------------------------------------------------------------ softmax */

/* The weight of a logit in its softmax's sum. The greatest has 1, also if infinite; NaN stays. */
WP_FN float wp_gate_part(const struct wp_gate_row *row, float logit)
{
    return wp_exp_negative(logit == row->greatest ? 0.0f : logit - row->greatest);
}

WP_FN float wp_gate_greatest(struct wp_warp *warp, const struct wp_gate_row *row)
{
    uint32_t greatest = 0;
    for (int32_t first = 0; first < row->logits->num_experts; first += WP_GATE_TILE) {
        const int32_t own = wp_gate_own(wp_gate_tile_experts(row, first));
        float values[WP_GATE_OWN] = {0};
        wp_gate_load_tile(warp, row, first, values);
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN) {
            const uint32_t order = wp_order_of(values[i]);
            greatest = order > greatest ? order : greatest;
        }
    }
    greatest = wp_max_u32(warp, greatest);
    return greatest == 0 ? wp_nan() : wp_float_of_order(greatest);
}

/* Every machine adds in this order: experts e, e + WP_GATE_TILE, ... one after the other; then runs
 * of these sums by halves, then the sums of runs. */
WP_FN float wp_gate_sum(struct wp_warp *warp, const struct wp_gate_row *row)
{
    float *sums = (float *)wp_warp_shared(warp), own_sums[WP_GATE_OWN] = {0};
    for (int32_t first = 0; first < row->logits->num_experts; first += WP_GATE_TILE) {
        const int32_t own = wp_gate_own(wp_gate_tile_experts(row, first));
        float values[WP_GATE_OWN] = {0};
        wp_gate_load_tile(warp, row, first, values);
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN) {
            const float part = wp_gate_part(row, values[i]);
            own_sums[i] += part == part ? part : 0.0f;
        }
    }
    WP_EACH_OWN (run, 0, WP_GATE_OWN_RUNS, WP_GATE_OWN_RUNS) {
        float *own = &own_sums[(int64_t)run * WP_GATE_RUN];
        for (int32_t half = WP_GATE_RUN / 2; half > 0; half /= 2)
            for (int32_t i = 0; i < half; i++)
                own[i] += own[i + half];
        sums[wp_lane_idx(warp) * WP_GATE_OWN_RUNS + run] = own[0];
    }
    for (int32_t half = WP_GATE_RUNS / 2; half > 0; half /= 2) {
        wp_warp_sync(warp); /* the sums of before are there */
        for (int32_t i = wp_lane_idx(warp); i < half; i += WP_WARP_SIZE)
            sums[i] += sums[i + half];
    }
    wp_warp_sync(warp);
    const float sum = sums[0];
    wp_warp_sync(warp); /* all have read it */
    return sum;
}

/* ------------------------------------------------------------------ scores */

WP_FN struct wp_gate_row wp_gate_row_of(struct wp_warp *warp, const struct wp_gate_logits *logits,
                                        int32_t token)
{
    struct wp_gate_row row = {logits, logits->rows + (uint64_t)token * logits->stride_bytes, 0.0f,
                              0.0f};
    if (logits->score == WEFT_GATE_SOFTMAX) {
        row.greatest = wp_gate_greatest(warp, &row);
        row.sum = wp_gate_sum(warp, &row);
    }
    return row;
}

WP_FN float wp_gate_score_of(const struct wp_gate_row *row, float logit)
{
    if (row->logits->score == WEFT_GATE_SOFTMAX)
        return wp_gate_part(row, logit) / row->sum;
    return row->logits->score == WEFT_GATE_SIGMOID ? wp_sigmoid(logit) : wp_sqrt_softplus(logit);
}

/* Those of a tile, from its logits. */
WP_FN void wp_gate_score_tile(const struct wp_gate_row *row, int32_t own, float *values)
{
    if (row->logits->score == WEFT_GATE_SOFTMAX) {
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = wp_gate_part(row, values[i]) / row->sum;
    } else if (row->logits->score == WEFT_GATE_SIGMOID) {
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = wp_sigmoid(values[i]);
    } else {
        WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
            values[i] = wp_sqrt_softplus(values[i]);
    }
}

/* The sum of a token's chosen scores, in their order, as normalised weights are divided by. */
WP_FN float wp_gate_divisor(float sum)
{
    return sum + 1e-20f;
}
