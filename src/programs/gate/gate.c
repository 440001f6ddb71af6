/* SPDX-License-Identifier: MIT */
/*
 * gate: the experts of tokens, and their weights. A warp takes a token; its experts lie across the
 * lanes, in tiles. What an expert's choice is worth becomes an integer that grows with it
 * (wp_order_of), 0 for those that cannot be chosen. The best experts then come one after the other,
 * by maxima over the warp.
 */
#define WP_LEAST_BLOCKS 2

#include "programs/gate/gate.h"

#include "programs/block.h"
#include "programs/reciprocal.h"

enum { MAX_BLOCK_COUNTERS = WP_BLOCK_SHARED_BYTES / 4 };

/* In memory of the warp. */
struct choice {
    uint32_t order; /* later the bits of the score */
    int32_t expert;
};

struct two_best { /* the orders of two experts, 0: none */
    uint32_t first, second;
};

enum { MAX_LANE_GROUPS = 32 };

WP_STATIC_ASSERT(WEFT_MAX_TOPK * sizeof(struct choice) <= WP_WARP_SHARED_BYTES, "choices fit");
WP_STATIC_ASSERT(WEFT_GATE_MAX_GROUPS * sizeof(struct two_best) <= WP_WARP_SHARED_BYTES,
                 "groups fit");
WP_STATIC_ASSERT((MAX_LANE_GROUPS + WP_WARP_SIZE) * sizeof(struct two_best) <= WP_WARP_SHARED_BYTES,
                 "groups and what lanes have fit");

/* ------------------------------------------------------------------ tiles */

WP_FN void order_tile(struct wp_warp *warp, const struct wp_gate_args *args,
                      const struct wp_gate_row *row, int32_t first, uint32_t *orders)
{
    const int32_t tile_experts = wp_gate_tile_experts(row, first);
    const int32_t own = wp_gate_own(tile_experts), real = wp_gate_own_before(warp, tile_experts);
    float values[WP_GATE_OWN] = {0};
    wp_gate_load_tile(warp, row, first, values);
    wp_gate_score_tile(row, own, values);
    if (args->bias != NULL) {
        const float *bias = args->bias + wp_gate_own_first(warp, first);
        WP_EACH_OWN (i, 0, real, WP_GATE_OWN)
            values[i] += bias[i];
    }
    WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
        orders[i] = wp_order_of(values[i]);
}

/* A mask; from a choice between a maximum and nothing gcc 12 makes no vectors. */
WP_FN uint32_t only_if(int condition)
{
    return 0u - (uint32_t)condition;
}

/* Warp-wide: the best of a tile's experts, counted from the tile's first; it is dropped. */
WP_FN struct choice take_best(struct wp_warp *warp, uint32_t *orders, int32_t own)
{
    const int32_t own_first = wp_gate_own_first(warp, 0);
    uint32_t best = 0, from_end = 0; /* 0: another lane has it */
    WP_EACH_OWN (i, 0, own, WP_GATE_OWN)
        best = orders[i] > best ? orders[i] : best;
    best = wp_max_u32(warp, best);
    WP_EACH_OWN (i, 0, own, WP_GATE_OWN) {
        const uint32_t found = (uint32_t)(WP_GATE_OWN - i) & only_if(orders[i] == best);
        from_end = found > from_end ? found : from_end;
    }
    if (from_end > 0)
        from_end += (uint32_t)(WP_GATE_TILE - WP_GATE_OWN - own_first);
    const struct choice choice = {best, WP_GATE_TILE - (int32_t)wp_max_u32(warp, from_end)};
    const int32_t own_idx = choice.expert - own_first;
    if (own_idx >= 0 && own_idx < WP_GATE_OWN)
        WP_EACH_OWN (i, own_idx, own_idx + 1, WP_GATE_OWN)
            orders[i] = 0;
    return choice;
}

