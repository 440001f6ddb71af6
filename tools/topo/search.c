/* SPDX-License-Identifier: MIT */
#include "topo/search.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "topo/search_internal.h"

enum { MAX_HEADS = 32, MAX_RINGS = 32 };

/* The range of the tries of one search. */
struct plan {
    struct search search;
    const float *speeds;
    int32_t num_speeds, speed; /* speeds[speed] is tried */
    float max_bw, total_bw;    /* of a channel; of a GPU */
    float total_bw_of_pattern; /* the same, more where a channel does not use all links of a GPU */
    enum topo_type min_intra, max_intra, min_inter, max_inter;
    int32_t may_cross_nic, starts_same; /* values that are tried */
    int32_t oldest_sm;
    int64_t steps_in_all;
};

/* ------------------------------------------------------------------ limits */

static float most_link_bw(const struct topo_node *gpu)
{
    float nvlink_bw = 0, pci_bw = 0;
    for (int32_t i = 0; i < gpu->num_links; i++) {
        if (gpu->links[i].type == TOPO_NVL)
            nvlink_bw += gpu->links[i].bw;
        if (gpu->links[i].type == TOPO_PIX)
            pci_bw = gpu->links[i].bw;
    }
    return pci_bw > nvlink_bw ? pci_bw : nvlink_bw;
}

static void find_limits(struct plan *plan)
{
    const struct search *search = &plan->search;
    const enum topo_kind kind = search->reach == TOPO_SEVERAL_NODES ? TOPO_NET : TOPO_GPU;
    const int32_t count = topo_count(search->topo, kind);
    if (search->reach == TOPO_ONE_NODE && search->num_gpus == 1) {
        plan->max_bw = plan->total_bw = TOPO_LOCAL_BW;
        return;
    }
    for (int32_t g = 0; g < search->num_gpus; g++) {
        const struct topo_node *gpu = search_gpu(search, g);
        const float total_bw = most_link_bw(gpu);
        plan->total_bw = total_bw > plan->total_bw ? total_bw : plan->total_bw;
        for (int32_t i = 0; i < count; i++)
            if (gpu->paths[kind][i].num_links > 0 && gpu->paths[kind][i].bw > plan->max_bw)
                plan->max_bw = gpu->paths[kind][i].bw;
    }
}

/* The nearest and the farthest path of GPUs to others of a kind. */
static void find_types(const struct search *search, enum topo_kind kind, enum topo_type *min,
                       enum topo_type *max)
{
    *min = TOPO_SYS;
    *max = TOPO_LOC;
    for (int32_t g = 0; g < search->num_gpus; g++)
        for (int32_t i = 0; i < topo_count(search->topo, kind); i++) {
            const enum topo_type type = search_gpu(search, g)->paths[kind][i].type;
            if (kind == TOPO_GPU && i == g)
                continue;
            *min = type < *min ? type : *min;
            *max = type > *max ? type : *max;
        }
}

static void find_range(struct plan *plan)
{
    const struct search *search = &plan->search;
    plan->min_intra = TOPO_LOC;
    plan->min_inter = TOPO_PIX;
    plan->max_intra = plan->max_inter = TOPO_SYS;
    if (search->num_gpus > 1)
        find_types(search, TOPO_GPU, &plan->min_intra, &plan->max_intra);
    if (search->reach == TOPO_SEVERAL_NODES) {
        find_types(search, TOPO_NET, &plan->min_inter, &plan->max_inter);
        plan->max_intra = plan->max_inter;
    }
    /* Balanced trees sometimes come back that way. */
    if (plan->oldest_sm < 90)
        plan->max_inter = TOPO_SYS;
}

static int32_t find_oldest_sm(const struct search *search)
{
    int32_t oldest = search_gpu(search, 0)->gpu.sm;
    for (int32_t g = 1; g < search->num_gpus; g++)
        if (search_gpu(search, g)->gpu.sm < oldest)
            oldest = search_gpu(search, g)->gpu.sm;
    return oldest;
}

