/* SPDX-License-Identifier: MIT */
/*
 * EPLB (github.com/deepseek-ai/EPLB) has three steps: groups of experts are packed into nodes; in
 * each node the busiest experts get more replicas; these are packed into ranks. Packing takes the
 * items by their load, the greatest first, and puts each where the least load is.
 *
 * The better mode does the same with two differences. No rank gets two replicas of an expert where
 * that can be avoided, since they are as good as one. And as long as it helps, the busiest pack
 * exchanges an item for a lighter one of another pack: so do the ranks of each node, and the nodes.
 * It keeps the best of EPLB's answer and these, so it is never worse.
 */
#include "ep/balance.h"

#include <stdlib.h>
#include <string.h>

#include "ep/balance_internal.h"

/* ---------------------------------------------------------------- packing */

/* The greatest load first; items of equal load by their number. */
static int compare_loads(const void *a, const void *b, void *context)
{
    const float *loads = context;
    const int32_t item = *(const int32_t *)a, other = *(const int32_t *)b;
    if (loads[item] != loads[other])
        return loads[item] > loads[other] ? -1 : 1;
    return item - other;
}

/* Two replicas of one expert on a rank are as good as one. */
static int has_kind(const struct packing *packing, int32_t pack, int32_t num_there, int32_t kind)
{
    const int32_t first = pack * packing->pack_items;
    for (int32_t slot = first; packing->kinds != NULL && slot < first + num_there; slot++)
        if (packing->kinds[packing->slots[slot]] == kind)
            return 1;
    return 0;
}

static int32_t find_lightest(const struct packing *packing, const int32_t *num_there, int32_t item)
{
    int32_t lightest = -1, lightest_apart = -1;
    for (int32_t pack = 0; pack < packing->num_packs; pack++) {
        if (num_there[pack] == packing->pack_items)
            continue;
        const float load = packing->pack_loads[pack];
        if (lightest < 0 || load < packing->pack_loads[lightest])
            lightest = pack;
        if (packing->kinds != NULL &&
            (lightest_apart < 0 || load < packing->pack_loads[lightest_apart]) &&
            !has_kind(packing, pack, num_there[pack], packing->kinds[item]))
            lightest_apart = pack;
    }
    return lightest_apart >= 0 ? lightest_apart : lightest;
}

static void pack(struct weft__balance_work *work, struct packing *packing)
{
    const int32_t num_items = packing->pack_items * packing->num_packs;
    for (int32_t i = 0; i < num_items; i++)
        work->order[i] = i;
    for (int32_t i = 0; i < packing->num_packs; i++) {
        work->num_there[i] = 0;
        packing->pack_loads[i] = 0;
    }
    /* With one item for each pack, EPLB leaves them in their order. */
    if (packing->pack_items > 1)
        qsort_r(work->order, (size_t)num_items, sizeof(*work->order), compare_loads,
                (void *)packing->loads);
    for (int32_t i = 0; i < num_items; i++) {
        const int32_t item = work->order[i];
        const int32_t to =
            packing->pack_items > 1 ? find_lightest(packing, work->num_there, item) : i;
        packing->slots[to * packing->pack_items + work->num_there[to]++] = item;
        packing->pack_loads[to] += packing->loads[item];
    }
}

static int32_t find_heaviest(const struct packing *packing)
{
    int32_t heaviest = 0;
    for (int32_t i = 1; i < packing->num_packs; i++)
        if (packing->pack_loads[i] > packing->pack_loads[heaviest])
            heaviest = i;
    return heaviest;
}

static int may_exchange(const struct packing *packing, int32_t slot, int32_t other)
{
    const int32_t count = packing->pack_items;
    return packing->kinds == NULL ||
           (!has_kind(packing, other / count, count, packing->kinds[packing->slots[slot]]) &&
            !has_kind(packing, slot / count, count, packing->kinds[packing->slots[other]]));
}

struct exchange {
    int32_t slot, other; /* -1: none helps */
    float heavier;       /* the load of the heavier of the two packs behind it */
};

static struct exchange find_exchange(const struct packing *packing)
{
    const int32_t count = packing->pack_items, heaviest = find_heaviest(packing);
    const float load = packing->pack_loads[heaviest];
    const float least_gain = 1e-6f; /* less is rounding */
    struct exchange best = {.slot = -1, .heavier = load - load * least_gain};
    for (int32_t slot = heaviest * count; slot < (heaviest + 1) * count; slot++)
        for (int32_t other = 0; other < packing->num_packs * count; other++) {
            const float lighter_by =
                packing->loads[packing->slots[slot]] - packing->loads[packing->slots[other]];
            const float here = load - lighter_by,
                        there = packing->pack_loads[other / count] + lighter_by;
            const float heavier = here > there ? here : there;
            if (lighter_by > 0 && other / count != heaviest && heavier < best.heavier &&
                may_exchange(packing, slot, other))
                best = (struct exchange){.slot = slot, .other = other, .heavier = heavier};
        }
    return best;
}

