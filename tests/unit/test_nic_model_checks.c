/* SPDX-License-Identifier: MIT */
/* The model of a NIC finds each field that is wrong, and each rule of posting that is broken. A bit
 * of a WQE that may be changed without a finding is in the list of those that mean another legal
 * request. */
#include "harness/cmocka.h"
#include "nic_pair.h"

/* Regions of exactly the bytes of a request: any other address leaves them. No key is another one
 * with one bit changed. */
enum { SMALL_PLACE = 4096 };
static const struct exact {
    uint32_t num_bytes, key;
} exacts[] = {{NIC_PAIR_MEMORY, 0x5a5a50},
              {WEFT__NIC_ATOMIC_BYTES, 0xa5a5a0},
              {12, 0x3c3c30},
              {WEFT__NIC_MAX_INLINE_BYTES, 0xc3c3c0}};
enum { NUM_EXACTS = sizeof exacts / sizeof *exacts };

static struct nic_pair pair; /* large */
static int is_rule_seen[WEFT__NIC_NUM_RULES];

static uint32_t place_of(uint32_t num_bytes)
{
    return num_bytes == NIC_PAIR_MEMORY ? 0 : SMALL_PLACE;
}

static void open_pair(const struct nic_pair_config *config)
{
    nic_pair_open(&pair, config);
    for (int i = 0; i < 2 * NUM_EXACTS; i++) {
        const struct exact *exact = &exacts[i / 2];
        struct nic_side *side = &pair.sides[i % 2];
        assert_ok(weft__nic_model_add_region(
            side->model, &(struct weft__nic_region){
                             .address = (uintptr_t)side->memory[0] + place_of(exact->num_bytes),
                             .num_bytes = exact->num_bytes,
                             .local_key = exact->key,
                             .remote_key = exact->key,
                             .rights = WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE |
                                       WEFT__NIC_REMOTE_READ | WEFT__NIC_REMOTE_ATOMIC}));
    }
}

/* ---------------------------------------------------------------- bits of a WQE */

static const uint8_t counting[WEFT__NIC_MAX_INLINE_BYTES] = {1, 2, 3, 4, 5, 6, 7};

static const struct base {
    enum weft__nic_opcode opcode;
    uint32_t num_bytes;
    int is_inline;
} bases[] = {{WEFT__NIC_NOP, 0, 0},
             {WEFT__NIC_WRITE, NIC_PAIR_MEMORY, 0},
             {WEFT__NIC_WRITE_IMMEDIATE, NIC_PAIR_MEMORY, 0},
             {WEFT__NIC_READ, NIC_PAIR_MEMORY, 0},
             {WEFT__NIC_FETCH_ADD, WEFT__NIC_ATOMIC_BYTES, 0},
             {WEFT__NIC_DUMP, NIC_PAIR_MEMORY, 0},
             {WEFT__NIC_WRITE, 12, 1},
             {WEFT__NIC_WRITE, 28, 1}};

enum {
    ANY = -1,
    SHORT_INLINE = 6,
    LONG_INLINE = 7,
    DUMP_BASE = 5,
    ADD_BASE = 4,
    IMMEDIATE_BASE = 2
};

/* A changed bit of the mask breaks this rule; FINE means that it is another legal request. The
 * first row that fits holds. Words of the data segment are counted from its beginning. */
