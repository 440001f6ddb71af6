/* SPDX-License-Identifier: MIT */
/* Entries of NICs' queues, against bytes that Debian's libmlx5 44 has written (all but NOP and
 * DUMP, which it does not post), and read back. test_nic_mlx5.c compares with the library
 * itself. */
#include "harness/cmocka.h"
#include "net/nic/wqe.h"
#include "workload/rng.h"

static const uint8_t counting[WEFT__NIC_MAX_INLINE_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                                             10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                                             20, 21, 22, 23, 24, 25, 26, 27};

/* All have this queue pair, remote address and keys, and local address. */
#define REQUEST(...)                                                                               \
    {                                                                                              \
        .qp = 0xabcde, .remote_address = 0x1122334455667788, .remote_key = 0x99aabb,               \
        .local_key = 0x1b01, .local_address = 0x0102030405060708, __VA_ARGS__                      \
    }

static const struct golden {
    struct weft__nic_request request;
    int num_words;
    uint32_t words[16]; /* by value, the highest byte first in memory */
} goldens[] = {
    {REQUEST(.opcode = WEFT__NIC_WRITE, .completion = WEFT__NIC_ALWAYS, .num_bytes = 0x1c00),
     12,
     {0x00000008, 0x0abcde03, 0x00000008, 0, 0x11223344, 0x55667788, 0x0099aabb, 0, 0x00001c00,
      0x00001b01, 0x01020304, 0x05060708}},
    {REQUEST(.opcode = WEFT__NIC_WRITE_IMMEDIATE, .index = 1, .immediate = 0xdeadbeef,
             .num_bytes = 0x1c00),
     12,
     {0x00000109, 0x0abcde03, 0, 0xdeadbeef, 0x11223344, 0x55667788, 0x0099aabb, 0, 0x00001c00,
      0x00001b01, 0x01020304, 0x05060708}},
    {REQUEST(.opcode = WEFT__NIC_WRITE, .index = 2, .completion = WEFT__NIC_ALWAYS, .num_bytes = 8,
             .inline_bytes = counting),
     11,
     {0x00000208, 0x0abcde03, 0x00000008, 0, 0x11223344, 0x55667788, 0x0099aabb, 0, 0x80000008,
      0x00010203, 0x04050607}},
    {REQUEST(.opcode = WEFT__NIC_FETCH_ADD, .index = 3, .completion = WEFT__NIC_ALWAYS,
             .num_bytes = 8, .addend = 5),
     16,
     {0x00000312, 0x0abcde04, 0x00000008, 0, 0x11223344, 0x55667788, 0x0099aabb, 0, 0, 5, 0, 0, 8,
      0x00001b01, 0x01020304, 0x05060708}},
    {REQUEST(.opcode = WEFT__NIC_READ, .index = 0x10005, .completion = WEFT__NIC_ALWAYS,
             .fence = WEFT__NIC_FENCE, .num_bytes = 0x1c00),
     12,
     {0x00000510, 0x0abcde03, 0x00000088, 0, 0x11223344, 0x55667788, 0x0099aabb, 0, 0x00001c00,
      0x00001b01, 0x01020304, 0x05060708}},
    {REQUEST(.opcode = WEFT__NIC_WRITE, .index = 6, .completion = WEFT__NIC_ALWAYS, .num_bytes = 28,
             .inline_bytes = counting),
     16,
     {0x00000608, 0x0abcde04, 0x00000008, 0, 0x11223344, 0x55667788, 0x0099aabb, 0, 0x8000001c,
      0x00010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f, 0x10111213, 0x14151617, 0x18191a1b}},
    {REQUEST(.opcode = WEFT__NIC_NOP, .index = 0xffff), 4, {0x00ffff00, 0x0abcde01, 0, 0}},
    {REQUEST(.opcode = WEFT__NIC_DUMP, .index = 7, .completion = WEFT__NIC_ALWAYS, .num_bytes = 64),
     8,
     {0x00000723, 0x0abcde02, 0x00000008, 0, 0x00000040, 0x00001b01, 0x01020304, 0x05060708}},
};

TEST(entries_have_the_bytes_of_libmlx5)
{
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        struct weft__nic_unit unit;
        memset(&unit, 0xa5, sizeof unit);
        (void)weft__nic_encode(&goldens[i].request, &unit);
        for (int k = 0; k < 16; k++) /* what the NIC does not read is left alone */
            assert_int_equal(weft__nic_be32(unit.words[k]),
                             k < goldens[i].num_words ? goldens[i].words[k] : 0xa5a5a5a5);
        assert_int_equal(((const uint8_t *)&unit)[3], goldens[i].request.opcode);
    }
}

