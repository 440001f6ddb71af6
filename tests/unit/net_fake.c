/* SPDX-License-Identifier: MIT */
#include "net_fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "net/engine.h"

enum { MAX_MESSAGE_BYTES = 1024, NUM_PIECES = 4 };

struct rank;

/* An operation on its way. */
struct packet {
    struct packet *next;
    int32_t from, to;
    struct weft__net_operation *operation; /* NULL: its source has been told that it is done */
    struct weft__net_header header;
    unsigned char *bytes; /* from when the source was told on; until then they are read there */
    uint64_t done_at, due_at;
    uint64_t number; /* of the source's writes: a flush waits for those before it */
    uint32_t num_pieces_landed;
    int type; /* of the operation */
    enum { UNDER_WAY, ARRIVED } state;
};

struct rank {
    struct net_fake *world;
    struct weft__net *net;
    int32_t rank;
    int event_fd; /* never readable: a world is one thread, in which nobody sleeps */
    struct {
        unsigned char *memory;
    } regions[WEFT__NET_MAX_NUMBERS];
    uint8_t is_peer[NET_FAKE_MAX_RANKS];
    uint8_t knows_death[NET_FAKE_MAX_RANKS];
    uint64_t told_at[NET_FAKE_MAX_RANKS]; /* of the death of another */
};

struct net_fake {
    struct net_fake_options options;
    uint64_t random, now, num_writes;
    struct rank *ranks[NET_FAKE_MAX_RANKS];
    uint8_t is_dead[NET_FAKE_MAX_RANKS];
    uint8_t is_cut[NET_FAKE_MAX_RANKS][NET_FAKE_MAX_RANKS];
    struct packet *packets;
};

static uint64_t draw(struct net_fake *world, uint64_t below)
{
    world->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = world->random;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return below == 0 ? 0 : (z ^ (z >> 31)) % below;
}

/* ---------------------------------------------------------------- the world */

struct net_fake *net_fake_create(const struct net_fake_options *options)
{
    struct net_fake *world = calloc(1, sizeof(*world));
    if (world != NULL) {
        world->options = *options;
        world->random = options->seed;
    }
    return world;
}

static void free_packet(struct packet *packet)
{
    free(packet->bytes);
    free(packet);
}

void net_fake_destroy(struct net_fake *world)
{
    while (world->packets != NULL) {
        struct packet *first = world->packets;
        world->packets = first->next;
        free_packet(first);
    }
    free(world);
}

void net_fake_kill(struct net_fake *world, int32_t rank)
{
    world->is_dead[rank] = 1;
    for (int32_t other = 0; other < NET_FAKE_MAX_RANKS; other++)
        if (world->ranks[other] != NULL)
            world->ranks[other]->told_at[rank] =
                world->now + draw(world, world->options.max_delay + 1);
    for (struct packet *packet = world->packets; packet != NULL; packet = packet->next)
        if (packet->from == rank && draw(world, 2) == 0)
            packet->state = ARRIVED; /* lost: nobody waits for it any more */
}

void net_fake_cut(struct net_fake *world, int32_t one, int32_t other)
{
    world->is_cut[one][other] = world->is_cut[other][one] = 1;
}

/* ---------------------------------------------------------------- starting operations */

static struct packet *add_packet(struct rank *rank, struct weft__net_operation *operation)
{
    struct net_fake *world = rank->world;
    struct packet *packet = calloc(1, sizeof(*packet));
    if (packet == NULL) {
        weft__net_fail_peer(rank->net, operation->peer, "no memory for a message to rank %d",
                            operation->peer);
        return NULL;
    }
    uint64_t max_delay = world->options.max_delay + 1;
    *packet = (struct packet){.from = rank->rank,
                              .to = operation->peer,
                              .operation = operation,
                              .header = operation->header,
                              .done_at = world->now + draw(world, max_delay),
                              .due_at = world->now + draw(world, max_delay),
                              .number = world->num_writes++,
                              .type = operation->type};
    /* Anywhere among the others: of those that are due at once, any may be the first. */
    struct packet **link = &world->packets;
    while (*link != NULL && draw(world, 4) != 0)
        link = &(*link)->next;
    packet->next = *link;
    *link = packet;
    return packet;
}

static enum weft__net_start start(void *state, struct weft__net_operation *operation)
{
    struct rank *rank = state;
    struct net_fake *world = rank->world;
    if (operation->type == WEFT__NET_MESSAGE && world->options.full_one_in > 0 &&
        draw(world, world->options.full_one_in) == 0)
        return WEFT__NET_FULL;
    return add_packet(rank, operation) != NULL ? WEFT__NET_STARTED : WEFT__NET_LOST;
}