#define DATA(word) (-1 - (word))
static const struct row {
    int base, word;
    uint32_t mask;
    enum weft__nic_rule rules[3]; /* any of these; unused ones repeat the first */
} rows[] = {
#define IS(rule)                                                                                   \
    {                                                                                              \
        WEFT__NIC_##rule, WEFT__NIC_##rule, WEFT__NIC_##rule                                       \
    }
    {ANY, 0, 0xff000000, IS(RULE_MODIFIER)},
    {ANY, 0, 0x00ffff00, IS(RULE_INDEX)},
    {IMMEDIATE_BASE, 0, 0x00000001, IS(RULE_IMMEDIATE)}, /* a plain write */
    /* Another opcode mostly needs other segments. */
    {ANY, 0, 0x000000ff, {WEFT__NIC_RULE_OPCODE, WEFT__NIC_RULE_SEGMENTS, WEFT__NIC_RULE_RECEIVE}},
    {ANY, 1, 0xffffff00, IS(RULE_QP)},
    {ANY, 1, 0x000000ff, IS(RULE_SEGMENTS)},
    {ANY, 2, 0xff000000, IS(RULE_SIGNATURE)},
    {ANY, 2, 0x00ffff00, IS(RULE_STREAM)},
    {ANY, 2, 0x00000080, IS(FINE)}, /* it waits for earlier READs */
    {ANY, 2, 0x00000060, IS(RULE_FENCE)},
    {ANY, 2, 0x00000011, IS(RULE_FLAGS)},
    {ANY, 2, 0x00000008, IS(RULE_LAST_SILENT)},
    {ANY, 2, 0x00000004, IS(RULE_COMPLETION)},
    {ANY, 2, 0x00000002, IS(RULE_SOLICITED)},
    {IMMEDIATE_BASE, 3, 0xffffffff, IS(FINE)}, /* another immediate */
    {ANY, 3, 0xffffffff, IS(RULE_IMMEDIATE)},
    {SHORT_INLINE, DATA(0), 0x0000000c, IS(FINE)}, /* fewer bytes in as many segments */
    {SHORT_INLINE, DATA(0), 0x00000013, IS(RULE_SEGMENTS)},
    {SHORT_INLINE, DATA(0), 0x80000000, IS(RULE_LOCAL_KEY)},
    {LONG_INLINE, DATA(0), 0x0000000c, IS(FINE)},
    {LONG_INLINE, DATA(0), 0x80000010, IS(RULE_SEGMENTS)},
    {SHORT_INLINE, DATA(0), 0xffffffff, IS(RULE_INLINE_BYTES)},
    {LONG_INLINE, DATA(0), 0xffffffff, IS(RULE_INLINE_BYTES)},
    {ADD_BASE, DATA(0), 0x80000000, IS(RULE_INLINE)},
    {ADD_BASE, DATA(0), 0xffffffff, IS(RULE_SINK_BYTES)},
    {ADD_BASE, 8, 0xffffffff, IS(FINE)}, /* another addend */
    {ADD_BASE, 9, 0xffffffff, IS(FINE)},
    {ADD_BASE, 10, 0xffffffff, IS(FINE)}, /* no operand: libmlx5 leaves what was there */
    {ADD_BASE, 11, 0xffffffff, IS(FINE)},
    {DUMP_BASE, DATA(0), 0x80000000, IS(RULE_INLINE)},
    {3, DATA(0), 0x80000000, IS(RULE_INLINE)},
    {ANY, DATA(0), 0x80000000, IS(RULE_INLINE_BYTES)},
    {ANY, DATA(0), 0x40010000, IS(RULE_BYTES)},
    {ANY, DATA(0), 0x3ffeffff, IS(RULE_LOCAL_RANGE)},
    {ANY, DATA(1), 0xffffffff, IS(RULE_LOCAL_KEY)},
    {ANY, DATA(2), 0xffffffff, IS(RULE_LOCAL_RANGE)},
    {ANY, DATA(3), 0xffffffff, IS(RULE_LOCAL_RANGE)},
    {ANY, 4, 0xffffffff, IS(RULE_REMOTE_RANGE)},
    {ANY, 5, 0xffffffff, IS(RULE_REMOTE_RANGE)},
    {ANY, 6, 0xffffffff, IS(RULE_REMOTE_KEY)},
    {ANY, 7, 0xffffffff, IS(RULE_REMOTE_UNUSED)},
};

static int data_word(const struct base *base)
{
    return base->opcode == WEFT__NIC_DUMP ? 4 : base->opcode == WEFT__NIC_FETCH_ADD ? 12 : 8;
}

