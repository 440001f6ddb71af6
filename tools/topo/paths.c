/* SPDX-License-Identifier: MIT */
#include "topo/paths.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"

static weft_result lacks_memory(void)
{
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for paths of a topology");
}

/* ------------------------------------------------------------------ breadth first */

/* Nodes whose path has become better. */
struct front {
    struct weft__topo_node *nodes[WEFT__TOPO_NUM_KINDS * WEFT__TOPO_MAX_NODES];
    int32_t count;
};

/* Room for the paths of a node to all of a kind; none is known. */
static weft_result begin_paths(const struct weft__topo *topo, struct weft__topo_node *node,
                               enum weft__topo_kind kind)
{
    const int32_t count = weft__topo_count(topo, kind);
    if (node->paths[kind] != NULL)
        return WEFT_OK;
    node->paths[kind] = calloc((size_t)count + 1, sizeof *node->paths[kind]);
    if (node->paths[kind] == NULL)
        return lacks_memory();
    for (int32_t i = 0; i < count; i++)
        node->paths[kind][i].type = WEFT__TOPO_DIS;
    return WEFT_OK;
}

/* What a path is that goes from `to` over `node` on to the base. */
static enum weft__topo_type type_of_step(const struct weft__topo_node *node,
                                         const struct weft__topo_link *link,
                                         const struct weft__topo_path *rest)
{
    const struct weft__topo_node *to = link->to;
    enum weft__topo_type type = link->type == WEFT__TOPO_REMOTE ? WEFT__TOPO_LOC : link->type;
    if (node->kind == WEFT__TOPO_PCI && to->kind == WEFT__TOPO_PCI)
        type = WEFT__TOPO_PXB;
    if (link->type == WEFT__TOPO_PIX &&
        (node->kind == WEFT__TOPO_CPU || to->kind == WEFT__TOPO_CPU))
        type = WEFT__TOPO_PHB;
    if (node->kind == WEFT__TOPO_GPU && rest->type == WEFT__TOPO_NVL && type == WEFT__TOPO_NVL &&
        rest->num_links == 1)
        type = WEFT__TOPO_NVB;
    return type > rest->type ? type : rest->type;
}

/* A GPU passes on only from NVLink to NVLink, and only one GPU does. */
static int may_pass(const struct weft__topo_node *node, const struct weft__topo_link *link,
                    const struct weft__topo_path *rest)
{
    return node->kind != WEFT__TOPO_GPU || rest->num_links == 0 ||
           (link->type == WEFT__TOPO_NVL && link->to->kind == WEFT__TOPO_GPU &&
            rest->num_links <= 1);
}

/* Replaces `path` by `first`, then `rest`. */
static weft_result set_path(struct weft__topo_path *path, struct weft__topo_link *first,
                            const struct weft__topo_path *rest)
{
    const size_t num_rest = (size_t)rest->num_links;
    struct weft__topo_link **links = malloc((num_rest + 1) * sizeof(struct weft__topo_link *));
    if (links == NULL)
        return lacks_memory();
    links[0] = first;
    if (num_rest > 0)
        memcpy(links + 1, rest->links, num_rest * sizeof(struct weft__topo_link *));
    free(path->links);
    path->links = links;
    path->num_links = rest->num_links + 1;
    return WEFT_OK;
}

static int is_better(const struct weft__topo_path *path, enum weft__topo_type type, float bw,
                     int32_t num_links)
{
    if (type != path->type)
        return type < path->type;
    return bw != path->bw ? bw > path->bw : num_links < path->num_links;
}

static void push(struct front *front, struct weft__topo_node *node)
{
    for (int32_t i = 0; i < front->count; i++)
        if (front->nodes[i] == node)
            return;
    front->nodes[front->count++] = node;
}

/* Offers a neighbour of `node` the path to the base by way of it. */
static weft_result offer(const struct weft__topo *topo, const struct weft__topo_node *base,
                         struct weft__topo_node *node, struct weft__topo_link *link,
                         struct front *next)
{
    WEFT__TRY(begin_paths(topo, link->to, base->kind));
    const struct weft__topo_path *rest = weft__topo_path(node, base);
    struct weft__topo_path *path = weft__topo_path(link->to, base);
    const float bw = rest->bw < link->bw ? rest->bw : link->bw;
    if (!may_pass(node, link, rest))
        return WEFT_OK;
    const enum weft__topo_type type = type_of_step(node, link, rest);
    if (!is_better(path, type, bw, rest->num_links + 1))
        return WEFT_OK;
    struct weft__topo_link *back = weft__topo_reverse_of(node, link);
    if (back == NULL)
        return weft__error(
            WEFT_ERROR_INVALID_ARGUMENT,
            "%s %#" PRIx64 " has a link of type %s to %s %#" PRIx64 ", which has none back",
            weft__topo_kind_name(node->kind), node->id, weft__topo_type_name(link->type),
            weft__topo_kind_name(link->to->kind), link->to->id);
    WEFT__TRY(set_path(path, back, rest));
    path->bw = bw;
    path->type = type;
    push(next, link->to);
    return WEFT_OK;
}