/* Whether NVLink makes two islands: a tree between them needs two channels, and rings are as many
 * as trees. */
static int has_two_islands(const struct search *search)
{
    int32_t island[TOPO_MAX_NODES], size[TOPO_MAX_NODES] = {0}, num_islands = 0;
    for (int32_t g = 0; g < search->num_gpus; g++)
        island[g] = g;
    for (int32_t g = 0; g < search->num_gpus; g++)
        for (int32_t other = g + 1; other < search->num_gpus; other++)
            if (search_gpu(search, g)->paths[TOPO_GPU][other].type == TOPO_NVL)
                island[other] = island[g];
    for (int32_t g = 0; g < search->num_gpus; g++)
        size[island[g]]++;
    for (int32_t g = 0; g < search->num_gpus; g++)
        num_islands += size[g] > 1;
    return num_islands == 2;
}

/* ------------------------------------------------------------------ begin */

static void set_speed(struct plan *plan, int32_t speed)
{
    struct channels *now = plan->search.now;
    plan->speed = speed;
    now->bw_intra = now->bw_inter = plan->speeds[speed];
}

static void find_first_speed(struct plan *plan)
{
    int32_t speed = 0;
    while (speed < plan->num_speeds - 1 &&
           (plan->speeds[speed] > plan->max_bw ||
            plan->speeds[speed] * (float)plan->search.min_channels > plan->total_bw_of_pattern))
        speed++;
    set_speed(plan, speed);
}

static void begin(struct plan *plan, const struct search_wish *wish)
{
    struct search *search = &plan->search;
    struct channels *best = search->best;
    const struct topo_speeds speeds = topo_speeds_of(search->topo->constants, plan->oldest_sm);
    const int may_cross = wish->pattern == PATTERN_RING || wish->pattern == PATTERN_BALANCED_TREE;
    plan->may_cross_nic = may_cross && topo_count(search->topo, TOPO_NET) > 1 ? 2 : 0;
    plan->starts_same = wish->pattern != PATTERN_NVLS;
    plan->speeds = search->reach == TOPO_SEVERAL_NODES ? speeds.inter : speeds.intra;
    while (plan->speeds[plan->num_speeds] > 0)
        plan->num_speeds++;
    find_range(plan);
    best->id = wish->id;
    best->pattern = wish->pattern;
    best->type_intra = plan->min_intra;
    best->type_inter = plan->min_inter;
    best->same_channels = plan->starts_same;
}

/* How many channels there may be, from what was wished. */
static void limit_channels(struct plan *plan)
{
    struct search *search = &plan->search;
    const enum pattern pattern = search->best->pattern;
    if (pattern == PATTERN_NVLS)
        search->max_channels = search->num_gpus < MAX_HEADS ? search->num_gpus : MAX_HEADS;
    if (search->num_gpus == 1 && pattern != PATTERN_RING)
        search->best->pattern = PATTERN_TREE;
    if (pattern == PATTERN_NVLS && search->reach == TOPO_ONE_NODE)
        search->min_channels = search->max_channels;
    if (pattern == PATTERN_RING && search->max_channels >= 2 && search->min_channels == 1 &&
        has_two_islands(search))
        search->min_channels = 2;
}

/* ------------------------------------------------------------------ the first pass */

static int is_amd_over_sys(const struct plan *plan)
{
    const struct topo_cpu *cpu = &topo_at(plan->search.topo, TOPO_CPU, 0)->cpu;
    return cpu->arch == TOPO_ARCH_X86 && cpu->vendor == TOPO_VENDOR_AMD &&
           plan->search.now->type_intra == TOPO_SYS;
}