static const struct row other_bytes = {.base = ANY}; /* of an inline write: legal */

static const struct row *row_of(int base_idx, int word, uint32_t bit)
{
    const int in_data = DATA(word - data_word(&bases[base_idx]));
    if (bases[base_idx].is_inline && in_data < DATA(0))
        return &other_bytes;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].base == ANY || rows[i].base == base_idx) && (rows[i].mask & bit) != 0 &&
            (rows[i].word == word || (in_data < 0 && rows[i].word == in_data)))
            return &rows[i];
    fail_msg("no row for base %d, word %d, bit 0x%x", base_idx, word, bit);
    return NULL;
}

/* Said here once more, since the model's own table is under test. */
static uint32_t syndrome_of(enum weft__nic_rule rule)
{
    switch (rule) {
    case WEFT__NIC_FINE:
    case WEFT__NIC_RULE_LAST_SILENT:
        return 0;
    case WEFT__NIC_RULE_LOCAL_KEY:
    case WEFT__NIC_RULE_LOCAL_RANGE:
    case WEFT__NIC_RULE_LOCAL_RIGHTS:
        return 0x04;
    case WEFT__NIC_RULE_REMOTE_KEY:
    case WEFT__NIC_RULE_REMOTE_RANGE:
    case WEFT__NIC_RULE_REMOTE_RIGHTS:
        return 0x13;
    case WEFT__NIC_RULE_ALIGNMENT:
        return 0x12;
    case WEFT__NIC_RULE_RECEIVE:
        return 0x16;
    default:
        return 0x02;
    }
}

static struct weft__nic_request request_of(const struct base *base)
{
    const uint32_t place = place_of(base->num_bytes);
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, base->opcode, place, place, base->num_bytes);
    for (int i = 0; i < NUM_EXACTS; i++)
        if (exacts[i].num_bytes == base->num_bytes)
            request.local_key = request.remote_key = exacts[i].key;
    request.immediate = 7;
    if (base->is_inline)
        request.inline_bytes = counting;
    return request;
}

/* The rule that the one request breaks, whose completion must say so. */
static enum weft__nic_rule outcome(void)
{
    struct weft__nic_cqe cqe = {.syndrome = 0};
    struct weft__nic_tail tail;
    enum weft__nic_rule rule = WEFT__NIC_FINE;
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    const int is_polled = nic_pair_poll(&pair, 0, 0, &cqe, &tail);
    if (nic_pair_num_findings(&pair) > 0) {
        rule = pair.last_finding.rule;
        assert_int_equal(pair.findings[rule], 1); /* once, however many pieces are refused */
        assert_int_equal(nic_pair_num_findings(&pair), 1);
    }
    assert_int_equal(is_polled, rule != WEFT__NIC_RULE_LAST_SILENT);
    assert_int_equal(cqe.syndrome, syndrome_of(rule));
    assert_int_equal(cqe.vendor_syndrome, syndrome_of(rule) != 0 ? rule : 0);
    assert_int_equal(pair.num_stray, 0);
    is_rule_seen[rule] = 1;
    return rule;
}

static void change_bit(int base_idx, int word, uint32_t bit)
{
    const struct row *row = row_of(base_idx, word, bit);
    const struct weft__nic_request request = request_of(&bases[base_idx]);
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_unit(&pair, 0, 0, 0)->words[word] ^= weft__nic_be32(bit);
    enum weft__nic_rule rule = outcome();
    if (rule == WEFT__NIC_RULE_RECEIVE && bases[base_idx].opcode == WEFT__NIC_WRITE_IMMEDIATE)
        rule = WEFT__NIC_FINE; /* as without the change */
    if (rule != row->rules[0] && rule != row->rules[1] && rule != row->rules[2])
        fail_msg("base %d, word %d, bit 0x%x: rule %d, not %d", base_idx, word, bit, rule,
                 row->rules[0]);
}