WP_FN void drop_experts(struct wp_warp *warp, uint32_t *orders, int32_t begin, int32_t end)
{
    WP_EACH_OWN (i, wp_gate_own_before(warp, begin), wp_gate_own_before(warp, end), WP_GATE_OWN)
        orders[i] = 0;
}

/* ------------------------------------------------------------------ groups */

struct range {
    int32_t begin, end;
};

WP_FN int32_t group_of(const struct wp_gate_args *args, int32_t expert)
{
    return (int32_t)wp_divide((uint32_t)expert, args->group_reciprocal);
}

/* The experts of a group in a tile, counted from the tile's first; there may be none. */
WP_FN struct range group_in_tile(const struct wp_gate_args *args, int32_t group, int32_t first,
                                 int32_t tile_experts)
{
    const int32_t begin = group * args->group_experts - first, end = begin + args->group_experts;
    const struct range range = {begin < 0 ? 0 : begin, end < tile_experts ? end : tile_experts};
    return range;
}

WP_FN struct two_best merge(struct two_best a, struct two_best b)
{
    const uint32_t less = a.first < b.first ? a.first : b.first;
    const uint32_t more = a.first < b.first ? b.second : a.second;
    const struct two_best best = {a.first < b.first ? b.first : a.first, less > more ? less : more};
    return best;
}

/* Warp-wide: the two best orders of a range. */
WP_FN struct two_best find_two_best(struct wp_warp *warp, const uint32_t *orders,
                                    struct range range)
{
    const int32_t from = wp_gate_own_before(warp, range.begin);
    const int32_t to = wp_gate_own_before(warp, range.end);
    uint32_t first = 0, second = 0, num_first = 0;
    WP_EACH_OWN (i, from, to, WP_GATE_OWN)
        first = orders[i] > first ? orders[i] : first;
    first = wp_max_u32(warp, first);
    WP_EACH_OWN (i, from, to, WP_GATE_OWN) {
        const uint32_t below = orders[i] & only_if(orders[i] < first);
        second = below > second ? below : second;
        num_first += orders[i] == first;
    }
    second = wp_max_u32(warp, second);
    const struct two_best best = {first, wp_sum_u32(warp, num_first) > 1 ? first : second};
    return best;
}

/* Each lane's experts are of one group: no lane looks at those of other groups. */
WP_FN int groups_have_lanes(const struct wp_gate_args *args)
{
    return args->group_experts % WP_GATE_OWN == 0 && args->num_groups <= MAX_LANE_GROUPS;
}

/* Warp-wide: what each lane has, into memory of the warp. */
WP_FN struct two_best *rank_lanes(struct wp_warp *warp, const uint32_t *orders)
{
    struct two_best *lanes = (struct two_best *)wp_warp_shared(warp) + MAX_LANE_GROUPS;
    struct two_best best = {0, 0};
    wp_warp_sync(warp); /* all have read what lanes had of the tile before */
    WP_EACH_OWN (i, 0, WP_GATE_OWN, WP_GATE_OWN) {
        const struct two_best one = {orders[i], 0};
        best = merge(best, one);
    }
    lanes[wp_lane_idx(warp)] = best;
    wp_warp_sync(warp);
    return lanes;
}

/* Adds what a tile has of each group. */
WP_FN void rank_tile(struct wp_warp *warp, const struct wp_gate_args *args, const uint32_t *orders,
                     int32_t first, int32_t tile_experts)
{
    struct two_best *groups = (struct two_best *)wp_warp_shared(warp);
    const struct two_best nothing = {0, 0};
    const int32_t begin = group_of(args, first), end = group_of(args, first + tile_experts - 1) + 1;
    const int by_lanes = groups_have_lanes(args);
    const struct two_best *lanes = by_lanes ? rank_lanes(warp, orders) : NULL;
    for (int32_t group = by_lanes ? begin + wp_lane_idx(warp) : begin; group < end;
         group += by_lanes ? WP_WARP_SIZE : 1) {
        const struct range range = group_in_tile(args, group, first, tile_experts);
        struct two_best here = nothing;
        if (by_lanes)
            for (int32_t lane = range.begin / WP_GATE_OWN; lane * WP_GATE_OWN < range.end; lane++)
                here = merge(here, lanes[lane]);
        else
            here = find_two_best(warp, orders, range);
        if (by_lanes || wp_lane_idx(warp) == 0)
            groups[group] =
                merge(here, group * args->group_experts < first ? groups[group] : nothing);
    }
}

