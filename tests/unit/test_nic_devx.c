/* SPDX-License-Identifier: MIT */
/* Commands to the firmware of a NIC, against words that a program has made out of the names of
 * fields in Linux's mlx5_ifc.h (6.1). That header does not name the fields of umems; they are those
 * that other drivers use. */
#include "harness/cmocka.h"
#include "net/nic/devx.h"

enum { MAX_WORDS = 20, NUM_WORDS = WEFT__DEVX_MAX_COMMAND_BYTES / 4 };

struct word {
    uint32_t idx, value; /* the highest byte first */
};

/* All words but these must be 0. */
static void check_words(const struct weft__devx_command *command, const struct word *words)
{
    assert_true(command->num_bytes <= WEFT__DEVX_MAX_COMMAND_BYTES);
    for (uint32_t i = 0; i < NUM_WORDS; i++) {
        const uint8_t *bytes = command->bytes + (size_t)4 * i;
        const uint32_t value = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
                               (uint32_t)bytes[2] << 8 | bytes[3];
        uint32_t expected = 0;
        for (const struct word *word = words; word->value != 0; word++)
            expected = word->idx == i ? word->value : expected;
        if (value != expected)
            fail_msg("word %d is 0x%x, not 0x%x", (int)i, value, expected);
    }
}

TEST(a_completion_queue_has_its_words)
{
    static const struct word words[] = {{0, 0x4000000},
                                        {4, 0x2120000},
                                        {5, 0x22334455},
                                        {7, 0x7abcdef},
                                        {9, 0x5c},
                                        {10, 0x4000000},
                                        {18, 0x6677},
                                        {19, 0x8899aab8},
                                        {20, 0x55667},
                                        {21, 0x78899000},
                                        {22, 0x11223344},
                                        {23, 0x80000000},
                                        {0}};
    const struct weft__devx_cq cq = {.entries = {0x11223344, 0x5566778899000},
                                     .record = {0x22334455, 0x66778899aab8},
                                     .log_entries = 7,
                                     .log_page = 16,
                                     .uar = 0xabcdef,
                                     .eqn = 0x5c};
    struct weft__devx_command command;
    weft__devx_create_cq(&cq, &command);
    assert_int_equal(command.num_bytes, 272);
    check_words(&command, words);
}

TEST(a_queue_pair_has_its_words)
{
    static const struct word words[] = {{0, 0x5000000},
                                        {6, 0x1800},
                                        {7, 0x789abc},
                                        {8, 0x5040},
                                        {9, 0x123456},
                                        {10, 0x345678},
                                        {11, 0x4000000},
                                        {37, 0xdef012},
                                        {45, 0xdef012},
                                        {46, 0x61626364},
                                        {47, 0x656667e8},
                                        {49, 0x3000000},
                                        {58, 0x10000000},
                                        {63, 0x51525354},
                                        {64, 0x41424},
                                        {65, 0x34445000},
                                        {66, 0x31323334},
                                        {67, 0x80000000},
                                        {0}};
    const struct weft__devx_qp qp = {.units = {0x31323334, 0x4142434445000},
                                     .record = {0x51525354, 0x61626364656667e8},
                                     .log_depth = 10,
                                     .log_page = 16,
                                     .uar = 0x123456,
                                     .pd = 0x789abc,
                                     .cq = 0xdef012,
                                     .user_index = 0x345678,
                                     .timestamps = 1};
    struct weft__devx_command command;
    weft__devx_create_qp(&qp, &command);
    assert_int_equal(command.num_bytes, 272);
    check_words(&command, words);
}

static const struct weft__devx_path ethernet = {
    .qp = 0xabcde,
    .port = 2,
    .gid_index = 3,
    .udp_port = 0xc0de,
    .mac = {1, 2, 3, 4, 5, 6},
    .mtu = 5,
    .log_reads = 4,
    .peer = {.qp = 0x76543,
             .link = WEFT__IBV_ETHERNET,
             .gid = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}}};