static struct weft__nic_request draw(uint64_t seed)
{
    static const enum weft__nic_opcode opcodes[] = {WEFT__NIC_NOP,       WEFT__NIC_WRITE,
                                                    WEFT__NIC_READ,      WEFT__NIC_WRITE_IMMEDIATE,
                                                    WEFT__NIC_FETCH_ADD, WEFT__NIC_DUMP};
    const uint64_t drawn = rng_hash(seed);
    struct weft__nic_request request = {
        .opcode = opcodes[drawn % (sizeof opcodes / sizeof *opcodes)],
        .completion = drawn >> 8 & 1 ? WEFT__NIC_ALWAYS : WEFT__NIC_ON_ERROR,
        .fence = drawn >> 9 & 1 ? WEFT__NIC_FENCE : WEFT__NIC_NO_FENCE,
        .qp = (uint32_t)rng_hash(seed + 1) & WEFT__NIC_MAX_QP,
        .index = rng_hash(seed + 2),
        .immediate = (uint32_t)rng_hash(seed + 3),
        .remote_key = (uint32_t)rng_hash(seed + 4),
        .remote_address = rng_hash(seed + 5),
        .addend = rng_hash(seed + 6),
        .local_address = rng_hash(seed + 7),
        .local_key = (uint32_t)rng_hash(seed + 8),
        .num_bytes = (uint32_t)(rng_hash(seed + 9) % WEFT__NIC_MAX_MESSAGE_BYTES) + 1};
    if ((request.opcode == WEFT__NIC_WRITE || request.opcode == WEFT__NIC_WRITE_IMMEDIATE) &&
        drawn >> 10 & 1) {
        request.inline_bytes = counting;
        request.num_bytes = 1 + (uint32_t)(drawn >> 11) % WEFT__NIC_MAX_INLINE_BYTES;
    }
    return request;
}

TEST(fields_come_back)
{
    enum { NUM_REQUESTS = 100000 };
    for (uint64_t i = 0; i < NUM_REQUESTS; i++) {
        const struct weft__nic_request request = draw(i * 16);
        struct weft__nic_unit unit;
        const uint32_t num_segments = weft__nic_encode(&request, &unit);
        const struct weft__nic_control control = weft__nic_decode_control(unit.words);
        assert_int_equal(control.num_segments, num_segments);
        assert_int_equal(control.opcode, request.opcode);
        assert_int_equal(control.index, request.index & 0xffff);
        assert_int_equal(control.qp, request.qp);
        assert_int_equal(control.fence, request.fence);
        assert_int_equal(control.completion, request.completion);
        assert_int_equal(control.immediate,
                         request.opcode == WEFT__NIC_WRITE_IMMEDIATE ? request.immediate : 0);
        assert_int_equal(control.opcode_modifier | control.signature | control.stream |
                             control.solicited | control.unused_flags,
                         0);
        if (weft__nic_has_remote(request.opcode)) {
            const struct weft__nic_remote remote =
                weft__nic_decode_remote(unit.words + WEFT__NIC_REMOTE);
            assert_int_equal(remote.address, request.remote_address);
            assert_int_equal(remote.key, request.remote_key);
            assert_int_equal(remote.unused, 0);
        }
        if (request.opcode == WEFT__NIC_NOP)
            continue;
        const int is_long = request.inline_bytes != NULL && request.num_bytes > 12;
        const uint32_t *data =
            unit.words + (control.num_segments - 1u - (uint32_t)is_long) * WEFT__NIC_SEGMENT_WORDS;
        const struct weft__nic_data decoded = weft__nic_decode_data(data);
        assert_int_equal(decoded.num_bytes, request.num_bytes);
        assert_int_equal(decoded.is_inline, request.inline_bytes != NULL);
        if (decoded.is_inline) {
            assert_memory_equal(data + 1, counting, request.num_bytes);
            continue;
        }
        assert_int_equal(decoded.key, request.local_key);
        assert_int_equal(decoded.address, request.local_address);
        if (request.opcode == WEFT__NIC_FETCH_ADD) {
            assert_int_equal(weft__nic_get64(data - WEFT__NIC_SEGMENT_WORDS), request.addend);
        }
    }
}