WP_FN uint32_t order_of_group(const struct wp_gate_args *args, struct two_best best)
{
    if (args->group_score == WEFT_GATE_GROUP_MAX || best.second == 0)
        return best.first;
    return wp_order_of(wp_float_of_order(best.first) + wp_float_of_order(best.second));
}

/* Bit g: group g is kept. */
WP_FN uint64_t keep_groups(struct wp_warp *warp, const struct wp_gate_args *args)
{
    struct two_best *groups = (struct two_best *)wp_warp_shared(warp);
    uint32_t low = 0, high = 0;
    wp_warp_sync(warp); /* lane 0 has written them */
    for (int32_t g = wp_lane_idx(warp); g < args->num_groups; g += WP_WARP_SIZE)
        groups[g].first = order_of_group(args, groups[g]);
    wp_warp_sync(warp);
    for (int32_t g = wp_lane_idx(warp); g < args->num_groups; g += WP_WARP_SIZE) {
        const uint32_t order = groups[g].first;
        int32_t num_better = 0;
        for (int32_t other = 0; other < args->num_groups; other++)
            num_better +=
                groups[other].first > order || (groups[other].first == order && other < g);
        const uint32_t is_kept = order != 0 && num_better < args->num_kept_groups;
        low |= g < 32 ? is_kept << g : 0;
        high |= g < 32 ? 0 : is_kept << (g - 32);
    }
    return (uint64_t)wp_or_u32(warp, high) << 32 | wp_or_u32(warp, low);
}

WP_FN void drop_groups(struct wp_warp *warp, const struct wp_gate_args *args, uint64_t kept,
                       uint32_t *orders, int32_t first, int32_t tile_experts)
{
    if (groups_have_lanes(args)) {
        const int32_t group = group_of(args, wp_gate_own_first(warp, first));
        const uint32_t keep = only_if(kept >> (group & 63) & 1);
        WP_EACH_OWN (i, 0, WP_GATE_OWN, WP_GATE_OWN)
            orders[i] &= keep;
        return;
    }
    for (int32_t group = group_of(args, first); group * args->group_experts < first + tile_experts;
         group++) {
        const struct range range = group_in_tile(args, group, first, tile_experts);
        if ((kept >> group & 1) == 0)
            drop_experts(warp, orders, range.begin, range.end);
    }
}

/* ------------------------------------------------------------------ choices */

/* Warp-wide: puts a choice, which is behind all that are as good, into the list of num_topk;
 * returns its place. */
WP_FN int32_t put_choice(struct wp_warp *warp, struct choice *choices, int32_t num_choices,
                         int32_t num_topk, struct choice choice)
{
    uint32_t num_before = 0;
    for (int32_t i = wp_lane_idx(warp); i < num_choices; i += WP_WARP_SIZE)
        num_before += choices[i].order >= choice.order;
    const int32_t place = (int32_t)wp_sum_u32(warp, num_before);
    const int32_t last = num_choices < num_topk ? num_choices : num_topk - 1;
    wp_warp_sync(warp);                                          /* all have read the orders */
    for (int32_t end = last; end > place; end -= WP_WARP_SIZE) { /* the others move on */
        const int32_t i = end - wp_lane_idx(warp);
        const struct choice moved = choices[i > place ? i - 1 : 0];
        wp_warp_sync(warp); /* all have read theirs; what is read next is not written here */
        if (i > place)
            choices[i] = moved;
    }
    if (wp_lane_idx(warp) == 0)
        choices[place] = choice;
    wp_warp_sync(warp);
    return place;
}

