/* SPDX-License-Identifier: MIT */
#include "nic_traffic.h"

enum {
    NUM_SLOTS = 96,
    SLOT_BYTES = 640,
    WORD_PLACE = NIC_TRAFFIC_MEMORY - 64, /* of the word that is added to */
    RECENT = 8                            /* how far back a READ looks for a write */
};
_Static_assert(NUM_SLOTS *SLOT_BYTES <= (int)WORD_PLACE &&
                   (int)NIC_TRAFFIC_MAX_BYTES <= (int)SLOT_BYTES,
               "slots lie before the word, and have room");
_Static_assert((int)NIC_TRAFFIC_MAX_DEPTH + 2 * (int)RECENT <= (int)NUM_SLOTS,
               "no READ looks at a slot that is used again");

void nic_traffic_start(struct nic_traffic *traffic, const struct nic_traffic_config *config)
{
    memset(traffic, 0, sizeof *traffic);
    traffic->config = *config;
    traffic->rng.state = rng_hash(config->seed);
    traffic->posted = traffic->done = config->first;
}

int nic_traffic_has_room(const struct nic_traffic *traffic)
{
    const uint32_t depth = traffic->config.depth;
    const uint64_t wanted =
        depth > NIC_TRAFFIC_LARGE_GROUP ? NIC_TRAFFIC_LARGE_GROUP : NIC_TRAFFIC_SMALL_GROUP;
    return traffic->posted + wanted <= traffic->done + depth;
}

void nic_traffic_complain(struct nic_traffic *traffic, const char *complaint)
{
    if (traffic->complaint == NULL)
        traffic->complaint = complaint;
}

struct nic_message *nic_traffic_message(struct nic_traffic *traffic, uint64_t index)
{
    return &traffic->messages[index % NIC_TRAFFIC_MESSAGES];
}

static uint8_t byte_of(uint64_t origin, uint32_t at)
{
    return (uint8_t)(rng_hash(origin * NIC_TRAFFIC_MAX_BYTES + at) | 1);
}

int nic_traffic_has_bytes(const struct nic_message *message)
{
    const uint64_t address = message->kind == NIC_WRITES ? message->request.remote_address
                                                         : message->request.local_address;
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)address;
    for (uint32_t i = 0; i < message->num_bytes; i++)
        if (bytes[i] != byte_of(message->origin, i))
            return 0;
    return 1;
}

/* ---------------------------------------------------------------- posting */

static uint32_t slot_offset(uint64_t index)
{
    return (uint32_t)(index % NUM_SLOTS) * SLOT_BYTES;
}

static struct nic_message *next_message(struct nic_traffic *traffic, enum weft__nic_opcode opcode,
                                        uint32_t num_bytes)
{
    const struct nic_traffic_config *config = &traffic->config;
    const uint64_t index = traffic->posted++;
    struct nic_message *message = nic_traffic_message(traffic, index);
    *message = (struct nic_message){
        .origin = index,
        .num_bytes = num_bytes,
        .request = {.opcode = opcode,
                    .completion = WEFT__NIC_ALWAYS,
                    .qp = config->qp,
                    .index = index,
                    .remote_key = config->remote_key,
                    .remote_address = (uintptr_t)config->remote + slot_offset(index),
                    .local_key = config->local_key,
                    .local_address = (uintptr_t)config->local + slot_offset(index),
                    .num_bytes = num_bytes}};
    return message;
}

static void post(const struct nic_traffic *traffic, const struct nic_message *message)
{
    traffic->config.post(traffic->config.context, &message->request);
}

static void post_nothing(struct nic_traffic *traffic, enum weft__nic_opcode opcode,
                         uint32_t num_bytes)
{
    struct nic_message *message = next_message(traffic, opcode, num_bytes);
    if (opcode == WEFT__NIC_DUMP)
        message->request.fence = WEFT__NIC_FENCE;
    post(traffic, message);
}

static void post_write(struct nic_traffic *traffic, enum weft__nic_completion completion)
{
    const int is_inline = rng_below(&traffic->rng, 2) != 0;
    const uint32_t bound = is_inline ? WEFT__NIC_MAX_INLINE_BYTES : traffic->config.max_bytes;
    struct nic_message *message =
        next_message(traffic, WEFT__NIC_WRITE, 1 + rng_below(&traffic->rng, bound));
    uint8_t *source = traffic->config.local + slot_offset(message->origin);
    for (uint32_t i = 0; i < message->num_bytes; i++)
        source[i] = byte_of(message->origin, i);
    message->kind = NIC_WRITES;
    message->request.completion = completion;
    if (is_inline)
        message->request.inline_bytes = source;
    post(traffic, message);
}

