/* SPDX-License-Identifier: MIT */
/* One try of a search: goes on channel by channel, GPU by GPU, and back where it does not go on. */
#include "topo/search_internal.h"

/* In which order the GPUs of a channel come. */
enum order {
    ORDER_ANY,
    ORDER_OF_FILE,
    ORDER_OF_LAST /* as in the channel before */
};

/* The rest of a channel. */
struct rest {
    enum order order;
    int32_t step;         /* of the GPU that comes next */
    int32_t net_step;     /* after which it goes to the network; -1: it does not */
    int32_t closing_step; /* after which it goes back to the first; -1: it does not */
    int32_t *steps_left;
};

static void try_channel(struct search *search, int32_t *steps_left);
static void go_on(struct search *search, struct topo_node *gpu, struct rest rest);

/* ------------------------------------------------------------------ whole channels */

static int is_improvement(const struct search *search)
{
    const struct channels *now = search->now, *best = search->best;
    const float bw = (float)now->num_channels * now->bw_intra;
    const float best_bw = (float)best->num_channels * best->bw_intra;
    if (now->num_channels < search->min_channels)
        return 0;
    if (now->pattern == PATTERN_NVLS)
        return (now->num_channels > best->num_channels && now->num_channels <= search->num_gpus) ||
               (float)now->num_channels * now->bw_inter >
                   (float)best->num_channels * best->bw_inter;
    if (bw != best_bw)
        return bw > best_bw;
    return now->pattern == best->pattern && now->cross_nic == best->cross_nic &&
           now->num_hops < best->num_hops;
}

static void finish_channel(struct search *search, int32_t *steps_left)
{
    search->now->num_channels++;
    if (is_improvement(search)) {
        channels_copy(search->best, search->now);
        if (search->now->num_channels == search->max_channels)
            *steps_left = SEARCH_PERFECT;
    }
    if (search->now->num_channels < search->max_channels)
        try_channel(search, steps_left);
    search->now->num_channels--;
}

/* ------------------------------------------------------------------ from GPU to GPU */

static void try_gpu(struct search *search, struct topo_node *from, int32_t index, struct rest rest)
{
    const uint64_t bit = (uint64_t)1 << search->now->num_channels;
    struct topo_node *gpu = search_gpu(search, index);
    if (from != NULL && !search_take(search, from, gpu, 1))
        return;
    search->used[index] ^= bit;
    go_on(search, gpu, rest);
    search->used[index] ^= bit;
    if (from != NULL)
        search_give_back(search, from, gpu, 1);
}

static int32_t index_in_last(const struct search *search, int32_t step)
{
    const struct channel *last = &search->now->channel[search->now->num_channels - 1];
    return topo_gpu_of_rank(search->topo, last->ranks[step])->index;
}

static int32_t list_next(struct search *search, const struct topo_node *gpu,
                         const struct rest *rest, int32_t *next)
{
    switch (rest->order) {
    case ORDER_OF_FILE:
        next[0] = rest->step + 1;
        return 1;
    case ORDER_OF_LAST:
        next[0] = index_in_last(search, rest->step + 1);
        return 1;
    default:
        return search_order_gpus(search, gpu,
                                 rest->net_step == -1               ? NET_UNUSED
                                 : rest->net_step == rest->step + 1 ? NET_NEXT
                                                                    : NET_LATER,
                                 next);
    }
}

static void go_to_next(struct search *search, struct topo_node *gpu, struct rest rest)
{
    const ptrdiff_t place =
        ((ptrdiff_t)search->now->num_channels * search->num_gpus + rest.step) * search->num_gpus;
    int32_t *next = search->next + place;
    const int32_t count = list_next(search, gpu, &rest, next);
    rest.step++;
    for (int32_t i = 0; i < count; i++)
        try_gpu(search, gpu, next[i], rest);
}

static void close_ring(struct search *search, struct topo_node *gpu, struct rest rest)
{
    struct topo_node *first_gpu = topo_gpu_of_rank(search->topo, search_channel(search)->ranks[0]);
    if (!search_take(search, gpu, first_gpu, 1))
        return;
    rest.step++;
    rest.closing_step = -1;
    go_on(search, first_gpu, rest);
    search_give_back(search, gpu, first_gpu, 1);
}

/* ------------------------------------------------------------------ to the network */

static int may_leave_by(const struct search *search, int32_t index, int32_t step)
{
    const struct channels *now = search->now;
    const struct channel *channel = search_channel(search);
    const struct topo_node *start_node = topo_at(search->topo, TOPO_NET, channel->nets[0]);
    const struct topo_net *net = &topo_at(search->topo, TOPO_NET, index)->net;
    const struct topo_net *start = &start_node->net;
    if (net->plane != -1 && start->plane != -1 && net->plane != start->plane)
        return 0;
    if (now->pattern == PATTERN_TREE && index != channel->nets[0])
        return 0;
    if (now->pattern == PATTERN_RING && now->cross_nic == 2) {
        /* Every second channel is the one before backwards. */
        if (now->num_channels & 1 && index != channel[-1].nets[0])
            return 0;
    } else if (now->cross_nic == 0) {
        const int has_rails = net->rail != -1 && start->rail != -1;
        if (has_rails ? net->rail != start->rail
                      : net->guid != start->guid || net->port != start->port)
            return 0;
    }
    return now->pattern != PATTERN_BALANCED_TREE || step == 0 || index == channel->nets[1];
}

