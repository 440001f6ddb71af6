/* SPDX-License-Identifier: MIT */
#include "topo/paths.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

static weft_result lacks_memory(void)
{
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for paths of a topology");
}

/* ------------------------------------------------------------------ breadth first */

/* Nodes whose path has become better. */
struct front {
    struct topo_node *nodes[TOPO_NUM_KINDS * TOPO_MAX_NODES];
    int32_t count;
};

/* Room for the paths of a node to all of a kind; none is known. */
static weft_result begin_paths(const struct topo *topo, struct topo_node *node, enum topo_kind kind)
{
    const int32_t count = topo_count(topo, kind);
    if (node->paths[kind] != NULL)
        return WEFT_OK;
    node->paths[kind] = calloc((size_t)count + 1, sizeof *node->paths[kind]);
    if (node->paths[kind] == NULL)
        return lacks_memory();
    for (int32_t i = 0; i < count; i++)
        node->paths[kind][i].type = TOPO_DIS;
    return WEFT_OK;
}

/* The type of a path that goes from `to` over `node` on to the base. */
static enum topo_type type_of_step(const struct topo_node *node, const struct topo_link *link,
                                   const struct topo_path *rest)
{
    const struct topo_node *to = link->to;
    enum topo_type type = link->type == TOPO_REMOTE ? TOPO_LOC : link->type;
    if (node->kind == TOPO_PCI && to->kind == TOPO_PCI)
        type = TOPO_PXB;
    if (link->type == TOPO_PIX && (node->kind == TOPO_CPU || to->kind == TOPO_CPU))
        type = TOPO_PHB;
    if (node->kind == TOPO_GPU && rest->type == TOPO_NVL && type == TOPO_NVL &&
        rest->num_links == 1)
        type = TOPO_NVB;
    return type > rest->type ? type : rest->type;
}

/* A GPU passes on only from NVLink to NVLink, and only one GPU does. */
static int may_pass(const struct topo_node *node, const struct topo_link *link,
                    const struct topo_path *rest)
{
    return node->kind != TOPO_GPU || rest->num_links == 0 ||
           (link->type == TOPO_NVL && link->to->kind == TOPO_GPU && rest->num_links <= 1);
}

/* Replaces `path` by `first`, then `rest`. */
static weft_result set_path(struct topo_path *path, struct topo_link *first,
                            const struct topo_path *rest)
{
    const size_t num_rest = (size_t)rest->num_links;
    struct topo_link **links = malloc((num_rest + 1) * sizeof(struct topo_link *));
    if (links == NULL)
        return lacks_memory();
    links[0] = first;
    if (num_rest > 0)
        memcpy(links + 1, rest->links, num_rest * sizeof(struct topo_link *));
    free(path->links);
    path->links = links;
    path->num_links = rest->num_links + 1;
    return WEFT_OK;
}

static int is_better(const struct topo_path *path, enum topo_type type, float bw, int32_t num_links)
{
    if (type != path->type)
        return type < path->type;
    return bw != path->bw ? bw > path->bw : num_links < path->num_links;
}

static void push(struct front *front, struct topo_node *node)
{
    for (int32_t i = 0; i < front->count; i++)
        if (front->nodes[i] == node)
            return;
    front->nodes[front->count++] = node;
}

/* Offers a neighbour of `node` the path to the base by way of it. */
static weft_result offer(const struct topo *topo, const struct topo_node *base,
                         struct topo_node *node, struct topo_link *link, struct front *next)
{
    WEFT__TRY(begin_paths(topo, link->to, base->kind));
    const struct topo_path *rest = topo_path(node, base);
    struct topo_path *path = topo_path(link->to, base);
    const float bw = rest->bw < link->bw ? rest->bw : link->bw;
    if (!may_pass(node, link, rest))
        return WEFT_OK;
    const enum topo_type type = type_of_step(node, link, rest);
    if (!is_better(path, type, bw, rest->num_links + 1))
        return WEFT_OK;
    struct topo_link *back = topo_reverse_of(node, link);
    if (back == NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "%s %#" PRIx64 " has a link of type %s to %s %#" PRIx64
                           ", which has none back",
                           topo_kind_name(node->kind), node->id, topo_type_name(link->type),
                           topo_kind_name(link->to->kind), link->to->id);
    WEFT__TRY(set_path(path, back, rest));
    path->bw = bw;
    path->type = type;
    push(next, link->to);
    return WEFT_OK;
}