static weft_result spread(const struct weft__topo *topo, const struct weft__topo_node *base,
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
static weft_result find_paths_to(const struct weft__topo *topo, struct weft__topo_node *base,
                                 struct front fronts[2])
{
    WEFT__TRY(begin_paths(topo, base, base->kind));
    struct weft__topo_path *own = weft__topo_path(base, base);
    own->num_links = 0;
    own->bw = WEFT__TOPO_LOCAL_BW;
    own->type = WEFT__TOPO_LOC;
    fronts[0].count = 0;
    push(&fronts[0], base);
    return spread(topo, base, &fronts[0], &fronts[1]);
}

static weft_result find_all_paths(struct weft__topo *topo)
{
    static const enum weft__topo_kind kinds[] = {WEFT__TOPO_CPU, WEFT__TOPO_GPU, WEFT__TOPO_NET,
                                                 WEFT__TOPO_NVS};
    struct front *fronts = malloc(2 * sizeof *fronts);
    weft_result result = fronts != NULL ? WEFT_OK : lacks_memory();
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int32_t i = 0; i < weft__topo_count(topo, kinds[k]) && result == WEFT_OK; i++)
            result = find_paths_to(topo, weft__topo_at(topo, kinds[k], i), fronts);
    free(fronts);
    return result;
}