/* Farther paths, inside the node, then to the network. Whether there is something to try. */
static int allow_farther_paths(struct plan *plan)
{
    struct channels *now = plan->search.now;
    const struct channels *best = plan->search.best;
    const int is_inter = plan->search.reach == TOPO_SEVERAL_NODES;
    const enum topo_type max_intra = is_inter ? now->type_inter : plan->max_intra;
    if (now->type_intra < max_intra &&
        (best->num_channels == 0 || now->type_intra < best->type_intra)) {
        now->type_intra = (enum topo_type)(now->type_intra + 1);
        if (now->type_intra < TOPO_DIS)
            return 1;
    }
    now->type_intra = plan->min_intra;
    if (is_inter && now->type_inter < plan->max_inter &&
        (best->num_channels == 0 || now->type_inter < best->type_inter ||
         now->type_inter < TOPO_PXN)) {
        now->type_inter = (enum topo_type)(now->type_inter + 1);
        if (now->type_inter < TOPO_DIS)
            return 1;
    }
    now->type_inter = plan->min_inter;
    return 0;
}

/* The next try, from strict to lax. Whether there is one. */
static int relax(struct plan *plan)
{
    struct search *search = &plan->search;
    struct channels *now = search->now;
    const struct channels *best = search->best;
    if (now->same_channels && !is_amd_over_sys(plan)) {
        now->same_channels = 0;
        return 1;
    }
    now->same_channels = plan->starts_same;
    plan->steps_in_all += search->steps_left;
    if (plan->steps_in_all < 0 && best->num_channels > 0)
        return 0;
    if (plan->oldest_sm >= 90 && now->pattern == PATTERN_BALANCED_TREE) {
        now->pattern = PATTERN_TREE;
        return 1;
    }
    now->pattern = best->pattern;
    if (allow_farther_paths(plan))
        return 1;
    if (plan->may_cross_nic && now->cross_nic == 0 &&
        (best->pattern == PATTERN_RING || best->pattern == PATTERN_BALANCED_TREE)) {
        now->cross_nic = 2;
        return 1;
    }
    now->cross_nic = 0;
    if (plan->speed == plan->num_speeds - 1 ||
        (best->num_channels > 0 && plan->speeds[plan->speed + 1] / best->bw_inter <= .49))
        return 0;
    set_speed(plan, plan->speed + 1);
    return 1;
}

static void try_once(struct plan *plan)
{
    struct search *search = &plan->search;
    search->steps_left = search->now->same_channels ? SEARCH_STEPS_SAME_CHANNELS : SEARCH_STEPS;
    plan->steps_in_all -= search->steps_left;
    search_try(search);
}

/* Whether nothing better can be. */
static int is_done(const struct plan *plan)
{
    const struct channels *best = plan->search.best;
    return plan->search.steps_left == SEARCH_PERFECT ||
           (float)best->num_channels * best->bw_inter >= plan->total_bw;
}

static void find(struct plan *plan)
{
    do
        try_once(plan);
    while (!is_done(plan) && relax(plan));
}

/* ------------------------------------------------------------------ the second pass */

/* Twice the channels of half the bandwidth, which more blocks work on. */
static void double_channels(struct plan *plan)
{
    struct channels *best = plan->search.best;
    const int32_t count = best->num_channels;
    const int32_t most = plan->search.max_channels;
    const int32_t doubled = 2 * count < most ? 2 * count : most;
    if (count == 0 || best->pattern == PATTERN_NVLS || best->bw_intra < 25 ||
        (plan->oldest_sm > 80 && best->bw_intra < 50 && count > 4))
        return;
    for (int32_t i = count; i < doubled; i++) {
        memcpy(best->channel[i].nets, best->channel[i - count].nets, sizeof best->channel[i].nets);
        memcpy(best->channel[i].ranks, best->channel[i - count].ranks,
               (size_t)best->num_gpus * sizeof *best->channel[i].ranks);
    }
    const int32_t share = (doubled + count - 1) / count;
    best->bw_intra /= (float)share;
    best->bw_inter /= (float)share;
    best->num_channels = doubled;
}