TEST(each_changed_bit_is_found_or_means_another_request)
{
    int num_found = 0, num_legal = 0;
    for (int base = 0; base < (int)(sizeof bases / sizeof *bases); base++) {
        uint32_t num_segments = 1;
        for (int word = 0; word < (int)num_segments * WEFT__NIC_SEGMENT_WORDS; word++)
            for (int bit = 0; bit < 32; bit++) {
                const enum weft__nic_rule rule = row_of(base, word, 1u << bit)->rules[0];
                if (base == IMMEDIATE_BASE && rule == WEFT__NIC_RULE_LAST_SILENT)
                    continue; /* the target refuses it, which makes a completion */
                open_pair(&(struct nic_pair_config){.seed = (uint64_t)bit, .depth = 8});
                const struct weft__nic_request request = request_of(&bases[base]);
                struct weft__nic_unit unit;
                (void)weft__nic_encode(&request, &unit);
                num_segments = weft__nic_decode_control(unit.words).num_segments;
                change_bit(base, word, 1u << bit);
                num_legal += rule == WEFT__NIC_FINE;
                num_found += rule != WEFT__NIC_FINE;
                nic_pair_close(&pair);
            }
    }
    print_message("%d changed bits are found, %d mean another request\n", num_found, num_legal);
}

/* ---------------------------------------------------------------- other rules, one by one */

static void write_one(void)
{
    const struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, WEFT__NIC_WRITE, 0, 0, 64);
    nic_pair_write(&pair, 0, 0, &request);
}

static void ring_words(uint32_t first, uint32_t second)
{
    const uint32_t words[] = {weft__nic_be32(first), weft__nic_be32(second)};
    uint64_t value;
    memcpy(&value, words, sizeof value);
    nic_pair_store_record(&pair, 0, 0);
    weft__nic_model_ring(pair.sides[0].model, value);
}

static void store_record(uint32_t value)
{
    pair.sides[0].records[0][WEFT__NIC_RECORD_SEND_WORD] = weft__nic_be32(value);
    weft__nic_model_ring(pair.sides[0].model, weft__nic_doorbell(0, NIC_PAIR_FIRST_QP));
}

/* Statements that break a rule. */
#define PLANT(name, ...)                                                                           \
    static void name(void)                                                                         \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
PLANT(ring_an_unknown_queue, ring_words(0, 0x123400))
PLANT(ring_with_a_modifier, write_one(); ring_words(0x01000100, NIC_PAIR_FIRST_QP << 8))
PLANT(ring_with_an_opcode, write_one(); ring_words(0x0000000a, (NIC_PAIR_FIRST_QP << 8) | 3))
PLANT(ring_with_segments, write_one(); ring_words(0x00000100, (NIC_PAIR_FIRST_QP << 8) | 3))
PLANT(ring_before_the_record, write_one();
      weft__nic_model_ring(pair.sides[0].model, weft__nic_doorbell(1, NIC_PAIR_FIRST_QP)))
PLANT(store_a_long_record, write_one(); store_record(0x10001))

static void store_a_record_that_falls_back(void)
{
    write_one();
    write_one();
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    store_record(1);
}

static void store_a_record_that_falls_back_to_zero(void)
{
    write_one();
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    store_record(0);
}

PLANT(store_a_record_beyond_the_queue, store_record(9))

static void change_a_unit(void)
{
    write_one();
    nic_pair_ring(&pair, 0, 0);
    while (pair.cable.num_answers == 0)
        assert_true(nic_pair_step(&pair));
    nic_pair_unit(&pair, 0, 0, 0)->words[8] ^= 1;
}

static void dump_without_a_fence(void)
{
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, WEFT__NIC_READ, 0, 0, NIC_PAIR_MEMORY);
    nic_pair_write(&pair, 0, 0, &request);
    request = nic_pair_request(&pair, 0, 0, WEFT__NIC_DUMP, 0, 0, NIC_PAIR_MEMORY);
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
}

