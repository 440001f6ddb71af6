/* SPDX-License-Identifier: MIT */
/*
 * The words that software and an mlx5 NIC (ConnectX-4 and later) leave in memory for each other:
 * work queue entries (WQE), doorbells and completion queue entries (CQE). Pure functions, for C
 * and CUDA C++: they order no memory. tests/unit/test_nic_mlx5.c compares them with what libmlx5
 * writes.
 *
 * The send queue is an array of units of 64 bytes. Each WQE here takes one unit. Software counts
 * units with 64 bits; the NIC sees the low 16 bits of the count, whatever the length of the
 * queue.
 *
 * A field of a WQE is big-endian. A unit holds it as the processor stores it, so that a unit is
 * copied to the queue as it is.
 */
#pragma once

#include <stdint.h>
#include <string.h>

/* CUDA code defines it as functions of the device. */
#ifndef WEFT__NIC_FN
#define WEFT__NIC_FN static inline
#endif

enum {
    WEFT__NIC_UNIT_BYTES = 64,
    WEFT__NIC_SEGMENT_BYTES = 16,
    WEFT__NIC_MAX_DEPTH = 32768,     /* units of a queue: 16-bit counts then differ unambiguously */
    WEFT__NIC_MAX_INLINE_BYTES = 28, /* that fit into a unit */
    WEFT__NIC_MAX_QP = 0xffffff,
    WEFT__NIC_ATOMIC_BYTES = 8
};

/* The limit of one message. A longer one takes several WQEs. */
#define WEFT__NIC_MAX_MESSAGE_BYTES ((uint32_t)1 << 30)

enum weft__nic_opcode {
    WEFT__NIC_NOP = 0x00,
    WEFT__NIC_WRITE = 0x08,
    WEFT__NIC_WRITE_IMMEDIATE = 0x09,
    WEFT__NIC_READ = 0x10,
    WEFT__NIC_FETCH_ADD = 0x12, /* of 8 bytes; the value before goes to local memory */
    WEFT__NIC_DUMP = 0x23 /* reads local memory: with a fence, what READs before it have brought is
                           * visible before its CQE */
};

/* When the WQE makes a CQE. One that fails makes a CQE always. */
enum weft__nic_completion { WEFT__NIC_ON_ERROR = 0, WEFT__NIC_ALWAYS = 2 };

/* A fenced WQE starts once earlier READs and atomics of its queue are complete. */
enum weft__nic_fence { WEFT__NIC_NO_FENCE = 0, WEFT__NIC_FENCE = 4 };

/* A unit, or a CQE. */
struct weft__nic_unit {
    uint32_t words[WEFT__NIC_UNIT_BYTES / 4];
};

struct weft__nic_request {
    enum weft__nic_opcode opcode;
    enum weft__nic_completion completion;
    enum weft__nic_fence fence;
    uint32_t qp;        /* number of the queue pair, 24 bits */
    uint64_t index;     /* of the unit */
    uint32_t immediate; /* for the receiver of a WRITE_IMMEDIATE */
    uint32_t remote_key;
    uint64_t remote_address;
    uint64_t addend; /* of a FETCH_ADD */
    /* A write sends from local memory, a READ and a FETCH_ADD bring to it. At least 1 byte,
     * and 8 of a FETCH_ADD. */
    uint64_t local_address;
    uint32_t local_key;
    uint32_t num_bytes;
    /* NULL, or num_bytes <= 28 bytes of a write that the WQE carries itself. */
    const void *inline_bytes;
};

/* ---------------------------------------------------------------- big-endian words */

/* The bytes of `word`, the highest first, as the processor loads them, and back. */
WEFT__NIC_FN uint32_t weft__nic_be32(uint32_t word)
{
#ifdef __BYTE_ORDER__
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        return word;
#endif
    return word << 24 | (word & 0xff00) << 8 | (word >> 8 & 0xff00) | word >> 24;
}

WEFT__NIC_FN void weft__nic_put64(uint32_t *words, uint64_t value)
{
    words[0] = weft__nic_be32((uint32_t)(value >> 32));
    words[1] = weft__nic_be32((uint32_t)value);
}

WEFT__NIC_FN uint64_t weft__nic_get64(const uint32_t *words)
{
    return (uint64_t)weft__nic_be32(words[0]) << 32 | weft__nic_be32(words[1]);
}

/* ---------------------------------------------------------------- entries of the send queue */

/* The places of the segments, in words. Each but the control segment is optional, in this order. */
enum { WEFT__NIC_CONTROL = 0, WEFT__NIC_REMOTE = 4, WEFT__NIC_SEGMENT_WORDS = 4 };

/* A data segment whose count has this bit is followed by the bytes themselves. */
#define WEFT__NIC_INLINE ((uint32_t)1 << 31)

WEFT__NIC_FN int weft__nic_has_remote(enum weft__nic_opcode opcode)
{
    return opcode != WEFT__NIC_NOP && opcode != WEFT__NIC_DUMP;
}