TEST(the_states_of_a_queue_pair_have_their_words)
{
    static const struct word init[] = {{0, 0x5020000}, {2, 0xabcde},  {6, 0x1800},
                                       {21, 0x20000},  {42, 0x3e000}, {0}};
    static const struct word receive_by_lid[] = {{0, 0x5030000}, {2, 0xabcde},    {8, 0xbe000000},
                                                 {11, 0x76543},  {13, 0x1234},    {21, 0x20000},
                                                 {42, 0x800000}, {43, 0xc000000}, {0}};
    static const struct word receive_by_gid[] = {
        {0, 0x5030000},   {2, 0xabcde},     {8, 0xbe000000},  {11, 0x76543},    {14, 0x300ff},
        {16, 0x10111213}, {17, 0x14151617}, {18, 0x18191a1b}, {19, 0x1c1d1e1f}, {20, 0xc0de},
        {21, 0x20102},    {22, 0x3040506},  {42, 0x800000},   {43, 0xc000000},  {0}};
    static const struct word send[] = {
        {0, 0x5040000}, {2, 0xabcde}, {14, 0x70000000}, {34, 0x87e000}, {0}};
    struct weft__devx_command command;
    struct weft__devx_path infiniband = ethernet;
    infiniband.peer.link = WEFT__IBV_INFINIBAND;
    infiniband.peer.lid = 0x1234;
    weft__devx_init_qp(&ethernet, &command);
    check_words(&command, init);
    weft__devx_ready_to_receive(&infiniband, &command);
    check_words(&command, receive_by_lid);
    weft__devx_ready_to_receive(&ethernet, &command);
    check_words(&command, receive_by_gid);
    weft__devx_ready_to_send(&ethernet, &command);
    check_words(&command, send);
}

TEST(answers_are_told_in_words)
{
    const uint8_t refused[WEFT__DEVX_ANSWER_BYTES] = {0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0x78},
                  unknown[WEFT__DEVX_ANSWER_BYTES] = {0xee};
    const uint8_t done[WEFT__DEVX_ANSWER_BYTES] = {[8] = 0xff, 0xab, 0xcd, 0xef};
    char text[WEFT__DEVX_STATUS_BYTES];
    struct weft__devx_answer answer = weft__devx_decode_answer(refused);
    weft__devx_status_text(&answer, text);
    assert_string_equal(text, "status 0x8 (limit exceeded), syndrome 0x12345678");
    answer = weft__devx_decode_answer(unknown);
    weft__devx_status_text(&answer, text);
    assert_string_equal(text, "status 0xee (unknown), syndrome 0x0");
    answer = weft__devx_decode_answer(done);
    assert_int_equal(answer.status, 0);
    assert_int_equal(answer.number, 0xabcdef);
}

/* ---------------------------------------------------------------- capabilities */

TEST(capabilities_are_asked_for)
{
    static const struct word words[] = {{0, 0x1000000}, {1, 0x9}, {0}};
    struct weft__devx_command command;
    weft__devx_query(WEFT__DEVX_ROCE, &command);
    assert_int_equal(command.num_bytes, 16);
    check_words(&command, words);
}

/* Bytes at places that Linux's mlx5_ifc.h gives. */
TEST(capabilities_are_understood)
{
    static uint8_t answer[WEFT__DEVX_CAPABILITY_BYTES];
    struct weft__devx_limits limits = {0};
    uint8_t *bytes = answer + 16;
    bytes[0x88 / 8] = 15;
    bytes[0x14a / 8] = 6;
    bytes[0x15a / 8] = 4;
    bytes[0x1c3 / 8] = 30;
    bytes[0x1fc / 8] = 1;
    weft__devx_take_capability(WEFT__DEVX_GENERAL, answer, &limits);
    assert_int_equal(limits.max_log_depth, 15);
    assert_int_equal(limits.max_log_reads, 4);
    bytes[0x14a / 8] = 3;
    weft__devx_take_capability(WEFT__DEVX_GENERAL, answer, &limits);
    assert_int_equal(limits.max_log_reads, 3);
    assert_int_equal(limits.max_log_message, 30);
    assert_int_equal(limits.cqe_version, 1);
    memset(answer, 0, sizeof answer);
    bytes[0x40 / 8] = 0x40; /* in the order of the processor */
    bytes[0x90 / 8 + 1] = 2;
    bytes[0xb0 / 8 + 1] = 8;
    weft__devx_take_capability(WEFT__DEVX_ATOMICS, answer, &limits);
    assert_int_equal(limits.has_fetch_add, 1);
    bytes[0x40 / 8] = 0;
    weft__devx_take_capability(WEFT__DEVX_ATOMICS, answer, &limits);
    assert_int_equal(limits.has_fetch_add, 0);
    memset(answer, 0, sizeof answer);
    weft__devx_take_capability(WEFT__DEVX_ROCE, answer, &limits);
    assert_int_equal(limits.timestamps, 0);
    bytes[3] = 2; /* free-running, or of real time */
    weft__devx_take_capability(WEFT__DEVX_ROCE, answer, &limits);
    assert_int_equal(limits.timestamps, 1);
    assert_int_equal(limits.max_log_depth, 15); /* the others stay */
}