/* It has come, but the answer is under way. */
static void change_a_source(void)
{
    enum { ENOUGH_STEPS = 200 };
    pair.sides[0].memory[0][0] = 7;
    write_one();
    nic_pair_ring(&pair, 0, 0);
    while (pair.sides[1].memory[0][0] != 7)
        assert_true(nic_pair_step(&pair));
    pair.sides[0].memory[0][0] = 8;
    for (int i = 0; i < ENOUGH_STEPS; i++)
        (void)weft__nic_model_step(pair.sides[0].model);
}

/* The NIC reads nothing again that is answered: who hears from the target may write it. */
TEST(a_source_may_change_when_its_bytes_are_answered)
{
    enum { NUM_SEEDS = 50, ENOUGH_STEPS = 200 };
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        open_pair(&(struct nic_pair_config){.seed = seed, .depth = 8});
        pair.sides[0].memory[0][0] = 7;
        write_one();
        nic_pair_ring(&pair, 0, 0);
        while (pair.sides[1].memory[0][0] != 7)
            assert_true(nic_pair_step(&pair));
        while (weft__nic_cable_step(&pair.cable))
            continue;
        pair.sides[0].memory[0][0] = 8;
        for (int i = 0; i < ENOUGH_STEPS; i++)
            (void)weft__nic_model_step(pair.sides[0].model);
        nic_pair_settle(&pair);
        assert_int_equal(nic_pair_num_findings(&pair), 0);
        nic_pair_close(&pair);
    }
}

static void poll_nothing(void)
{
    for (int lap = 0; lap < 2; lap++) {
        for (uint32_t i = 0; i < pair.config.depth; i++)
            write_one();
        nic_pair_ring(&pair, 0, 0);
        nic_pair_settle(&pair);
    }
}

/* A write, and the signal that counts it, between which nothing flushes. */
static void signal_in_another_kind(void)
{
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, WEFT__NIC_FETCH_ADD, 0, 0, WEFT__NIC_ATOMIC_BYTES);
    write_one();
    request.index++;
    request.remote_key++;
    request.remote_address = (uintptr_t)pair.sides[1].memory[1];
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
}

static void post_changed(enum weft__nic_opcode opcode, uint32_t local_key, uint32_t remote_key,
                         uint32_t remote_offset)
{
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, opcode, 0, remote_offset, WEFT__NIC_ATOMIC_BYTES);
    request.local_key = local_key;
    request.remote_key = remote_key;
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
}

PLANT(read_to_memory_without_the_right,
      post_changed(WEFT__NIC_READ, NIC_PAIR_BARE_LOCAL_KEY, NIC_PAIR_REMOTE_KEY, 0))
PLANT(read_without_the_right,
      post_changed(WEFT__NIC_READ, NIC_PAIR_LOCAL_KEY, NIC_PAIR_BARE_REMOTE_KEY, 0))
PLANT(write_without_the_right,
      post_changed(WEFT__NIC_WRITE, NIC_PAIR_LOCAL_KEY, NIC_PAIR_BARE_REMOTE_KEY, 0))
PLANT(add_without_the_right,
      post_changed(WEFT__NIC_FETCH_ADD, NIC_PAIR_LOCAL_KEY, NIC_PAIR_BARE_REMOTE_KEY, 0))
PLANT(add_to_half_a_word,
      post_changed(WEFT__NIC_FETCH_ADD, NIC_PAIR_LOCAL_KEY, NIC_PAIR_REMOTE_KEY, 4))
PLANT(send_an_immediate,
      post_changed(WEFT__NIC_WRITE_IMMEDIATE, NIC_PAIR_LOCAL_KEY, NIC_PAIR_REMOTE_KEY, 0))