/* Returns the number of segments with this one. */
WEFT__NIC_FN uint32_t weft__nic_put_data(const struct weft__nic_request *request, uint32_t *words)
{
    if (request->inline_bytes != NULL) {
        words[0] = weft__nic_be32(request->num_bytes | WEFT__NIC_INLINE);
        memcpy(words + 1, request->inline_bytes, request->num_bytes);
        return (4 + request->num_bytes + WEFT__NIC_SEGMENT_BYTES - 1) / WEFT__NIC_SEGMENT_BYTES;
    }
    words[0] = weft__nic_be32(request->num_bytes);
    words[1] = weft__nic_be32(request->local_key);
    weft__nic_put64(words + 2, request->local_address);
    return 1;
}

/* Returns the number of segments. Words of the unit behind them stay as they are: the NIC does not
 * read them. */
WEFT__NIC_FN uint32_t weft__nic_encode(const struct weft__nic_request *request,
                                       struct weft__nic_unit *unit)
{
    uint32_t *words = unit->words;
    size_t num_segments = 1;
    if (weft__nic_has_remote(request->opcode)) {
        weft__nic_put64(words + WEFT__NIC_REMOTE, request->remote_address);
        words[WEFT__NIC_REMOTE + 2] = weft__nic_be32(request->remote_key);
        words[WEFT__NIC_REMOTE + 3] = 0;
        num_segments++;
    }
    if (request->opcode == WEFT__NIC_FETCH_ADD) {
        uint32_t *atomic = words + num_segments++ * WEFT__NIC_SEGMENT_WORDS;
        weft__nic_put64(atomic, request->addend);
        weft__nic_put64(atomic + 2, 0);
    }
    if (request->opcode != WEFT__NIC_NOP)
        num_segments += weft__nic_put_data(request, words + num_segments * WEFT__NIC_SEGMENT_WORDS);
    words[0] = weft__nic_be32((uint32_t)(request->index & 0xffff) << 8 | (uint32_t)request->opcode);
    words[1] = weft__nic_be32(request->qp << 8 | (uint32_t)num_segments);
    words[2] = weft__nic_be32((uint32_t)request->fence << 5 | (uint32_t)request->completion << 2);
    words[3] =
        request->opcode == WEFT__NIC_WRITE_IMMEDIATE ? weft__nic_be32(request->immediate) : 0;
    return (uint32_t)num_segments;
}

/* A control segment, field by field: nothing says that it makes sense. */
struct weft__nic_control {
    uint32_t opcode_modifier, index, opcode;
    uint32_t qp, num_segments; /* of 8 bits, of which an entry may use 6 */
    uint32_t signature, stream, fence, completion, solicited;
    uint32_t unused_flags; /* the bits beside these three */
    uint32_t immediate;
};

WEFT__NIC_FN struct weft__nic_control weft__nic_decode_control(const uint32_t *words)
{
    const uint32_t what = weft__nic_be32(words[0]), where = weft__nic_be32(words[1]),
                   how = weft__nic_be32(words[2]);
    struct weft__nic_control control;
    control.opcode_modifier = what >> 24;
    control.index = what >> 8 & 0xffff;
    control.opcode = what & 0xff;
    control.qp = where >> 8;
    control.num_segments = where & 0xff;
    control.signature = how >> 24;
    control.stream = how >> 8 & 0xffff;
    control.fence = how >> 5 & 7;
    control.completion = how >> 2 & 3;
    control.solicited = how >> 1 & 1;
    control.unused_flags = how & 0x11;
    control.immediate = weft__nic_be32(words[3]);
    return control;
}

struct weft__nic_remote {
    uint64_t address;
    uint32_t key, unused;
};

WEFT__NIC_FN struct weft__nic_remote weft__nic_decode_remote(const uint32_t *words)
{
    struct weft__nic_remote remote;
    remote.address = weft__nic_get64(words);
    remote.key = weft__nic_be32(words[2]);
    remote.unused = weft__nic_be32(words[3]);
    return remote;
}

struct weft__nic_data {
    uint32_t num_bytes; /* without the bit */
    int is_inline;      /* then the bytes begin at words + 1 */
    uint32_t key;
    uint64_t address;
};

WEFT__NIC_FN struct weft__nic_data weft__nic_decode_data(const uint32_t *words)
{
    const uint32_t count = weft__nic_be32(words[0]);
    struct weft__nic_data data;
    data.num_bytes = count & ~WEFT__NIC_INLINE;
    data.is_inline = (count & WEFT__NIC_INLINE) != 0;
    data.key = weft__nic_be32(words[1]);
    data.address = weft__nic_get64(words + 2);
    return data;
}

/* ---------------------------------------------------------------- doorbells */

/* The doorbell record of a queue pair is two words; this is the one of the send queue. */
enum { WEFT__NIC_RECORD_SEND_WORD = 1 };

/* The record announces all units before `next`. */
WEFT__NIC_FN uint32_t weft__nic_record(uint64_t next)
{
    return weft__nic_be32((uint32_t)(next & 0xffff));
}

/* The eight bytes that one store brings to the NIC. It takes the number of units from the
 * record: the index here is a hint. libmlx5 stores the first eight bytes of the last WQE in
 * their place. */