/* ---------------------------------------------------------------- arriving */

static int is_stuck(const struct net_fake *world, const struct packet *packet)
{
    return world->is_cut[packet->from][packet->to] || world->is_dead[packet->to] ||
           world->ranks[packet->to] == NULL;
}

static const unsigned char *bytes_of(const struct packet *packet)
{
    return packet->operation != NULL ? packet->operation->payload : packet->bytes;
}

/* A piece of a write, which lands without help of the target. */
static void land(struct net_fake *world, struct packet *packet)
{
    const struct rank *target = world->ranks[packet->to];
    uint64_t num_bytes = packet->header.num_bytes;
    uint64_t begin = num_bytes * packet->num_pieces_landed / NUM_PIECES;
    uint64_t end = num_bytes * (packet->num_pieces_landed + 1) / NUM_PIECES;
    unsigned char *memory = target->regions[weft__net_region_of(packet->header.place)].memory +
                            weft__net_offset_of(packet->header.place);
    if (end > begin)
        memcpy(memory + begin, bytes_of(packet) + begin, end - begin);
    packet->due_at = world->now + draw(world, world->options.max_delay / NUM_PIECES + 1);
    if (++packet->num_pieces_landed == NUM_PIECES)
        packet->state = ARRIVED;
}

/* Whether writes before the flush are still on their way. */
static int is_too_early(const struct net_fake *world, const struct packet *flush)
{
    for (const struct packet *packet = world->packets; packet != NULL; packet = packet->next)
        if (packet->type == WEFT__NET_WRITE && packet->from == flush->from &&
            packet->to == flush->to && packet->number < flush->number && packet->state == UNDER_WAY)
            return 1;
    return 0;
}

static int arrive(struct rank *rank, struct packet *packet)
{
    struct net_fake *world = rank->world;
    if (packet->state == ARRIVED || world->now < packet->due_at || is_stuck(world, packet))
        return 0;
    if (packet->type == WEFT__NET_WRITE) {
        land(world, packet);
    } else if (packet->type == WEFT__NET_WRITE_FLUSH) {
        packet->state = is_too_early(world, packet) ? UNDER_WAY : ARRIVED;
    } else if (packet->to == rank->rank) {
        packet->state = ARRIVED;
        weft__net_receive(rank->net, draw(world, 2) == 0 ? -1 : packet->from, &packet->header,
                          sizeof(packet->header), bytes_of(packet), packet->header.num_bytes);
    }
    return packet->state == ARRIVED;
}

/* Tells the source, which may reuse its memory from then on. */
static int complete(struct rank *rank, struct packet *packet)
{
    struct weft__net_operation *operation = packet->operation;
    if (packet->from != rank->rank || operation == NULL || rank->world->now < packet->done_at ||
        (packet->type == WEFT__NET_WRITE_FLUSH && packet->state == UNDER_WAY))
        return 0;
    if (packet->state == UNDER_WAY && packet->header.num_bytes > 0) {
        packet->bytes = malloc(packet->header.num_bytes);
        if (packet->bytes == NULL)
            return 0;
        memcpy(packet->bytes, operation->payload, packet->header.num_bytes);
    }
    packet->operation = NULL;
    weft__net_done(operation, WEFT_OK);
    return 1;
}

static void sweep(struct net_fake *world)
{
    struct packet **link = &world->packets;
    while (*link != NULL) {
        struct packet *packet = *link;
        if (packet->state == UNDER_WAY || packet->operation != NULL) {
            link = &packet->next;
            continue;
        }
        *link = packet->next;
        free_packet(packet);
    }
}

static int learn_of_deaths(struct rank *rank)
{
    int num_deaths = 0;
    struct net_fake *world = rank->world;
    for (int32_t other = 0; other < NET_FAKE_MAX_RANKS; other++) {
        if (!world->is_dead[other] || !rank->is_peer[other] || rank->knows_death[other] ||
            world->now < rank->told_at[other])
            continue;
        rank->knows_death[other] = 1;
        num_deaths++;
        weft__net_fail_peer(rank->net, other, "rank %d died", other);
    }
    return num_deaths;
}

static int progress(void *state)
{
    struct rank *rank = state;
    int num_events = learn_of_deaths(rank);
    rank->world->now++;
    /* An arrival or an end starts new packets, which go anywhere into the list; none goes out of
     * it. */
    for (struct packet *packet = rank->world->packets; packet != NULL; packet = packet->next) {
        num_events += arrive(rank, packet);
        num_events += complete(rank, packet);
    }
    sweep(rank->world);
    return num_events;
}