/* Each exchange makes the heaviest pack lighter, so this ends. */
static void improve(struct packing *packing)
{
    for (;;) {
        const struct exchange exchange = find_exchange(packing);
        if (exchange.slot < 0)
            return;
        const int32_t item = packing->slots[exchange.slot], other = packing->slots[exchange.other];
        const float lighter_by = packing->loads[item] - packing->loads[other];
        packing->pack_loads[exchange.slot / packing->pack_items] -= lighter_by;
        packing->pack_loads[exchange.other / packing->pack_items] += lighter_by;
        packing->slots[exchange.slot] = other;
        packing->slots[exchange.other] = item;
    }
}

/* ---------------------------------------------------------------- a layer */

/* A rank counts once for an expert: more replicas than the node has ranks are no use. */
static int32_t find_busiest(const struct weft__balance_work *work, int32_t num_experts,
                            int32_t max_copies)
{
    int32_t busiest = -1;
    for (int32_t i = 0; i < num_experts; i++)
        if (work->num_copies[i] < max_copies &&
            (busiest < 0 || work->expert_loads[i] / (float)work->num_copies[i] >
                                work->expert_loads[busiest] / (float)work->num_copies[busiest]))
            busiest = i;
    return busiest;
}

/* The first replicas are all experts. Each further one is of the expert with most load per
 * replica. */
static void replicate(struct weft__balance_work *work, int32_t num_experts, int32_t num_replicas,
                      int32_t max_copies)
{
    for (int32_t i = 0; i < num_experts; i++) {
        work->num_copies[i] = 1;
        work->kinds[i] = i;
    }
    for (int32_t i = num_experts; i < num_replicas; i++) {
        int32_t busiest = find_busiest(work, num_experts, max_copies);
        if (busiest < 0)
            busiest = find_busiest(work, num_experts, INT32_MAX);
        work->kinds[i] = busiest;
        work->num_copies[busiest]++;
    }
    for (int32_t i = 0; i < num_replicas; i++)
        work->item_loads[i] =
            work->expert_loads[work->kinds[i]] / (float)work->num_copies[work->kinds[i]];
}

/* The experts of a node's groups, in the order of its slots. */
static void gather_experts(struct weft__balance_work *work, const float *loads, int32_t node)
{
    const struct weft__balance *balance = &work->balance;
    const int32_t node_groups = balance->num_groups / balance->num_nodes,
                  group_experts = balance->num_experts / balance->num_groups;
    for (int32_t i = 0; i < node_groups * group_experts; i++) {
        const int32_t group = work->group_slots[node * node_groups + i / group_experts];
        work->node_experts[i] = group * group_experts + i % group_experts;
        work->expert_loads[i] = loads[work->node_experts[i]];
    }
}

static void place_node(struct weft__balance_work *work, weft_balance_mode mode, const float *loads,
                       int32_t node, int32_t *replicas)
{
    const struct weft__balance *balance = &work->balance;
    const int32_t num_replicas = balance->num_replicas / balance->num_nodes,
                  num_ranks = balance->num_ranks / balance->num_nodes;
    struct packing packing = {.pack_items = num_replicas / num_ranks,
                              .num_packs = num_ranks,
                              .loads = work->item_loads,
                              .kinds = mode == WEFT_BALANCE_BEST ? work->kinds : NULL,
                              .slots = work->slots,
                              .pack_loads = work->pack_loads};
    gather_experts(work, loads, node);
    replicate(work, balance->num_experts / balance->num_nodes, num_replicas,
              mode == WEFT_BALANCE_BEST ? num_ranks : INT32_MAX);
    pack(work, &packing);
    if (mode == WEFT_BALANCE_BEST)
        improve(&packing);
    for (int32_t i = 0; i < num_replicas; i++)
        replicas[node * num_replicas + i] = work->node_experts[work->kinds[packing.slots[i]]];
}