static void post_add(struct nic_traffic *traffic)
{
    struct nic_message *message =
        next_message(traffic, WEFT__NIC_FETCH_ADD, WEFT__NIC_ATOMIC_BYTES);
    message->kind = NIC_ADDS;
    message->request.addend = 1;
    message->request.remote_address = (uintptr_t)traffic->config.remote + WORD_PLACE;
    traffic->adds[traffic->num_adds_posted++ % NIC_TRAFFIC_MESSAGES] = message->origin;
    post(traffic, message);
}

/* A READ of what a recent write brings there: it comes after the write. Without one, a write. */
static struct nic_message *post_read(struct nic_traffic *traffic,
                                     enum weft__nic_completion completion)
{
    const uint64_t next = traffic->posted;
    for (uint64_t index = next; index-- > traffic->config.first && index + RECENT > next;) {
        const struct nic_message *written = nic_traffic_message(traffic, index);
        if (written->kind != NIC_WRITES)
            continue;
        struct nic_message *message = next_message(traffic, WEFT__NIC_READ, written->num_bytes);
        message->kind = NIC_READS;
        message->origin = written->origin;
        message->request.completion = completion;
        message->request.remote_address = written->request.remote_address;
        memset(traffic->config.local + slot_offset(next), 0, SLOT_BYTES);
        post(traffic, message);
        return message;
    }
    post_write(traffic, WEFT__NIC_ALWAYS);
    return NULL;
}

/* A READ, and a write of what it brings, which has to wait for it. */
static void post_relay(struct nic_traffic *traffic)
{
    const struct nic_message *read = post_read(traffic, WEFT__NIC_ON_ERROR);
    if (read == NULL)
        return;
    struct nic_message *message = next_message(traffic, WEFT__NIC_WRITE, read->num_bytes);
    message->kind = NIC_WRITES;
    message->origin = read->origin;
    message->request.fence = WEFT__NIC_FENCE;
    message->request.local_address = read->request.local_address;
    post(traffic, message);
}

void nic_traffic_post(struct nic_traffic *traffic)
{
    enum { NUM_OF_VERBS = 5, NUM_ALL = 6 };
    const int is_deep = traffic->config.depth > NIC_TRAFFIC_LARGE_GROUP;
    const int num_adds = is_deep ? NIC_TRAFFIC_LARGE_GROUP : NIC_TRAFFIC_SMALL_GROUP;
    switch (rng_below(&traffic->rng,
                      traffic->config.kinds == NIC_TRAFFIC_ALL ? NUM_ALL : NUM_OF_VERBS)) {
    case 0:
        post_write(traffic, WEFT__NIC_ALWAYS);
        break;
    case 1: /* a put with a signal */
        post_write(traffic, WEFT__NIC_ON_ERROR);
        post_add(traffic);
        break;
    case 2:
        (void)post_read(traffic, WEFT__NIC_ALWAYS);
        break;
    case 3:
        post_relay(traffic);
        break;
    case 4:
        for (int i = 0; i < num_adds; i++)
            post_add(traffic);
        break;
    default:
        post_nothing(traffic, WEFT__NIC_NOP, 0);
        post_nothing(traffic, WEFT__NIC_DUMP, traffic->config.max_bytes);
        break;
    }
}

/* ---------------------------------------------------------------- what must hold */

uint64_t nic_traffic_next_signalled(struct nic_traffic *traffic)
{
    uint64_t index = traffic->done;
    while (index < traffic->posted &&
           nic_traffic_message(traffic, index)->request.completion != WEFT__NIC_ALWAYS)
        index++;
    return index;
}

void nic_traffic_complete(struct nic_traffic *traffic, uint64_t end)
{
    for (; traffic->done < end; traffic->done++) {
        const struct nic_message *message = nic_traffic_message(traffic, traffic->done);
        uint64_t before;
        if ((message->kind == NIC_WRITES || message->kind == NIC_READS) &&
            !nic_traffic_has_bytes(message))
            nic_traffic_complain(traffic, "a request is complete without its bytes");
        if (message->kind != NIC_ADDS)
            continue;
        memcpy(&before, (const void *)(uintptr_t)message->request.local_address, sizeof before);
        if (before != traffic->num_adds_done++)
            nic_traffic_complain(traffic, "an add has not brought what was there before");
    }
}

/* All writes before an add are there when the add is. */
void nic_traffic_see_add(struct nic_traffic *traffic)
{
    if (traffic->num_adds_seen == traffic->num_adds_posted) {
        nic_traffic_complain(traffic, "more adds than were posted");
        return;
    }
    const uint64_t end = traffic->adds[traffic->num_adds_seen++ % NIC_TRAFFIC_MESSAGES];
    for (uint64_t index = traffic->done; index < end; index++) {
        const struct nic_message *message = nic_traffic_message(traffic, index);
        if (message->kind == NIC_WRITES && !nic_traffic_has_bytes(message))
            nic_traffic_complain(traffic, "an add is seen before a write that it counts");
    }
}