/* ---------------------------------------------------------------- the table */

static weft_result probe(void)
{
    return WEFT_OK;
}

static weft_result open_rank(struct weft__net *net, const struct weft__net_config *config,
                             void **state)
{
    if (config->world == NULL || config->num_ranks > NET_FAKE_MAX_RANKS)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "engine fake needs a world, and takes at most %d ranks",
                           NET_FAKE_MAX_RANKS);
    struct rank *rank = calloc(1, sizeof(*rank));
    if (rank == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a rank");
    *rank = (struct rank){.world = config->world,
                          .net = net,
                          .rank = config->rank,
                          .event_fd = weft__descriptor_keep(eventfd(0, EFD_CLOEXEC))};
    rank->world->ranks[config->rank] = rank;
    *state = rank;
    return WEFT_OK;
}

static size_t max_message_bytes(void *state)
{
    (void)state;
    return MAX_MESSAGE_BYTES;
}

static size_t min_write_bytes(void *state)
{
    return max_message_bytes(state) + 1;
}

static weft_result reg(void *state, uint32_t region, void *memory, size_t num_bytes, void *key,
                       uint32_t *key_bytes)
{
    struct rank *rank = state;
    (void)num_bytes;
    (void)key;
    *key_bytes = 0;
    rank->regions[region].memory = memory;
    return WEFT_OK;
}

static weft_result learn(void *state, int32_t peer, uint32_t region, const void *key,
                         uint32_t key_bytes)
{
    (void)state;
    (void)key;
    return key_bytes == 0
               ? WEFT_OK
               : weft__error(WEFT_ERROR_MISMATCH, "rank %d has a key of region %u", peer, region);
}

static void unreg(void *state, uint32_t region)
{
    struct rank *rank = state;
    rank->regions[region].memory = NULL;
}

static weft_result address(void *state, void *bytes, size_t *num_bytes)
{
    const struct rank *rank = state;
    *num_bytes = sizeof(rank->rank);
    memcpy(bytes, &rank->rank, sizeof(rank->rank));
    return WEFT_OK;
}

static weft_result connect_all(void *state, const struct weft__net_blob *addresses)
{
    struct rank *rank = state;
    for (int32_t other = 0; other < NET_FAKE_MAX_RANKS; other++)
        if (rank->world->ranks[other] != NULL && other != rank->rank)
            rank->is_peer[other] = addresses[other].num_bytes > 0;
    return WEFT_OK;
}

static enum weft__net_armed arm(void *state)
{
    (void)state;
    return WEFT__NET_BUSY;
}

static int fd_of(const void *state)
{
    return ((const struct rank *)state)->event_fd;
}

enum lost { WHAT_IS_UNDER_WAY, WHAT_IS_NOT_DONE };

static void lose_packets(struct rank *rank, int32_t peer, enum lost lost)
{
    for (struct packet *packet = rank->world->packets; packet != NULL; packet = packet->next) {
        struct weft__net_operation *operation = packet->operation;
        if (packet->from != rank->rank || (peer >= 0 && packet->to != peer) ||
            (operation == NULL && lost == WHAT_IS_NOT_DONE))
            continue;
        packet->operation = NULL;
        packet->state = ARRIVED;
        if (operation != NULL)
            weft__net_done(operation, WEFT_ERROR_RANK_FAILED);
    }
}

static void disconnect(void *state, int32_t peer)
{
    lose_packets(state, peer, WHAT_IS_UNDER_WAY);
}

/* Writes that the source knows as done arrive all the same. */
static void close_rank(void *state, int64_t deadline_ns)
{
    struct rank *rank = state;
    (void)deadline_ns;
    lose_packets(rank, -1, WHAT_IS_NOT_DONE);
    sweep(rank->world);
    rank->world->ranks[rank->rank] = NULL;
    if (rank->event_fd >= 0)
        close(rank->event_fd);
    free(rank);
}

const struct weft__net_engine net_fake_engine = {.name = "fake",
                                                 .header_bytes = sizeof(struct weft__net_header),
                                                 .probe = probe,
                                                 .open = open_rank,
                                                 .max_message_bytes = max_message_bytes,
                                                 .min_write_bytes = min_write_bytes,
                                                 .reg = reg,
                                                 .learn = learn,
                                                 .unreg = unreg,
                                                 .address = address,
                                                 .connect = connect_all,
                                                 .send = start,
                                                 .write = start,
                                                 .flush_writes = start,
                                                 .progress = progress,
                                                 .arm = arm,
                                                 .fd = fd_of,
                                                 .disconnect = disconnect,
                                                 .close = close_rank};
