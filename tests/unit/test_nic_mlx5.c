/* SPDX-License-Identifier: MIT */
/* weft writes into the queues of a NIC the bytes that libmlx5 writes, which drives real ones. And
 * libmlx5 takes weft's completions. Skipped where the library's headers are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <endian.h>

#include "net/nic/wqe.h"
#include "nic_device.h"
#include "nic_kernel.h"
#include "workload/rng.h"

enum {
    MEMORY_BYTES = 1 << 16,
    NUM_REQUESTS = 1000000,
    OPERAND_WORD = 10 /* the second one of an atomic */
};

static struct nic_device device;
static uint64_t num_posted, num_polled;
static _Alignas(64) uint8_t memory[MEMORY_BYTES];

static int set_up(void **state)
{
    (void)state;
    nic_kernel_start(1);
    nic_device_open(&device, memory, sizeof memory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nic_device_close(&device);
    nic_kernel_stop();
    return 0;
}

/* ---------------------------------------------------------------- one request, for both */

static int may_be_inline(enum weft__nic_opcode opcode)
{
    return opcode == WEFT__NIC_WRITE || opcode == WEFT__NIC_WRITE_IMMEDIATE;
}

static struct weft__nic_request draw(uint64_t seed)
{
    static const enum weft__nic_opcode opcodes[] = {WEFT__NIC_WRITE, WEFT__NIC_WRITE_IMMEDIATE,
                                                    WEFT__NIC_READ, WEFT__NIC_FETCH_ADD};
    const uint64_t drawn = rng_hash(seed);
    struct weft__nic_request request = {
        .opcode = opcodes[drawn % 4],
        .completion = drawn >> 2 & 1 ? WEFT__NIC_ALWAYS : WEFT__NIC_ON_ERROR,
        .fence = drawn >> 3 & 1 ? WEFT__NIC_FENCE : WEFT__NIC_NO_FENCE,
        .qp = NIC_KERNEL_QP,
        .index = num_posted,
        .immediate = (uint32_t)rng_hash(seed + 1),
        .remote_key = (uint32_t)rng_hash(seed + 2),
        .remote_address = rng_hash(seed + 3),
        .addend = rng_hash(seed + 4),
        .local_key = (uint32_t)rng_hash(seed + 5),
        .local_address = rng_hash(seed + 6),
        .num_bytes = 1 + (uint32_t)(rng_hash(seed + 7) % WEFT__NIC_MAX_MESSAGE_BYTES)};
    if (request.opcode == WEFT__NIC_FETCH_ADD)
        request.num_bytes = WEFT__NIC_ATOMIC_BYTES;
    if (may_be_inline(request.opcode) && drawn >> 4 & 1) {
        request.inline_bytes = memory + (drawn >> 8) % (MEMORY_BYTES / 2);
        request.num_bytes = 1 + (uint32_t)(drawn >> 32) % WEFT__NIC_MAX_INLINE_BYTES;
    }
    return request;
}

static void post(const struct weft__nic_request *request)
{
    nic_device_post(&device, request);
    num_posted++;
}

/* The unit of the queue that the library has written must be ours, if ours is written over what
 * was there. */
static void compare(const struct weft__nic_request *request, const struct weft__nic_unit *before)
{
    struct weft__nic_unit ours = *before;
    const void *theirs = (const char *)device.raw_qp.sq.buf +
                         request->index % device.raw_qp.sq.wqe_cnt * WEFT__NIC_UNIT_BYTES;
    const uint32_t *record = device.raw_qp.dbrec + WEFT__NIC_RECORD_SEND_WORD;
    (void)weft__nic_encode(request, &ours);
    /* The operand that a fetch-add does not have: we write 0, the library leaves what was there. */
    if (request->opcode == WEFT__NIC_FETCH_ADD) {
        assert_int_equal(weft__nic_get64(ours.words + OPERAND_WORD), 0);
        memcpy(ours.words + OPERAND_WORD, before->words + OPERAND_WORD, sizeof(uint64_t));
    }
    const size_t num_bytes =
        weft__nic_decode_control(ours.words).num_segments * (size_t)WEFT__NIC_SEGMENT_BYTES;
    if (memcmp(&ours, theirs, num_bytes) != 0) {
        print_error("request %llu, opcode %d, %u bytes%s\n", (unsigned long long)request->index,
                    request->opcode, request->num_bytes, request->inline_bytes ? " inline" : "");
        assert_memory_equal(&ours, theirs, num_bytes);
    }
    assert_int_equal(*record, weft__nic_record(request->index + 1));
}

/* The library's doorbell, in the register that it has used last: the first bytes of the entry,
 * where code of GPUs stores the next index alone. The number of the queue pair is at the same
 * place in both. */
static void compare_doorbell(const struct weft__nic_request *request)
{
    uint32_t ours[2], theirs[2][2];
    const uint64_t value = weft__nic_doorbell(request->index + 1, request->qp);
    memcpy(ours, &value, sizeof ours);
    memcpy(theirs[0], device.raw_qp.bf.reg, sizeof theirs[0]);
    memcpy(theirs[1], (const char *)device.raw_qp.bf.reg + device.raw_qp.bf.size, sizeof theirs[1]);
    const uint32_t wanted = (uint32_t)(request->index & 0xffff) << 8 | (uint32_t)request->opcode;
    const int at = weft__nic_be32(theirs[0][0]) == wanted ? 0 : 1;
    assert_int_equal(weft__nic_be32(theirs[at][0]), wanted);
    assert_int_equal(weft__nic_be32(theirs[at][1]) >> 8, weft__nic_be32(ours[1]) >> 8);
    assert_int_equal(weft__nic_be32(ours[0]) >> 8, (request->index + 1) & 0xffff);
}

/* ---------------------------------------------------------------- completions by weft's hand */

static void complete(const struct weft__nic_request *request, uint32_t syndrome)
{
    struct weft__nic_unit *entry =
        (struct weft__nic_unit *)device.raw_cq.buf + num_polled % device.raw_cq.cqe_cnt;
    const struct weft__nic_cqe cqe = {.user_index = nic_kernel_user_index(),
                                      .num_bytes = request->num_bytes,
                                      .qp = request->qp,
                                      .request_opcode = (uint32_t)request->opcode,
                                      .syndrome = syndrome,
                                      .vendor_syndrome = syndrome != 0 ? 0x88 : 0};
    struct weft__nic_tail tail = {.counter = (uint32_t)(request->index & 0xffff),
                                  .opcode = syndrome == 0 ? WEFT__NIC_CQE_REQUEST
                                                          : WEFT__NIC_CQE_REQUEST_ERROR,
                                  .owner = num_polled / device.raw_cq.cqe_cnt % 2 == 0};
    struct ibv_wc wc;
    weft__nic_encode_cqe(&cqe, entry);
    entry->words[WEFT__NIC_CQE_TAIL_WORD] = weft__nic_encode_tail(&tail);
    assert_int_equal(ibv_poll_cq(device.cq, 1, &wc), 0); /* the owner of the lap before */
    tail.owner = !tail.owner;
    entry->words[WEFT__NIC_CQE_TAIL_WORD] = weft__nic_encode_tail(&tail);
    assert_int_equal(ibv_poll_cq(device.cq, 1, &wc), 1);
    num_polled++;
    assert_int_equal(wc.wr_id, request->index);
    assert_int_equal(wc.qp_num, request->qp);
    assert_int_equal(wc.status, syndrome == 0 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
    if (syndrome != 0) /* else the library leaves it */
        assert_int_equal(wc.vendor_err, cqe.vendor_syndrome);
    assert_int_equal(be32toh(device.raw_cq.dbrec[0]) & 0xffffff, num_polled & 0xffffff);
}

/* Batches of drawn length; a completion of the last entry of each frees all before it. */
TEST(requests_and_completions_are_those_of_libmlx5)
{
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)rng_hash(i);
    while (num_posted < NUM_REQUESTS) {
        const uint64_t seed = num_posted * 16;
        const uint64_t num_requests = 1 + rng_hash(seed + 15) % (NIC_DEVICE_MAX_POSTED - 1);
        struct weft__nic_request request;
        for (uint64_t i = 0; i < num_requests; i++) {
            struct weft__nic_unit before;
            request = draw(seed + 16 * i);
            if (i + 1 == num_requests)
                request.completion = WEFT__NIC_ALWAYS;
            memcpy(&before,
                   (const char *)device.raw_qp.sq.buf +
                       request.index % device.raw_qp.sq.wqe_cnt * WEFT__NIC_UNIT_BYTES,
                   sizeof before);
            post(&request);
            compare(&request, &before);
        }
        compare_doorbell(&request);
        complete(&request, 0);
    }
}

TEST(an_error_has_its_status)
{
    struct weft__nic_request request = draw(1);
    request.completion = WEFT__NIC_ALWAYS;
    post(&request);
    complete(&request, 0x13);
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
#else
int main(void)
{
    enum { SKIPPED = 77 };
    return SKIPPED;
}
#endif