/* Rows for what no path leads to. */
static weft_result complete_rows(struct weft__topo *topo)
{
    for (int from = 0; from < WEFT__TOPO_NUM_KINDS; from++)
        for (int32_t i = 0; i < weft__topo_count(topo, (enum weft__topo_kind)from); i++)
            for (int to = 0; to < WEFT__TOPO_NUM_KINDS; to++)
                WEFT__TRY(begin_paths(topo, weft__topo_at(topo, (enum weft__topo_kind)from, i),
                                      (enum weft__topo_kind)to));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ detours */

/* The path from `from` to `to` goes by way of `over`. */
static weft_result detour(struct weft__topo_node *from, struct weft__topo_node *over,
                          const struct weft__topo_node *to)
{
    const struct weft__topo_path *first = weft__topo_path(from, over);
    const struct weft__topo_path *second = weft__topo_path(over, to);
    struct weft__topo_path *path = weft__topo_path(from, to);
    const size_t num_first = (size_t)first->num_links, num_second = (size_t)second->num_links;
    struct weft__topo_link **links =
        malloc((num_first + num_second + 1) * sizeof(struct weft__topo_link *));
    if (links == NULL)
        return lacks_memory();
    for (size_t i = 0; i < num_first; i++)
        links[i] = first->links[i];
    for (size_t i = 0; i < num_second; i++)
        links[num_first + i] = second->links[i];
    free(path->links);
    const enum weft__topo_type far = first->type > second->type ? first->type : second->type;
    const enum weft__topo_type near = first->type > second->type ? second->type : first->type;
    *path = (struct weft__topo_path){
        .links = links,
        .num_links = first->num_links + second->num_links,
        .bw = first->bw < second->bw ? first->bw : second->bw,
        .type = far == WEFT__TOPO_PHB && near == WEFT__TOPO_C2C ? WEFT__TOPO_P2C : far};
    if (over->kind == WEFT__TOPO_GPU)
        path->type = WEFT__TOPO_PXN;
    return WEFT_OK;
}

static int says_no(const struct weft__topo_access *access, const uint8_t *pairs, int32_t a,
                   int32_t b)
{
    return pairs != NULL && a < access->num_ranks && b < access->num_ranks && a != b &&
           pairs[(size_t)a * (size_t)access->num_ranks + (size_t)b];
}

static int32_t p2p_level_of(const struct weft__topo *topo, const struct weft__topo_access *access)
{
    const struct weft__topo_cpu *cpu = &weft__topo_at(topo, WEFT__TOPO_CPU, 0)->cpu;
    if (access->p2p_level != WEFT__TOPO_P2P_AUTO)
        return access->p2p_level;
    return cpu->arch == WEFT__TOPO_ARCH_X86 && cpu->vendor == WEFT__TOPO_VENDOR_AMD &&
                   weft__topo_count(topo, WEFT__TOPO_GPU) <= 2
               ? WEFT__TOPO_SYS
               : WEFT__TOPO_PXB;
}

static weft_result adjust_pair(struct weft__topo *topo, const struct weft__topo_access *access,
                               struct weft__topo_node *from, struct weft__topo_node *to)
{
    const int32_t a = from->gpu.rank, b = to->gpu.rank;
    struct weft__topo_path *path = weft__topo_path(from, to);
    const int has_p2p = (int32_t)path->type <= p2p_level_of(topo, access) &&
                        !says_no(access, access->refused, a, b);
    struct weft__topo_node *cpu = weft__topo_local_cpu(topo, to);
    if (!has_p2p && cpu != NULL)
        WEFT__TRY(detour(from, cpu, to));
    if (!has_p2p && says_no(access, access->unshared, a, b))
        path->type = WEFT__TOPO_REMOTE;
    return WEFT_OK;
}

/* GPUs that do not reach each other's memory go through that of the second one's processor, or the network. */
static weft_result adjust_pairs(struct weft__topo *topo, const struct weft__topo_access *access)
{
    const int32_t count = weft__topo_count(topo, WEFT__TOPO_GPU);
    for (int32_t to = 0; to < count; to++)
        for (int32_t from = 0; from < count; from++)
            WEFT__TRY(adjust_pair(topo, access, weft__topo_at(topo, WEFT__TOPO_GPU, from),
                                  weft__topo_at(topo, WEFT__TOPO_GPU, to)));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ GPUs and the network */

/* A GPU that has C2C to the processor of its port uses it. */
static void adjust_c2c(struct weft__topo *topo, struct weft__topo_node *gpu)
{
    struct weft__topo_locals nets;
    const struct weft__topo_node *cpu = weft__topo_local_cpu(topo, gpu);
    weft__topo_find_locals(topo, gpu, WEFT__TOPO_NET, &nets);
    for (int32_t i = 0; cpu != NULL && i < nets.count; i++) {
        struct weft__topo_node *net = weft__topo_at(topo, WEFT__TOPO_NET, nets.indices[i]);
        struct weft__topo_path *there = weft__topo_path(gpu, net);
        struct weft__topo_path *back = weft__topo_path(net, gpu);
        const enum weft__topo_type a = weft__topo_path(gpu, cpu)->type;
        const enum weft__topo_type b = weft__topo_path(net, cpu)->type;
        if (!(a == WEFT__TOPO_C2C && b == WEFT__TOPO_PHB) &&
            !(a == WEFT__TOPO_PHB && b == WEFT__TOPO_C2C))
            continue;
        there->type = there->type < WEFT__TOPO_P2C ? there->type : WEFT__TOPO_P2C;
        back->type = back->type < WEFT__TOPO_P2C ? back->type : WEFT__TOPO_P2C;
    }
}

static int has_nvlink(const struct weft__topo *topo, const struct weft__topo_node *gpu)
{
    const int32_t count = weft__topo_count(topo, WEFT__TOPO_GPU);
    for (int32_t i = 0; i < count; i++)
        if (i != gpu->index && gpu->paths[WEFT__TOPO_GPU][i].type == WEFT__TOPO_NVL)
            return 1;
    return count == 1;
}

/* The first GPU on the way of a path of type PXN. */
static struct weft__topo_node *proxy_of(const struct weft__topo_path *path)
{
    for (int32_t i = 0; i < path->num_links; i++)
        if (path->links[i]->to->kind == WEFT__TOPO_GPU)
            return path->links[i]->to;
    return NULL;
}

enum use { RECEIVES, SENDS };

/* Whether a port reads and writes memory of the GPU itself. */
static int has_gdr(const struct weft__topo *topo, struct weft__topo_node *gpu,
                   const struct weft__topo_node *net, enum use use)
{
    const struct weft__topo_path *path = weft__topo_path(gpu, net);
    if (!net->net.has_gdr || !gpu->gpu.has_gdr)
        return 0;
    if (use == SENDS && gpu->gpu.sm < 80 && !has_nvlink(topo, gpu))
        return 0;
    if (path->type == WEFT__TOPO_PXN) {
        struct weft__topo_node *proxy = proxy_of(path);
        path = proxy != NULL ? weft__topo_path(proxy, net) : path;
    }
    return path->type <= WEFT__TOPO_P2C;
}

/* By NVLink to the GPU that is near the port, if that is better. */
static weft_result adjust_by_proxy(const struct weft__topo *topo, struct weft__topo_node *gpu,
                                   const struct weft__topo_node *net)
{
    const int32_t local = weft__topo_local_gpu(topo, net);
    if (local == gpu->index || local == -1)
        return WEFT_OK;
    struct weft__topo_node *proxy = weft__topo_at(topo, WEFT__TOPO_GPU, local);
    const struct weft__topo_path *near = weft__topo_path(proxy, net);
    const struct weft__topo_path *own = weft__topo_path(gpu, net);
    if (near->type > WEFT__TOPO_P2C || !has_gdr(topo, proxy, net, SENDS) ||
        weft__topo_path(proxy, gpu)->type > WEFT__TOPO_NVL || proxy->host != gpu->host ||
        (near->bw <= own->bw && own->type <= WEFT__TOPO_PXN))
        return WEFT_OK;
    return detour(gpu, proxy, net);
}

static weft_result adjust_net(struct weft__topo *topo, struct weft__topo_node *gpu,
                              struct weft__topo_node *net)
{
    WEFT__TRY(adjust_by_proxy(topo, gpu, net));
    struct weft__topo_node *cpu = weft__topo_local_cpu(topo, gpu);
    if (weft__topo_path(gpu, net)->type >= WEFT__TOPO_PHB || cpu == NULL ||
        has_gdr(topo, gpu, net, RECEIVES))
        return WEFT_OK;
    WEFT__TRY(detour(net, cpu, gpu));
    return detour(gpu, cpu, net);
}

static weft_result adjust_nets(struct weft__topo *topo)
{
    const int32_t num_gpus = weft__topo_count(topo, WEFT__TOPO_GPU);
    for (int32_t g = 0; g < num_gpus; g++)
        adjust_c2c(topo, weft__topo_at(topo, WEFT__TOPO_GPU, g));
    for (int32_t n = 0; n < weft__topo_count(topo, WEFT__TOPO_NET); n++)
        for (int32_t g = 0; g < num_gpus; g++)
            WEFT__TRY(adjust_net(topo, weft__topo_at(topo, WEFT__TOPO_GPU, g),
                                 weft__topo_at(topo, WEFT__TOPO_NET, n)));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ the whole */

weft_result weft__topo_compute_paths(struct weft__topo *topo,
                                     const struct weft__topo_access *access)
{
    static const struct weft__topo_access nothing = {.p2p_level = WEFT__TOPO_P2P_AUTO};
    weft__topo_free_paths(topo);
    WEFT__TRY(find_all_paths(topo));
    WEFT__TRY(complete_rows(topo));
    WEFT__TRY(adjust_pairs(topo, access != NULL ? access : &nothing));
    WEFT__TRY(adjust_nets(topo));
    return weft__topo_assign_nets(topo);
}

/* The lowest index among the GPUs that one reaches. */
static int32_t domain_of(const struct weft__topo *topo, const int32_t *domains, int32_t index)
{
    const struct weft__topo_path *paths =
        weft__topo_at(topo, WEFT__TOPO_GPU, index)->paths[WEFT__TOPO_GPU];
    int32_t domain = index;
    for (int32_t i = 0; i < index; i++)
        if (paths[i].type < WEFT__TOPO_REMOTE && domains[i] < domain)
            domain = domains[i];
    return domain;
}

weft_result weft__topo_trim(struct weft__topo *topo, int32_t rank,
                            const struct weft__topo_access *access)
{
    const int32_t count = weft__topo_count(topo, WEFT__TOPO_GPU);
    int32_t domains[WEFT__TOPO_MAX_NODES], own_domain = -1;
    for (int32_t i = 0; i < count; i++) {
        domains[i] = domain_of(topo, domains, i);
        if (weft__topo_at(topo, WEFT__TOPO_GPU, i)->gpu.rank == rank)
            own_domain = domains[i];
    }
    if (own_domain == -1)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "no GPU of the topology is rank %" PRId32 "'s", rank);
    for (int32_t i = count - 1; i >= 0; i--)
        if (domains[i] != own_domain)
            weft__topo_remove_node(topo, weft__topo_at(topo, WEFT__TOPO_GPU, i));
    return weft__topo_compute_paths(topo, access);
}