WEFT__NIC_FN uint64_t weft__nic_doorbell(uint64_t next, uint32_t qp)
{
    uint32_t words[2];
    uint64_t value;
    words[0] = weft__nic_be32((uint32_t)(next & 0xffff) << 8);
    words[1] = weft__nic_be32(qp << 8);
    memcpy(&value, words, sizeof value);
    return value;
}

/* ---------------------------------------------------------------- completions */

enum weft__nic_cqe_opcode {
    WEFT__NIC_CQE_REQUEST = 0,
    WEFT__NIC_CQE_REQUEST_ERROR = 13,
    WEFT__NIC_CQE_RESPONSE_ERROR = 14,
    WEFT__NIC_CQE_INVALID = 15 /* as of a queue that was filled with 0xff: there is none yet */
};

/* The last word of a CQE, which the NIC stores last. One load must bring it whole: its counter
 * belongs to its opcode. */
enum { WEFT__NIC_CQE_TAIL_WORD = 15 };

struct weft__nic_tail {
    uint32_t counter; /* index of the unit, 16 bits */
    enum weft__nic_cqe_opcode opcode;
    uint32_t owner;
};

WEFT__NIC_FN struct weft__nic_tail weft__nic_decode_tail(uint32_t word)
{
    const uint32_t value = weft__nic_be32(word);
    struct weft__nic_tail tail;
    tail.counter = value >> 16;
    tail.opcode = (enum weft__nic_cqe_opcode)(value >> 4 & 15);
    tail.owner = value & 1;
    return tail;
}

WEFT__NIC_FN uint32_t weft__nic_encode_tail(const struct weft__nic_tail *tail)
{
    return weft__nic_be32(tail->counter << 16 | (uint32_t)tail->opcode << 4 | tail->owner);
}

/* `consumer` is the 64-bit count of entries taken. Its entry is new if the owner bit is that of
 * this lap: the NIC changes the bit each time that it comes around. `num_entries` is a power of
 * two. */
WEFT__NIC_FN int weft__nic_tail_is_new(const struct weft__nic_tail *tail, uint64_t consumer,
                                       uint32_t num_entries)
{
    return tail->opcode != WEFT__NIC_CQE_INVALID &&
           tail->owner == (consumer / num_entries % 2 != 0 ? 1u : 0u);
}

/* Returns how many units are done, if `done` were and the one with this counter is. At most `depth`
 * units are under way, so any other counter is an old one. Look at the opcode first: the counter
 * of a queue without any CQE may look new. */
WEFT__NIC_FN uint64_t weft__nic_count_done(uint64_t done, uint32_t counter, uint32_t depth)
{
    const uint32_t ahead = (counter - (uint32_t)(done & 0xffff)) & 0xffff;
    return ahead < depth ? done + ahead + 1 : done;
}

/* The rest of a CQE. */
struct weft__nic_cqe {
    uint32_t user_index; /* of the queue pair, as its owner has named it */
    uint32_t num_bytes;
    uint32_t qp, request_opcode;
    uint32_t syndrome, vendor_syndrome; /* of an error */
};

enum {
    WEFT__NIC_CQE_USER_INDEX_WORD = 8,
    WEFT__NIC_CQE_BYTES_WORD = 11,
    WEFT__NIC_CQE_SYNDROME_WORD = 13,
    WEFT__NIC_CQE_REQUEST_WORD = 14
};

/* All but the tail. */
WEFT__NIC_FN void weft__nic_encode_cqe(const struct weft__nic_cqe *cqe,
                                       struct weft__nic_unit *entry)
{
    memset(entry, 0, WEFT__NIC_CQE_TAIL_WORD * sizeof(uint32_t));
    entry->words[WEFT__NIC_CQE_USER_INDEX_WORD] = weft__nic_be32(cqe->user_index);
    entry->words[WEFT__NIC_CQE_BYTES_WORD] = weft__nic_be32(cqe->num_bytes);
    entry->words[WEFT__NIC_CQE_SYNDROME_WORD] =
        weft__nic_be32(cqe->vendor_syndrome << 8 | cqe->syndrome);
    entry->words[WEFT__NIC_CQE_REQUEST_WORD] = weft__nic_be32(cqe->request_opcode << 24 | cqe->qp);
}

WEFT__NIC_FN struct weft__nic_cqe weft__nic_decode_cqe(const struct weft__nic_unit *entry)
{
    const uint32_t syndromes = weft__nic_be32(entry->words[WEFT__NIC_CQE_SYNDROME_WORD]),
                   request = weft__nic_be32(entry->words[WEFT__NIC_CQE_REQUEST_WORD]);
    struct weft__nic_cqe cqe;
    cqe.user_index = weft__nic_be32(entry->words[WEFT__NIC_CQE_USER_INDEX_WORD]);
    cqe.num_bytes = weft__nic_be32(entry->words[WEFT__NIC_CQE_BYTES_WORD]);
    cqe.qp = request & WEFT__NIC_MAX_QP;
    cqe.request_opcode = request >> 24;
    cqe.vendor_syndrome = syndromes >> 8 & 0xff;
    cqe.syndrome = syndromes & 0xff;
    return cqe;
}