static void make_a_queue_of_a_used_word(int word)
{
    struct nic_side *side = &pair.sides[0];
    side->records[1][word] = weft__nic_be32(1);
    assert_ok(weft__nic_model_add_queue(
        side->model, &(struct weft__nic_queue_config){.qp = 1,
                                                      .units = (uintptr_t)side->units[1],
                                                      .depth = 8,
                                                      .record = (uintptr_t)side->records[1]}));
}

/* rocm-xio took this word for that of sends. */
PLANT(make_a_queue_of_a_used_word_of_receives, make_a_queue_of_a_used_word(0))
PLANT(make_a_queue_of_a_used_word_of_sends, make_a_queue_of_a_used_word(WEFT__NIC_RECORD_SEND_WORD))

static void make_a_cq_of_zeros(void)
{
    uint32_t cq_idx;
    memset(pair.sides[0].cqes[1], 0, sizeof pair.sides[0].cqes[1]);
    assert_ok(
        weft__nic_model_add_cq(pair.sides[0].model,
                               &(struct weft__nic_cq_config){
                                   .entries = (uintptr_t)pair.sides[0].cqes[1], .num_entries = 1},
                               &cq_idx));
}

/* As libmlx5 leaves the entries of a ring. */
static void make_a_collapsed_cq_of_invalid_zeros(void)
{
    uint32_t cq_idx;
    pair.sides[0].cqes[1][0].words[WEFT__NIC_CQE_TAIL_WORD] = weft__nic_be32(0xf0);
    assert_ok(weft__nic_model_add_cq(
        pair.sides[0].model,
        &(struct weft__nic_cq_config){.kind = WEFT__NIC_CQ_COLLAPSED,
                                      .entries = (uintptr_t)pair.sides[0].cqes[1],
                                      .num_entries = 1},
        &cq_idx));
}

static const struct planted {
    void (*plant)(void);
    enum weft__nic_rule rule;
} planted[] = {
    {ring_an_unknown_queue, WEFT__NIC_RULE_DOORBELL_QP},
    {ring_with_a_modifier, WEFT__NIC_RULE_DOORBELL_MODIFIER},
    {ring_with_an_opcode, WEFT__NIC_RULE_DOORBELL_OPCODE},
    {ring_with_segments, WEFT__NIC_RULE_DOORBELL_SEGMENTS},
    {ring_before_the_record, WEFT__NIC_RULE_DOORBELL_AHEAD},
    {store_a_long_record, WEFT__NIC_RULE_RECORD_UPPER},
    {store_a_record_that_falls_back, WEFT__NIC_RULE_RECORD_BACK},
    {store_a_record_that_falls_back_to_zero, WEFT__NIC_RULE_RECORD_BACK},
    {dump_without_a_fence, WEFT__NIC_RULE_DUMP_EARLY},
    {store_a_record_beyond_the_queue, WEFT__NIC_RULE_RECORD_PASSES},
    {change_a_unit, WEFT__NIC_RULE_UNIT_CHANGED},
    {change_a_source, WEFT__NIC_RULE_SOURCE_CHANGED},
    {poll_nothing, WEFT__NIC_RULE_CQ_OVERRUN},
    {signal_in_another_kind, WEFT__NIC_RULE_KINDS},
    {read_to_memory_without_the_right, WEFT__NIC_RULE_LOCAL_RIGHTS},
    {read_without_the_right, WEFT__NIC_RULE_REMOTE_RIGHTS},
    {write_without_the_right, WEFT__NIC_RULE_REMOTE_RIGHTS},
    {add_without_the_right, WEFT__NIC_RULE_REMOTE_RIGHTS},
    {add_to_half_a_word, WEFT__NIC_RULE_ALIGNMENT},
    {send_an_immediate, WEFT__NIC_RULE_RECEIVE},
    {make_a_queue_of_a_used_word_of_receives, WEFT__NIC_RULE_FIRST_RECORD},
    {make_a_queue_of_a_used_word_of_sends, WEFT__NIC_RULE_FIRST_RECORD},
    {make_a_cq_of_zeros, WEFT__NIC_RULE_FIRST_CQE},
    {make_a_collapsed_cq_of_invalid_zeros, WEFT__NIC_RULE_FIRST_CQE},
};