static weft_result spread(const struct topo *topo, const struct topo_node *base,
                          struct front *front, struct front *next)
{
    for (; front->count > 0; *front = *next) {
        next->count = 0;
        for (int32_t i = 0; i < front->count; i++)
            for (int32_t l = 0; l < front->nodes[i]->num_links; l++)
                WEFT__TRY(offer(topo, base, front->nodes[i], &front->nodes[i]->links[l], next));
    }
    return WEFT_OK;
}

/* The best path to `base` from everywhere. */
static weft_result find_paths_to(const struct topo *topo, struct topo_node *base,
                                 struct front fronts[2])
{
    WEFT__TRY(begin_paths(topo, base, base->kind));
    struct topo_path *own = topo_path(base, base);
    own->num_links = 0;
    own->bw = TOPO_LOCAL_BW;
    own->type = TOPO_LOC;
    fronts[0].count = 0;
    push(&fronts[0], base);
    return spread(topo, base, &fronts[0], &fronts[1]);
}

static weft_result find_all_paths(struct topo *topo)
{
    static const enum topo_kind kinds[] = {TOPO_CPU, TOPO_GPU, TOPO_NET, TOPO_NVS};
    struct front *fronts = malloc(2 * sizeof *fronts);
    weft_result result = fronts != NULL ? WEFT_OK : lacks_memory();
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int32_t i = 0; i < topo_count(topo, kinds[k]) && result == WEFT_OK; i++)
            result = find_paths_to(topo, topo_at(topo, kinds[k], i), fronts);
    free(fronts);
    return result;
}