/* Half of what a balanced tree sends comes from each of its first two GPUs. */
static float times_to_net(const struct search *search)
{
    return search->now->pattern == PATTERN_BALANCED_TREE ? 0.5F : 1;
}

/* With the bandwidth of the whole channel, or half of it. */
static int take_to_net(struct search *search, struct topo_node *gpu, struct topo_node *net)
{
    const float bw_inter = search->now->bw_inter;
    search->now->bw_inter *= times_to_net(search);
    const int is_taken = search_take(search, gpu, net, 1);
    search->now->bw_inter = bw_inter;
    return is_taken;
}

static void give_back_to_net(struct search *search, struct topo_node *gpu, struct topo_node *net)
{
    const float bw_inter = search->now->bw_inter;
    search->now->bw_inter *= times_to_net(search);
    search_give_back(search, gpu, net, 1);
    search->now->bw_inter = bw_inter;
}

static void go_to_net(struct search *search, struct topo_node *gpu, struct rest rest)
{
    const struct net_list *list = &search->net_list_of[gpu->index];
    struct channel *channel = search_channel(search);
    const int goes_again = search->now->pattern == PATTERN_BALANCED_TREE && rest.step == 0;
    const int32_t step = rest.step;
    rest.net_step = goes_again ? 1 : -1;
    for (int32_t i = 0; i < list->count; i++) {
        struct topo_node *net = topo_at(search->topo, TOPO_NET, list->indices[i]);
        if (!may_leave_by(search, net->index, step) || !take_to_net(search, gpu, net))
            continue;
        channel->nets[1] = net->index;
        go_on(search, gpu, rest);
        give_back_to_net(search, gpu, net);
    }
}

/* ------------------------------------------------------------------ NVLS */

enum direction { FROM_SWITCH, TO_SWITCH };

static struct topo_node *end_of(const struct search *search, enum direction direction,
                                enum direction end, int32_t gpu)
{
    return direction == end ? topo_at(search->topo, TOPO_NVS, 0) : search_gpu(search, gpu);
}

static void give_back_of_first(struct search *search, enum direction direction, int32_t head,
                               int32_t count)
{
    for (int32_t i = count - 1; i >= 0; i--)
        search_give_back(search, end_of(search, direction, FROM_SWITCH, i),
                         end_of(search, direction, TO_SWITCH, i), i == head ? 2 : 1);
}

/* Each GPU sends and receives, and the head twice as much: it sums and stores for all. */
static int take_of_all(struct search *search, enum direction direction, int32_t head)
{
    for (int32_t i = 0; i < search->num_gpus; i++)
        if (!search_take(search, end_of(search, direction, FROM_SWITCH, i),
                         end_of(search, direction, TO_SWITCH, i), i == head ? 2 : 1)) {
            give_back_of_first(search, direction, head, i);
            return 0;
        }
    return 1;
}

static void try_head(struct search *search, int32_t head, struct rest rest)
{
    if (!take_of_all(search, FROM_SWITCH, head))
        return;
    if (take_of_all(search, TO_SWITCH, head)) {
        rest.step = search->num_gpus;
        go_on(search, NULL, rest);
        give_back_of_first(search, TO_SWITCH, head, search->num_gpus);
    }
    give_back_of_first(search, FROM_SWITCH, head, search->num_gpus);
}

/* ------------------------------------------------------------------ a step */

static void go_on(struct search *search, struct topo_node *gpu, struct rest rest)
{
    if (*rest.steps_left <= 0)
        return;
    (*rest.steps_left)--;
    if (rest.step == search->num_gpus) {
        finish_channel(search, rest.steps_left);
        return;
    }
    search_channel(search)->ranks[rest.step] = gpu->gpu.rank;
    if (rest.step == rest.net_step) {
        go_to_net(search, gpu, rest);
    } else if (search->now->pattern == PATTERN_NVLS) {
        try_head(search, gpu->index, rest);
    } else if (rest.step < search->num_gpus - 1) {
        go_to_next(search, gpu, rest);
    } else if (rest.step == rest.closing_step) {
        close_ring(search, gpu, rest);
    } else {
        rest.step = search->num_gpus;
        go_on(search, gpu, rest);
    }
}

/* ------------------------------------------------------------------ the start of a channel */