/* Warp-wide: the best of a row's first tile, which come in order; returns how many there are. */
WP_FN int32_t choose_from_first_tile(struct wp_warp *warp, int32_t num_topk, uint32_t *orders,
                                     int32_t tile_experts)
{
    struct choice *choices = (struct choice *)wp_warp_shared(warp);
    int32_t num_choices = 0;
    wp_warp_sync(warp); /* all have read the groups: choices come there */
    for (; num_choices < num_topk; num_choices++) {
        const struct choice best = take_best(warp, orders, wp_gate_own(tile_experts));
        if (best.order == 0)
            break;
        if (wp_lane_idx(warp) == 0)
            choices[num_choices] = best;
    }
    wp_warp_sync(warp); /* lane 0 has written them */
    return num_choices;
}

/* Adds the best of a tile to the choices; returns how many there are then. */
WP_FN int32_t choose_from_tile(struct wp_warp *warp, int32_t num_topk, uint32_t *orders,
                               int32_t first, int32_t tile_experts, int32_t num_choices)
{
    struct choice *choices = (struct choice *)wp_warp_shared(warp);
    for (int32_t place = -1; place < num_topk - 1;) { /* behind the last nothing follows */
        struct choice best = take_best(warp, orders, wp_gate_own(tile_experts));
        const int is_full = num_choices == num_topk;
        if (best.order == 0 || (is_full && best.order <= choices[num_topk - 1].order))
            break;
        best.expert += first;
        place = put_choice(warp, choices, num_choices, num_topk, best);
        num_choices += !is_full;
    }
    wp_warp_sync(warp); /* all have read the orders: scores come there */
    return num_choices;
}

/* Warp-wide: the choices of a row, into memory of the warp. Where groups are dropped, all tiles are
 * ranked first. */
WP_FN int32_t choose_experts(struct wp_warp *warp, const struct wp_gate_args *args,
                             const struct wp_gate_row *row)
{
    const int32_t num_experts = args->logits.num_experts;
    const int has_groups = args->num_kept_groups < args->num_groups;
    uint32_t orders[WP_GATE_OWN];
    uint64_t kept = 0;
    int32_t num_choices = 0, ordered = -1;
    for (int is_choice = !has_groups; is_choice <= 1; is_choice++) {
        for (int32_t first = 0; first < num_experts; first += WP_GATE_TILE) {
            const int32_t tile_experts = wp_gate_tile_experts(row, first);
            if (ordered != first) /* a single tile still is */
                order_tile(warp, args, row, first, orders);
            ordered = first;
            if (!is_choice) {
                rank_tile(warp, args, orders, first, tile_experts);
                continue;
            }
            if (has_groups)
                drop_groups(warp, args, kept, orders, first, tile_experts);
            num_choices = first == 0
                              ? choose_from_first_tile(warp, args->num_topk, orders, tile_experts)
                              : choose_from_tile(warp, args->num_topk, orders, first, tile_experts,
                                                 num_choices);
        }
        if (!is_choice)
            kept = keep_groups(warp, args);
    }
    return num_choices;
}

/* ------------------------------------------------------------------ results */

WP_FN void store_choice(const struct wp_gate_args *args, int64_t i, int32_t expert, float weight)
{
    if (args->index_type == WEFT_INT64)
        ((int64_t *)args->topk_idx)[i] = expert;
    else
        ((int32_t *)args->topk_idx)[i] = expert;
    args->topk_weights[i] = wp_canonical(weight);
}