/* A higher speed for the same channels. Whether there is one to try. */
static int raise(struct plan *plan)
{
    struct search *search = &plan->search;
    struct channels *now = search->now;
    const struct channels *best = search->best;
    if (search->steps_left == 0 || plan->speed == 0)
        return 0;
    const float faster = plan->speeds[plan->speed - 1];
    if (best->pattern == PATTERN_RING) {
        now->bw_intra = now->bw_inter = faster;
    } else if (best->pattern == PATTERN_NVLS && now->bw_inter == best->bw_inter &&
               now->bw_inter < now->bw_intra * 2) {
        search->min_channels = search->max_channels = best->num_channels;
        now->bw_inter = faster;
    } else if (now->bw_intra == best->bw_intra && now->bw_intra < now->bw_inter * 2) {
        now->bw_intra = faster;
    } else {
        return 0;
    }
    plan->speed--;
    return 1;
}

static void improve(struct plan *plan)
{
    struct search *search = &plan->search;
    int32_t speed = 0;
    double_channels(plan);
    channels_copy(search->now, search->best);
    while (speed < plan->num_speeds - 1 && plan->speeds[speed] > search->best->bw_inter)
        speed++;
    set_speed(plan, speed);
    search->min_channels = search->best->num_channels;
    search->steps_left = SEARCH_PERFECT;
    while (raise(plan))
        try_once(plan);
}

/* ------------------------------------------------------------------ nothing was found */

static int32_t first_net_of(const struct search *search, int32_t gpu)
{
    const struct topo_gpu *values = &search_gpu(search, gpu)->gpu;
    return values->num_nets > 0 ? values->nets[0] : -1;
}

static void fall_back(struct plan *plan)
{
    const struct search *search = &plan->search;
    struct channels *best = search->best;
    struct channel *channel = &best->channel[0];
    for (int32_t g = 0; g < search->num_gpus; g++)
        channel->ranks[g] = search_gpu(search, g)->gpu.rank;
    channel->nets[0] = first_net_of(search, 0);
    channel->nets[1] = first_net_of(search, search->num_gpus - 1);
    const int has_nets = channel->nets[0] != -1 && channel->nets[1] != -1;
    best->bw_intra = NO_GBPS;
    best->type_intra = TOPO_SYS;
    best->bw_inter = has_nets ? NO_GBPS : 0;
    best->type_inter = has_nets ? TOPO_SYS : TOPO_DIS;
    best->num_channels = 1;
}

/* ------------------------------------------------------------------ the whole */

static void run(struct plan *plan)
{
    struct search *search = &plan->search;
    const float num_gpus = (float)search->num_gpus;
    if (search->best->pattern == PATTERN_NVLS &&
        (topo_count(search->topo, TOPO_NVS) == 0 || plan->oldest_sm < 90))
        return;
    limit_channels(plan);
    find_limits(plan);
    plan->total_bw_of_pattern = plan->total_bw;
    if (search->num_gpus > 1 && search->best->pattern != PATTERN_RING)
        plan->total_bw_of_pattern =
            (float)(plan->total_bw * (num_gpus * 1.0 / (double)(num_gpus - 1)));
    plan->steps_in_all = SEARCH_STEPS_IN_ALL;
    channels_copy(search->now, search->best);
    find_first_speed(plan);
    find(plan);
    improve(plan);
    if (search->best->num_channels == 0 && search->best->pattern != PATTERN_NVLS)
        fall_back(plan);
}