static struct rest rest_of_all(const struct search *search, enum order order, int32_t *steps_left)
{
    const int32_t last = search->num_gpus - 1;
    const int is_ring = search->now->pattern == PATTERN_RING;
    struct rest rest = {order, 0, -1, -1, steps_left};
    if (search->reach == TOPO_SEVERAL_NODES)
        rest.net_step = is_ring ? last : 0;
    else if (is_ring)
        rest.closing_step = last;
    return rest;
}

static void start_in_node(struct search *search, int32_t *steps_left)
{
    const int32_t num_channels = search->now->num_channels;
    const struct rest any = rest_of_all(search, ORDER_ANY, steps_left);
    if (search->now->pattern == PATTERN_NVLS) {
        try_gpu(search, NULL, num_channels, any);
        return;
    }
    if (num_channels == 0)
        try_gpu(search, NULL, 0, rest_of_all(search, ORDER_OF_FILE, steps_left));
    else
        try_gpu(search, NULL, index_in_last(search, 0),
                rest_of_all(search, ORDER_OF_LAST, steps_left));
    if (num_channels > 0 && search->now->same_channels)
        return;
    for (int32_t i = 0; i < search->num_gpus; i++)
        try_gpu(search, NULL, i, any);
}

static int is_head(const struct search *search, int32_t gpu)
{
    const int32_t rank = search_gpu(search, gpu)->gpu.rank;
    for (int32_t i = 0; i < search->now->num_channels; i++)
        if (search->now->channel[i].ranks[0] == rank)
            return 1;
    return 0;
}

/* Whether there was a head to try. */
static int start_head(struct search *search, struct topo_node *net, int32_t *steps_left)
{
    const int32_t gpu = net->net.local_gpu;
    if (search->now->num_channels >= search->net_list.count || gpu == -1 || is_head(search, gpu))
        return 0;
    try_gpu(search, net, gpu, rest_of_all(search, ORDER_ANY, steps_left));
    return 1;
}

static void start_at_net(struct search *search, struct topo_node *net, int32_t *steps_left)
{
    const int32_t num_channels = search->now->num_channels;
    const struct rest any = rest_of_all(search, ORDER_ANY, steps_left);
    struct topo_locals gpus;
    if (num_channels > 0 && search->now->same_channels) {
        try_gpu(search, net, index_in_last(search, 0),
                rest_of_all(search, ORDER_OF_LAST, steps_left));
        return;
    }
    if (num_channels == 0 && topo_count(search->topo, TOPO_NVS) == 0) {
        int32_t steps = SEARCH_STEPS_IN_ORDER;
        try_gpu(search, net, 0, rest_of_all(search, ORDER_OF_FILE, &steps));
        if (steps == SEARCH_PERFECT)
            *steps_left = SEARCH_PERFECT;
    }
    if (net->net.local_gpu != -1)
        try_gpu(search, net, net->net.local_gpu, any);
    topo_find_locals(search->topo, net, TOPO_GPU, &gpus);
    for (int32_t i = 0; i < gpus.count; i++)
        if (gpus.indices[i] != net->net.local_gpu)
            try_gpu(search, net, gpus.indices[i], any);
}

/* The rate that a port has left, of all that are the same port of the same device. */
static void add_to_port(const struct search *search, const struct topo_net *port, float bw)
{
    for (int32_t i = 0; i < topo_count(search->topo, TOPO_NET); i++) {
        struct topo_net *net = &topo_at(search->topo, TOPO_NET, i)->net;
        if (net->guid == port->guid && net->port == port->port)
            net->bw += bw;
    }
}

static void start_from_network(struct search *search, int32_t *steps_left)
{
    const struct channels *now = search->now;
    const float bw = (float)(int32_t)now->bw_inter; /* of a port: in whole GB/s */
    const struct net_list *list = &search->net_list;
    struct channel *channel = search_channel(search);
    for (int32_t i = 0; i < list->count; i++) {
        struct topo_node *net =
            topo_at(search->topo, TOPO_NET, list->indices[(now->num_channels + i) % list->count]);
        int is_tried = 0;
        if (net->net.bw < bw)
            continue;
        if (now->pattern == PATTERN_RING && now->cross_nic == 2 && now->num_channels & 1 &&
            net->index != channel[-1].nets[1])
            continue;
        channel->nets[0] = net->index;
        search->now->latency_inter = net->net.latency;
        add_to_port(search, &net->net, -bw);
        if (now->pattern == PATTERN_NVLS)
            is_tried = start_head(search, net, steps_left);
        else
            start_at_net(search, net, steps_left);
        add_to_port(search, &net->net, bw);
        if (is_tried)
            break;
    }
}

static void try_channel(struct search *search, int32_t *steps_left)
{
    if (search->reach == TOPO_SEVERAL_NODES)
        start_from_network(search, steps_left);
    else
        start_in_node(search, steps_left);
}

void search_try(struct search *search)
{
    search->now->num_channels = 0;
    search_list_nets(search, search->now->type_inter);
    try_channel(search, &search->steps_left);
}
