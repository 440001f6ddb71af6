/* SPDX-License-Identifier: MIT */
/* Which ports are a GPU's, and which GPU is a port's. */
#include <stdlib.h>

#include "comm/host/error.h"
#include "topo/paths.h"

enum { MAX_TURNS = 64 }; /* channels that NCCL has at most */

void topo_find_locals(const struct topo *topo, const struct topo_node *node, enum topo_kind kind,
                      struct topo_locals *locals)
{
    const struct topo_path *paths = node->paths[kind];
    enum topo_type nearest = TOPO_DIS;
    float most = 0;
    locals->count = 0;
    for (int32_t i = 0; paths != NULL && i < topo_count(topo, kind); i++) {
        if (paths[i].bw > most || (paths[i].bw == most && paths[i].type < nearest)) {
            most = paths[i].bw;
            nearest = paths[i].type;
            locals->count = 0;
        }
        if (paths[i].bw == most && paths[i].type == nearest && nearest < TOPO_DIS)
            locals->indices[locals->count++] = i;
    }
}

struct topo_node *topo_local_cpu(const struct topo *topo, const struct topo_node *node)
{
    struct topo_locals cpus;
    const struct topo_path *paths = node->paths[TOPO_CPU];
    topo_find_locals(topo, node, TOPO_CPU, &cpus);
    if (cpus.count == 0)
        return NULL;
    int32_t nearest = cpus.indices[0];
    for (int32_t i = 1; i < cpus.count; i++)
        if (paths[cpus.indices[i]].num_links < paths[nearest].num_links)
            nearest = cpus.indices[i];
    return topo_at(topo, TOPO_CPU, nearest);
}

/* ------------------------------------------------------------------ whose turn it is */

/* Which of its local ports a GPU's channels take: several GPUs near the same ports begin at
 * different ones. */
struct turns {
    struct topo_locals nets;
    int32_t first, num_own;
};

static int32_t mirror_bits(int32_t value, int32_t power)
{
    int32_t mirror = 0;
    for (int32_t bit = 1, opposite = power >> 1; bit < power; bit <<= 1, opposite >>= 1)
        if (value & bit)
            mirror |= opposite;
    return mirror;
}

static void find_turns(const struct topo *topo, const struct topo_node *gpu, struct turns *turns)
{
    struct topo_locals sharers;
    topo_find_locals(topo, gpu, TOPO_NET, &turns->nets);
    const int32_t num_nets = turns->nets.count;
    if (num_nets == 0)
        return;
    topo_find_locals(topo, topo_at(topo, TOPO_NET, turns->nets.indices[0]), TOPO_GPU, &sharers);
    if (sharers.count == 0)
        turns->nets.count = 0;
    if (turns->nets.count == 0)
        return;
    turns->num_own = (num_nets + sharers.count - 1) / sharers.count;
    turns->first = gpu->gpu.dev % sharers.count;
    if ((num_nets & (num_nets - 1)) == 0)
        turns->first = mirror_bits(turns->first, num_nets);
}

static int32_t net_of_channel(const struct turns *turns, int32_t channel)
{
    return turns->nets.indices[(turns->first + channel % turns->num_own) % turns->nets.count];
}

/* The first of its channels that takes the port; MAX_TURNS: none does. */
static int32_t turn_of(const struct topo *topo, const struct topo_node *gpu,
                       const struct topo_node *net)
{
    struct turns turns;
    int32_t channel = 0;
    find_turns(topo, gpu, &turns);
    if (turns.nets.count == 0)
        return MAX_TURNS;
    while (channel < turns.num_own && channel < MAX_TURNS &&
           net_of_channel(&turns, channel) != net->index)
        channel++;
    return channel < turns.num_own ? channel : MAX_TURNS;
}

int32_t topo_local_gpu(const struct topo *topo, const struct topo_node *net)
{
    struct topo_locals gpus;
    int32_t first = -1, first_turn = MAX_TURNS;
    topo_find_locals(topo, net, TOPO_GPU, &gpus);
    for (int32_t i = 0; i < gpus.count; i++) {
        const struct topo_node *gpu = topo_at(topo, TOPO_GPU, gpus.indices[i]);
        const int32_t turn = turn_of(topo, gpu, net);
        if (turn < first_turn) {
            first_turn = turn;
            first = gpus.indices[i];
        }
    }
    return first;
}

static weft_result assign_nets_of(const struct topo *topo, struct topo_node *gpu)
{
    struct turns turns;
    find_turns(topo, gpu, &turns);
    free(gpu->gpu.nets);
    gpu->gpu.num_nets = 0;
    gpu->gpu.nets = malloc((size_t)(turns.nets.count + 1) * sizeof(int32_t));
    if (gpu->gpu.nets == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for ports of GPUs");
    for (int32_t c = 0; turns.nets.count > 0 && c < turns.num_own && c < MAX_TURNS; c++)
        gpu->gpu.nets[gpu->gpu.num_nets++] = net_of_channel(&turns, c);
    return WEFT_OK;
}

weft_result topo_assign_nets(struct topo *topo)
{
    for (int32_t i = 0; i < topo_count(topo, TOPO_GPU); i++)
        WEFT__TRY(assign_nets_of(topo, topo_at(topo, TOPO_GPU, i)));
    for (int32_t i = 0; i < topo_count(topo, TOPO_NET); i++) {
        struct topo_node *net = topo_at(topo, TOPO_NET, i);
        net->net.local_gpu = topo_local_gpu(topo, net);
    }
    return WEFT_OK;
}