static weft_result create_lists(struct search *search)
{
    const size_t num_gpus = (size_t)search->num_gpus;
    const size_t num_nets = (size_t)topo_count(search->topo, TOPO_NET);
    int32_t *nets = calloc((num_gpus + 1) * num_nets + 1, sizeof *nets);
    search->net_list.indices = nets;
    search->net_list_of = calloc(num_gpus, sizeof *search->net_list_of);
    search->used = calloc(num_gpus, sizeof *search->used);
    search->next = calloc(TOPO_MAX_CHANNELS * num_gpus * num_gpus, sizeof *search->next);
    if (nets == NULL || search->net_list_of == NULL || search->used == NULL || search->next == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to search for channels");
    for (size_t g = 0; g < num_gpus; g++)
        search->net_list_of[g].indices = nets + (g + 1) * num_nets;
    return channels_create(search->num_gpus, &search->now);
}

static void destroy_lists(struct search *search)
{
    free(search->net_list.indices);
    free(search->net_list_of);
    free(search->used);
    free(search->next);
    channels_free(search->now);
}

/* ------------------------------------------------------------------ links are as before */

enum transfer { SAVE, RESTORE };

/* Rounding leaves links a little off: saved or restored, in the order of the graph. */
static void transfer_bw(struct topo *topo, enum transfer transfer, float *saved)
{
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++) {
            struct topo_node *node = topo->sets[kind].nodes[i];
            for (int32_t l = 0; l < node->num_links; l++, saved++) {
                if (transfer == SAVE)
                    *saved = node->links[l].bw;
                else
                    node->links[l].bw = *saved;
            }
        }
}

static size_t count_links(const struct topo *topo)
{
    size_t count = 0;
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            count += (size_t)topo->sets[kind].nodes[i]->num_links;
    return count;
}

weft_result search_channels(struct topo *topo, const struct search_wish *wish,
                            struct channels **channels)
{
    struct plan plan = {.search = {.topo = topo,
                                   .reach = wish->reach,
                                   .num_gpus = topo_count(topo, TOPO_GPU),
                                   .min_channels = wish->min_channels,
                                   .max_channels = wish->max_channels}};
    if (plan.search.num_gpus == 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "the topology has no GPU with a rank");
    float *saved = malloc((count_links(topo) + 1) * sizeof *saved);
    weft_result result = channels_create(plan.search.num_gpus, &plan.search.best);
    if (result == WEFT_OK)
        result = create_lists(&plan.search);
    if (result == WEFT_OK && saved == NULL)
        result = weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to search for channels");
    if (result == WEFT_OK) {
        transfer_bw(topo, SAVE, saved);
        plan.oldest_sm = find_oldest_sm(&plan.search);
        begin(&plan, wish);
        run(&plan);
        transfer_bw(topo, RESTORE, saved);
        *channels = plan.search.best;
    } else {
        channels_free(plan.search.best);
    }
    destroy_lists(&plan.search);
    free(saved);
    return result;
}

weft_result search_all(struct topo *topo, enum topo_reach reach, struct channel_sets *sets)
{
    struct channels **of = sets->of;
    struct search_wish wish = {.id = CHANNELS_RING, .pattern = PATTERN_RING, .reach = reach};
    wish.min_channels = 1;
    wish.max_channels = MAX_RINGS;
    weft_result result = search_channels(topo, &wish, &of[CHANNELS_RING]);
    wish.id = CHANNELS_TREE;
    wish.pattern = PATTERN_BALANCED_TREE;
    if (result == WEFT_OK) {
        wish.min_channels = wish.max_channels = of[CHANNELS_RING]->num_channels;
        result = search_channels(topo, &wish, &of[CHANNELS_TREE]);
    }
    wish.id = CHANNELS_NVLS;
    wish.pattern = PATTERN_NVLS;
    wish.min_channels = 1;
    wish.max_channels = TOPO_MAX_CHANNELS;
    if (result == WEFT_OK)
        result = search_channels(topo, &wish, &of[CHANNELS_NVLS]);
    if (result != WEFT_OK)
        channel_sets_free(sets);
    return result;
}

void channel_sets_free(struct channel_sets *sets)
{
    for (int i = 0; i < NUM_CHANNELS_IDS; i++) {
        channels_free(sets->of[i]);
        sets->of[i] = NULL;
    }
}