/* Rows for what no path leads to. */
static weft_result complete_rows(struct topo *topo)
{
    for (int from = 0; from < TOPO_NUM_KINDS; from++)
        for (int32_t i = 0; i < topo_count(topo, (enum topo_kind)from); i++)
            for (int to = 0; to < TOPO_NUM_KINDS; to++)
                WEFT__TRY(
                    begin_paths(topo, topo_at(topo, (enum topo_kind)from, i), (enum topo_kind)to));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ detours */

/* The path from `from` to `to` goes by way of `over`. */
static weft_result detour(struct topo_node *from, struct topo_node *over,
                          const struct topo_node *to)
{
    const struct topo_path *first = topo_path(from, over);
    const struct topo_path *second = topo_path(over, to);
    struct topo_path *path = topo_path(from, to);
    const size_t num_first = (size_t)first->num_links, num_second = (size_t)second->num_links;
    struct topo_link **links = malloc((num_first + num_second + 1) * sizeof(struct topo_link *));
    if (links == NULL)
        return lacks_memory();
    for (size_t i = 0; i < num_first; i++)
        links[i] = first->links[i];
    for (size_t i = 0; i < num_second; i++)
        links[num_first + i] = second->links[i];
    free(path->links);
    const enum topo_type far = first->type > second->type ? first->type : second->type;
    const enum topo_type near = first->type > second->type ? second->type : first->type;
    *path = (struct topo_path){.links = links,
                               .num_links = first->num_links + second->num_links,
                               .bw = first->bw < second->bw ? first->bw : second->bw,
                               .type = far == TOPO_PHB && near == TOPO_C2C ? TOPO_P2C : far};
    if (over->kind == TOPO_GPU)
        path->type = TOPO_PXN;
    return WEFT_OK;
}

static int32_t auto_p2p_level(const struct topo *topo)
{
    const struct topo_cpu *cpu = &topo_at(topo, TOPO_CPU, 0)->cpu;
    return cpu->arch == TOPO_ARCH_X86 && cpu->vendor == TOPO_VENDOR_AMD &&
                   topo_count(topo, TOPO_GPU) <= 2
               ? TOPO_SYS
               : TOPO_PXB;
}

/* GPUs that do not reach each other's memory go through that of the second one's processor. */
static weft_result adjust_pairs(struct topo *topo, int32_t p2p_level)
{
    const int32_t count = topo_count(topo, TOPO_GPU);
    for (int32_t i = 0; i < count * count; i++) {
        struct topo_node *to = topo_at(topo, TOPO_GPU, i / count);
        struct topo_node *from = topo_at(topo, TOPO_GPU, i % count);
        struct topo_node *cpu = topo_local_cpu(topo, to);
        if ((int32_t)topo_path(from, to)->type > p2p_level && cpu != NULL)
            WEFT__TRY(detour(from, cpu, to));
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ GPUs and the network */

/* A GPU that has C2C to the processor of its port uses it. */
static void adjust_c2c(struct topo *topo, struct topo_node *gpu)
{
    struct topo_locals nets;
    const struct topo_node *cpu = topo_local_cpu(topo, gpu);
    topo_find_locals(topo, gpu, TOPO_NET, &nets);
    for (int32_t i = 0; cpu != NULL && i < nets.count; i++) {
        struct topo_node *net = topo_at(topo, TOPO_NET, nets.indices[i]);
        struct topo_path *there = topo_path(gpu, net);
        struct topo_path *back = topo_path(net, gpu);
        const enum topo_type a = topo_path(gpu, cpu)->type;
        const enum topo_type b = topo_path(net, cpu)->type;
        if (!(a == TOPO_C2C && b == TOPO_PHB) && !(a == TOPO_PHB && b == TOPO_C2C))
            continue;
        there->type = there->type < TOPO_P2C ? there->type : TOPO_P2C;
        back->type = back->type < TOPO_P2C ? back->type : TOPO_P2C;
    }
}

static int has_nvlink(const struct topo *topo, const struct topo_node *gpu)
{
    const int32_t count = topo_count(topo, TOPO_GPU);
    for (int32_t i = 0; i < count; i++)
        if (i != gpu->index && gpu->paths[TOPO_GPU][i].type == TOPO_NVL)
            return 1;
    return count == 1;
}

/* The first GPU on the way of a path of type PXN. */
static struct topo_node *proxy_of(const struct topo_path *path)
{
    for (int32_t i = 0; i < path->num_links; i++)
        if (path->links[i]->to->kind == TOPO_GPU)
            return path->links[i]->to;
    return NULL;
}

enum use { RECEIVES, SENDS };

/* Whether a port reads and writes memory of the GPU itself. */
static int has_gdr(const struct topo *topo, struct topo_node *gpu, const struct topo_node *net,
                   enum use use)
{
    const struct topo_path *path = topo_path(gpu, net);
    if (!net->net.has_gdr || !gpu->gpu.has_gdr)
        return 0;
    if (use == SENDS && gpu->gpu.sm < 80 && !has_nvlink(topo, gpu))
        return 0;
    if (path->type == TOPO_PXN) {
        struct topo_node *proxy = proxy_of(path);
        path = proxy != NULL ? topo_path(proxy, net) : path;
    }
    return path->type <= TOPO_P2C;
}

/* By NVLink to the GPU that is near the port, if that is better. */
static weft_result adjust_by_proxy(const struct topo *topo, struct topo_node *gpu,
                                   const struct topo_node *net)
{
    const int32_t local = topo_local_gpu(topo, net);
    if (local == gpu->index || local == -1)
        return WEFT_OK;
    struct topo_node *proxy = topo_at(topo, TOPO_GPU, local);
    const struct topo_path *near = topo_path(proxy, net);
    const struct topo_path *own = topo_path(gpu, net);
    if (near->type > TOPO_P2C || !has_gdr(topo, proxy, net, SENDS) ||
        topo_path(proxy, gpu)->type > TOPO_NVL || proxy->host != gpu->host ||
        (near->bw <= own->bw && own->type <= TOPO_PXN))
        return WEFT_OK;
    return detour(gpu, proxy, net);
}

static weft_result adjust_net(struct topo *topo, struct topo_node *gpu, struct topo_node *net)
{
    WEFT__TRY(adjust_by_proxy(topo, gpu, net));
    struct topo_node *cpu = topo_local_cpu(topo, gpu);
    if (topo_path(gpu, net)->type >= TOPO_PHB || cpu == NULL || has_gdr(topo, gpu, net, RECEIVES))
        return WEFT_OK;
    WEFT__TRY(detour(net, cpu, gpu));
    return detour(gpu, cpu, net);
}

static weft_result adjust_nets(struct topo *topo)
{
    const int32_t num_gpus = topo_count(topo, TOPO_GPU);
    for (int32_t g = 0; g < num_gpus; g++)
        adjust_c2c(topo, topo_at(topo, TOPO_GPU, g));
    for (int32_t n = 0; n < topo_count(topo, TOPO_NET); n++)
        for (int32_t g = 0; g < num_gpus; g++)
            WEFT__TRY(adjust_net(topo, topo_at(topo, TOPO_GPU, g), topo_at(topo, TOPO_NET, n)));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ the whole */

weft_result topo_compute_paths(struct topo *topo, int32_t p2p_level)
{
    topo_free_paths(topo);
    WEFT__TRY(find_all_paths(topo));
    WEFT__TRY(complete_rows(topo));
    WEFT__TRY(adjust_pairs(topo, p2p_level == TOPO_P2P_AUTO ? auto_p2p_level(topo) : p2p_level));
    WEFT__TRY(adjust_nets(topo));
    return topo_assign_nets(topo);
}