/* Takes it if it is better than `replicas`. */
static void try_groups(struct weft__balance_work *work, const float *loads, int32_t *replicas)
{
    for (int32_t node = 0; node < work->balance.num_nodes; node++)
        place_node(work, WEFT_BALANCE_BEST, loads, node, work->candidate);
    if (weft__balance_imbalance(work, loads, work->candidate) <
        weft__balance_imbalance(work, loads, replicas))
        memcpy(replicas, work->candidate, (size_t)work->balance.num_replicas * sizeof(*replicas));
}

void weft__balance_layer(struct weft__balance_work *work, const float *loads, int32_t *replicas)
{
    const struct weft__balance *balance = &work->balance;
    const int32_t group_experts = balance->num_experts / balance->num_groups;
    struct packing groups = {.pack_items = balance->num_groups / balance->num_nodes,
                             .num_packs = balance->num_nodes,
                             .loads = work->group_loads,
                             .slots = work->group_slots,
                             .pack_loads = work->node_loads};
    for (int32_t group = 0; group < balance->num_groups; group++) {
        work->group_loads[group] = 0;
        for (int32_t i = 0; i < group_experts; i++)
            work->group_loads[group] += loads[group * group_experts + i];
    }
    pack(work, &groups);
    for (int32_t node = 0; node < balance->num_nodes; node++)
        place_node(work, WEFT_BALANCE_EPLB, loads, node, replicas);
    if (balance->mode == WEFT_BALANCE_EPLB)
        return;
    try_groups(work, loads, replicas);
    improve(&groups);
    if (balance->num_nodes > 1)
        try_groups(work, loads, replicas);
}

/* ---------------------------------------------------------------- how good it is */

static int is_first_on_rank(const int32_t *replicas, int32_t rank_begin, int32_t replica)
{
    for (int32_t i = rank_begin; i < replica; i++)
        if (replicas[i] == replicas[replica])
            return 0;
    return 1;
}

float weft__balance_imbalance(struct weft__balance_work *work, const float *loads,
                              const int32_t *replicas)
{
    const struct weft__balance *balance = &work->balance;
    const int32_t rank_replicas = balance->num_replicas / balance->num_ranks;
    int32_t *num_ranks = work->order;
    double sum = 0, busiest = 0, load = 0;
    memset(num_ranks, 0, (size_t)balance->num_experts * sizeof(*num_ranks));
    for (int32_t i = 0; i < balance->num_replicas; i++)
        num_ranks[replicas[i]] += is_first_on_rank(replicas, i - i % rank_replicas, i);
    for (int32_t i = 0; i < balance->num_replicas; i++) {
        if (i % rank_replicas == 0)
            load = 0;
        if (is_first_on_rank(replicas, i - i % rank_replicas, i))
            load += (double)loads[replicas[i]] / num_ranks[replicas[i]];
        busiest = load > busiest ? load : busiest;
    }
    for (int32_t i = 0; i < balance->num_experts; i++)
        sum += (double)loads[i];
    return sum > 0 ? (float)(busiest * balance->num_ranks / sum) : 1;
}

/* ---------------------------------------------------------------- memory */

struct weft__balance_work *weft__balance_work_create(const struct weft__balance *balance,
                                                     enum weft__balance_use use)
{
    enum { NUM_ARRAYS = 15 };
    /* There are no more of anything else than replicas, but for pairs of ranks. */
    const size_t num_elements = (size_t)balance->num_replicas,
                 num_pairs = use == WEFT__BALANCE_TO_MOVE
                                 ? (size_t)balance->num_ranks * (size_t)balance->num_ranks
                                 : 0;
    struct weft__balance_work *work = calloc(1, sizeof(*work));
    double *rank_loads = calloc(1, num_elements * sizeof(*rank_loads) +
                                       (NUM_ARRAYS * num_elements + num_pairs) * sizeof(int32_t));
    if (work == NULL || rank_loads == NULL) {
        free(work);
        free(rank_loads);
        return NULL;
    }
    int32_t **const numbers[] = {&work->group_slots, &work->node_experts, &work->num_copies,
                                 &work->kinds,       &work->slots,        &work->order,
                                 &work->scratch,     &work->num_there,    &work->candidate,
                                 &work->num_sent};
    float **const loads[] = {&work->group_loads, &work->node_loads, &work->expert_loads,
                             &work->item_loads, &work->pack_loads};
    work->balance = *balance;
    work->rank_loads = rank_loads;
    int32_t *memory = (int32_t *)(rank_loads + num_elements);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++, memory += num_elements)
        *numbers[i] = memory;
    for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++, memory += num_elements)
        *loads[i] = (float *)memory;
    work->common = memory;
    return work;
}

void weft__balance_work_destroy(struct weft__balance_work *work)
{
    free(work->rank_loads);
    free(work);
}