TEST(doorbells_cut_the_count_to_sixteen_bits)
{
    uint8_t record[4], bell[8];
    const uint32_t word = weft__nic_record(0x1234fffe);
    const uint64_t value = weft__nic_doorbell(0x1234fffe, 0xabcde);
    memcpy(record, &word, sizeof record);
    memcpy(bell, &value, sizeof bell);
    assert_memory_equal(record, ((const uint8_t[]){0, 0, 0xff, 0xfe}), sizeof record);
    assert_memory_equal(bell, ((const uint8_t[]){0, 0xff, 0xfe, 0, 0x0a, 0xbc, 0xde, 0}),
                        sizeof bell);
}

/* The queue begins as 0xff everywhere, which is no completion; neither is any entry of a lap
 * before. */
TEST(completions_are_new_once)
{
    enum { NUM_ENTRIES = 8, NUM_LAPS = 3 };
    struct weft__nic_tail tail = weft__nic_decode_tail(UINT32_MAX);
    assert_int_equal(tail.opcode, WEFT__NIC_CQE_INVALID);
    for (uint64_t consumer = 0; consumer < NUM_LAPS * NUM_ENTRIES; consumer++) {
        tail.opcode = WEFT__NIC_CQE_INVALID;
        assert_false(weft__nic_tail_is_new(&tail, consumer, NUM_ENTRIES));
        tail.opcode = WEFT__NIC_CQE_REQUEST;
        tail.owner = consumer / NUM_ENTRIES % 2 != 0;
        assert_true(weft__nic_tail_is_new(&tail, consumer, NUM_ENTRIES));
        assert_false(weft__nic_tail_is_new(&tail, consumer + NUM_ENTRIES, NUM_ENTRIES));
    }
}

/* From all counts around the wraps of 16 and 32 bits, and all counters of 16 bits. */
TEST(counters_of_sixteen_bits_count_on)
{
    static const uint64_t starts[] = {0, 0xfffe, 0x10000, 0xfffffffd, 0x100000000, 0x17fff7fff};
    enum { DEPTH = 8 };
    assert_int_equal(weft__nic_count_done(0, 0xffff, WEFT__NIC_MAX_DEPTH), 0);
    assert_int_equal(weft__nic_count_done(77, 77 + DEPTH - 1, DEPTH), 77 + DEPTH);
    assert_int_equal(weft__nic_count_done(77, 77 + DEPTH, DEPTH), 77); /* never under way */
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (uint64_t done = starts[i]; done < starts[i] + 8; done++)
            for (uint64_t index = done > WEFT__NIC_MAX_DEPTH ? done - WEFT__NIC_MAX_DEPTH : 0;
                 index < done + WEFT__NIC_MAX_DEPTH; index++) {
                const uint64_t count =
                    weft__nic_count_done(done, (uint32_t)(index & 0xffff), WEFT__NIC_MAX_DEPTH);
                if (count != (index < done ? done : index + 1))
                    fail_msg("%llu done, index %llu: %llu", (unsigned long long)done,
                             (unsigned long long)index, (unsigned long long)count);
            }
}

TEST(completions_come_back)
{
    const struct weft__nic_cqe cqe = {.user_index = 0x123456,
                                      .num_bytes = 77,
                                      .qp = 0xabcde,
                                      .request_opcode = WEFT__NIC_FETCH_ADD,
                                      .syndrome = 0x13,
                                      .vendor_syndrome = 0x88};
    const struct weft__nic_tail tail = {
        .counter = 0xfffe, .opcode = WEFT__NIC_CQE_REQUEST_ERROR, .owner = 1};
    struct weft__nic_unit entry;
    weft__nic_encode_cqe(&cqe, &entry);
    entry.words[WEFT__NIC_CQE_TAIL_WORD] = weft__nic_encode_tail(&tail);
    const struct weft__nic_cqe decoded = weft__nic_decode_cqe(&entry);
    const struct weft__nic_tail end = weft__nic_decode_tail(entry.words[WEFT__NIC_CQE_TAIL_WORD]);
    assert_memory_equal(&decoded, &cqe, sizeof cqe);
    assert_int_equal(end.counter, tail.counter);
    assert_int_equal(end.opcode, tail.opcode);
    assert_int_equal(end.owner, tail.owner);
    /* Where libmlx5 reads them. */
    assert_int_equal(((const uint8_t *)&entry)[55], 0x13);
    assert_int_equal(((const uint8_t *)&entry)[54], 0x88);
    assert_int_equal(((const uint8_t *)&entry)[63], 0xd1);
}