/* The choices' scores, which take the place of their orders; returns what they are divided by. */
WP_FN float score_choices(struct wp_warp *warp, const struct wp_gate_args *args,
                          const struct wp_gate_row *row, int32_t num_choices)
{
    struct choice *choices = (struct choice *)wp_warp_shared(warp);
    float sum = 0.0f;
    for (int32_t i = wp_lane_idx(warp); i < num_choices; i += WP_WARP_SIZE)
        choices[i].order = wp_bits_of(wp_gate_score_of(row, wp_gate_logit(row, choices[i].expert)));
    wp_warp_sync(warp);
    if (args->weights != WEFT_GATE_WEIGHTS_NORMALISED)
        return 1.0f;
    for (int32_t i = 0; i < num_choices; i++)
        sum += wp_float_of(choices[i].order);
    return wp_gate_divisor(sum);
}

WP_FN int32_t *counters_of(struct wp_warp *warp, const struct wp_gate_args *args)
{
    return args->logits.num_experts <= MAX_BLOCK_COUNTERS ? (int32_t *)wp_block_shared(warp)
                                                          : args->num_tokens_per_expert;
}

WP_FN void gate_token(struct wp_warp *warp, const struct wp_gate_args *args, int32_t token)
{
    const struct choice *choices = (const struct choice *)wp_warp_shared(warp);
    const int64_t base = (int64_t)token * args->num_topk;
    int32_t num_choices = 0;
    float divisor = 1.0f;
    if (args->token_mask == NULL || args->token_mask[token] != 0) {
        const struct wp_gate_row row = wp_gate_row_of(warp, &args->logits, token);
        num_choices = choose_experts(warp, args, &row);
        divisor = score_choices(warp, args, &row, num_choices);
    }
    for (int32_t i = wp_lane_idx(warp); i < args->num_topk; i += WP_WARP_SIZE) {
        const int is_there = i < num_choices;
        const int32_t expert = is_there ? choices[i].expert : -1;
        const float score = is_there ? wp_float_of(choices[i].order) : 0.0f;
        store_choice(args, base + i, expert, is_there ? score / divisor * args->scale : 0.0f);
        if (is_there && args->num_tokens_per_expert != NULL)
            wp_add_relaxed(&counters_of(warp, args)[expert], 1);
    }
    wp_warp_sync(warp); /* the choices have been read: the next token's come there */
}

/* Counts of the block, if there is room for them: on GPUs far faster than those of all blocks. */
WP_FN void begin_counts(struct wp_warp *warp, const struct wp_gate_args *args, int32_t thread)
{
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    int32_t *counters = counters_of(warp, args);
    if (args->num_tokens_per_expert == NULL || counters == args->num_tokens_per_expert)
        return;
    for (int32_t expert = thread; expert < args->logits.num_experts; expert += num_threads)
        counters[expert] = 0;
    wp_block_sync(warp);
}

WP_FN void add_counts(struct wp_warp *warp, const struct wp_gate_args *args, int32_t thread)
{
    const int32_t num_threads = wp_num_warps(warp) * WP_WARP_SIZE;
    const int32_t *counters = counters_of(warp, args);
    if (args->num_tokens_per_expert == NULL || counters == args->num_tokens_per_expert)
        return;
    wp_block_sync(warp);
    for (int32_t expert = thread; expert < args->logits.num_experts; expert += num_threads) {
        if (counters[expert] > 0)
            wp_add_relaxed(&args->num_tokens_per_expert[expert], counters[expert]);
    }
}

WP_PROGRAM(gate, warp, args)
{
    const int32_t num_warps = wp_num_launch_warps(warp);
    const int32_t thread = wp_warp_idx(warp) * WP_WARP_SIZE + wp_lane_idx(warp);
    wp_admit_next(warp); /* it waits for nobody */
    begin_counts(warp, args, thread);
    for (int64_t token = wp_launch_warp_idx(warp); token < args->num_tokens; token += num_warps)
        gate_token(warp, args, (int32_t)token);
    add_counts(warp, args, thread);
    return WP_STATUS_OK;
}