/* And no other finding with it. */
TEST(each_broken_rule_is_found)
{
    enum { NUM_SEEDS = 50 };
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
            open_pair(&(struct nic_pair_config){.seed = seed, .depth = 8});
            planted[i].plant();
            nic_pair_settle(&pair);
            if (pair.findings[planted[i].rule] == 0 ||
                pair.findings[planted[i].rule] != nic_pair_num_findings(&pair))
                fail_msg("planted %d, seed %d: %d findings, %d of them of rule %d", (int)i,
                         (int)seed, nic_pair_num_findings(&pair), pair.findings[planted[i].rule],
                         planted[i].rule);
            is_rule_seen[planted[i].rule] = 1;
            nic_pair_close(&pair);
        }
}

/* Nobody knows that a silent request is done, so that its unit is not free. */
TEST(a_unit_is_free_once_a_completion_says_so)
{
    open_pair(&(struct nic_pair_config){.depth = 8, .last = WEFT__NIC_LAST_MAY_BE_SILENT});
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, 0, WEFT__NIC_WRITE, 0, 0, WEFT__NIC_ATOMIC_BYTES);
    request.completion = WEFT__NIC_ON_ERROR;
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    for (int i = 0; i < 8; i++)
        write_one();
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    assert_int_equal(pair.findings[WEFT__NIC_RULE_RECORD_PASSES], 1);
    nic_pair_close(&pair);
}

/* A READ between the two makes the signal legal. */
TEST(a_flush_lets_a_signal_count_another_kind)
{
    enum { NUM_SEEDS = 50 };
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        open_pair(&(struct nic_pair_config){.seed = seed, .depth = 8});
        write_one();
        const struct weft__nic_request flush =
            nic_pair_request(&pair, 0, 0, WEFT__NIC_READ, 128, 0, 8);
        nic_pair_write(&pair, 0, 0, &flush);
        struct weft__nic_request signal =
            nic_pair_request(&pair, 0, 0, WEFT__NIC_FETCH_ADD, 256, 0, WEFT__NIC_ATOMIC_BYTES);
        signal.remote_key++;
        signal.remote_address = (uintptr_t)pair.sides[1].memory[1];
        nic_pair_write(&pair, 0, 0, &signal);
        nic_pair_ring(&pair, 0, 0);
        nic_pair_settle(&pair);
        assert_int_equal(nic_pair_num_findings(&pair), 0);
        nic_pair_close(&pair);
    }
}

TEST(all_rules_were_broken_and_have_a_text)
{
    char texts[WEFT__NIC_NUM_RULES][WEFT__NIC_FINDING_BYTES];
    for (int rule = WEFT__NIC_FINE + 1; rule < WEFT__NIC_NUM_RULES; rule++) {
        if (!is_rule_seen[rule])
            fail_msg("nobody broke rule %d", rule);
        weft__nic_finding_text(
            &(struct weft__nic_finding){.rule = (enum weft__nic_rule)rule, .value = 1},
            texts[rule]);
        for (int other = WEFT__NIC_FINE + 1; other < rule; other++)
            assert_string_not_equal(texts[rule], texts[other]);
    }
    weft__nic_finding_text(
        &(struct weft__nic_finding){
            .rule = WEFT__NIC_RULE_SEGMENTS, .qp = 0xabcde, .index = 77, .value = 5, .allowed = 3},
        texts[0]);
    assert_string_equal(texts[0], "QP 0xabcde, unit 77: number of segments is 0x5; allowed: what "
                                  "the opcode needs, 0x3");
    assert_string_equal(weft__nic_syndrome_text(0x15), "transport retries exceeded");
    assert_string_equal(weft__nic_syndrome_text(0x99), "unknown syndrome");
}
