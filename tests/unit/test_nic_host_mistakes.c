/* SPDX-License-Identifier: MIT */
/* The stand-in for the kernel and the firmware finds each wrong field of the commands that make the
 * queues of a NIC, and weft tells what was refused: the commands are spoiled on their way to
 * libmlx5. Skipped where its headers are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <stdio.h>

#include "nic_firmware.h"
#include "nic_host.h"

/* ---------------------------------------------------------------- between weft and the library */

/* A change of a command. */
struct mistake {
    uint32_t opcode;
    const char *field;
    int64_t added;
    const char *complaint; /* of the firmware; NULL: it does not find it */
};

static struct {
    const struct weft__verbs *real;
    struct weft__verbs spoiled;
    const struct mistake *mistake;
    int flips_bits; /* each, before the command itself */
    int num_flipped;
    struct nic_host host;
} job;

/* Firmware cannot know what these should be. Other tests find it, by the data. */
static int may_be_anything(const struct nic_command_layout *layout, uint32_t bit)
{
    static const char *const names[] = {"dbr_addr",    "cq_umem_offset", "wq_umem_offset",
                                        "log_cq_size", "log_sq_size",    "user_index",
                                        "mtu",         "min_rnr_nak",    "hop_limit",
                                        "udp_sport",   "log_rra_max",    "log_sra_max",
                                        "ack_timeout", "retry_count",    "rnr_retry"};
    const struct nic_field *field = nic_firmware_field(layout, bit);
    for (size_t i = 0; field != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(field->name, names[i]) == 0)
            return 1;
    return 0;
}

typedef int send(void *target, const void *in, size_t in_bytes, void *out, size_t out_bytes);

/* Each bit that is wrong is refused, by the name of its field. */
static void flip_bits(void *target, const void *in, size_t in_bytes, send *send_command)
{
    uint8_t bytes[WEFT__DEVX_MAX_COMMAND_BYTES], out[WEFT__DEVX_ANSWER_BYTES];
    const struct nic_command_layout *layout = nic_firmware_layout(in, in_bytes);
    assert_non_null(layout);
    memcpy(bytes, in, in_bytes);
    for (uint32_t bit = 16; bit < in_bytes * 8; bit++) { /* behind the opcode */
        if (may_be_anything(layout, bit))
            continue;
        const struct nic_field *field = nic_firmware_field(layout, bit);
        char name[64];
        if (field != NULL)
            snprintf(name, sizeof name, "%s: %s", layout->name, field->name);
        else
            snprintf(name, sizeof name, "%s: bit 0x%x", layout->name, bit);
        bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        memset(out, 0, sizeof out);
        const int error = send_command(target, bytes, in_bytes, out, sizeof out);
        const char *complaint = nic_hardware_complaint();
        bytes[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
        /* An address that is another's is told by one of its parts. */
        const int is_address =
            field != NULL && (strcmp(field->name, "rgid") == 0 || strcmp(field->name, "rlid") == 0);
        if (error == 0 || (!is_address && strstr(complaint, name) != complaint))
            fail_msg("%s: result %d, \"%s\"", name, error, complaint);
        job.num_flipped++;
    }
}

static void spoil(const void *in, size_t in_bytes, uint8_t *bytes)
{
    const struct mistake *mistake = job.mistake;
    memcpy(bytes, in, in_bytes);
    if (mistake == NULL || nic_firmware_get(bytes, 0, 16) != mistake->opcode)
        return;
    const struct nic_field *field = nic_firmware_layout(bytes, in_bytes)->fields;
    while (strcmp(field->name, mistake->field) != 0)
        field++;
    const uint64_t value = nic_firmware_value(bytes, in_bytes, mistake->field);
    nic_firmware_put(bytes, field->bit, field->num_bits, value + (uint64_t)mistake->added);
}

static int send_create(void *target, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    struct weft__mlx5dv_devx_obj *object =
        job.real->mlx5dv_devx_obj_create(target, in, in_bytes, out, out_bytes);
    if (object == NULL)
        return errno;
    assert_int_equal(job.real->mlx5dv_devx_obj_destroy(object), 0);
    return 0;
}

static int send_modify(void *target, const void *in, size_t in_bytes, void *out, size_t out_bytes)
{
    return job.real->mlx5dv_devx_obj_modify(target, in, in_bytes, out, out_bytes);
}

static struct weft__mlx5dv_devx_obj *create(struct weft__ibv_context *context, const void *in,
                                            size_t in_bytes, void *out, size_t out_bytes)
{
    uint8_t bytes[WEFT__DEVX_MAX_COMMAND_BYTES];
    if (job.flips_bits)
        flip_bits(context, in, in_bytes, send_create);
    spoil(in, in_bytes, bytes);
    return job.real->mlx5dv_devx_obj_create(context, bytes, in_bytes, out, out_bytes);
}

static int modify(struct weft__mlx5dv_devx_obj *object, const void *in, size_t in_bytes, void *out,
                  size_t out_bytes)
{
    uint8_t bytes[WEFT__DEVX_MAX_COMMAND_BYTES];
    if (job.flips_bits)
        flip_bits(object, in, in_bytes, send_modify);
    spoil(in, in_bytes, bytes);
    return job.real->mlx5dv_devx_obj_modify(object, bytes, in_bytes, out, out_bytes);
}

static int set_up(void **state)
{
    (void)state;
    nic_kernel_start(NIC_HOST_MAX_RANKS);
    assert_ok(weft__verbs_load(&job.real));
    job.spoiled = *job.real;
    job.spoiled.mlx5dv_devx_obj_create = create;
    job.spoiled.mlx5dv_devx_obj_modify = modify;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nic_kernel_stop();
    return 0;
}

/* ---------------------------------------------------------------- wrong fields */

static void flip_all_bits(uint32_t link)
{
    nic_kernel_reset();
    nic_kernel_world.link = link;
    job.num_flipped = 0;
    job.flips_bits = 1;
    assert_ok(nic_host_try(&job.host, 2, NIC_HOST_OF_HOST, &job.spoiled));
    job.flips_bits = 0;
    print_message("%d bits flipped\n", job.num_flipped);
    assert_true(job.num_flipped > 15000);
    nic_host_close(&job.host);
    assert_string_equal(nic_hardware_complaint(), "");
}

TEST_CALL(each_wrong_bit_is_found_over_infiniband, flip_all_bits(WEFT__IBV_INFINIBAND))
TEST_CALL(each_wrong_bit_is_found_over_ethernet, flip_all_bits(WEFT__IBV_ETHERNET))

static const struct mistake refused[] = {
    {WEFT__DEVX_CREATE_CQ, "cc", -1, "CREATE_CQ: cc is 0x0, not from 0x1 to 0x1"},
    {WEFT__DEVX_CREATE_CQ, "cq_umem_id", 1, "CREATE_CQ: cq_umem_id is 0x"},
    {WEFT__DEVX_CREATE_CQ, "cq_umem_offset", 64,
     "CREATE_CQ: cq_umem_offset is 0x10040, not aligned"},
    {WEFT__DEVX_CREATE_CQ, "dbr_addr", 4, "CREATE_CQ: dbr_addr is 0x10044, not aligned"},
    {WEFT__DEVX_CREATE_CQ, "dbr_addr", 1 << 30,
     "CREATE_CQ: dbr_addr is 0x40010040, behind the umem's end"},
    {WEFT__DEVX_CREATE_QP, "log_page_size", 4,
     "CREATE_QP: log_page_size is 0x4, not the page of the umem"},
    {WEFT__DEVX_CREATE_QP, "log_sq_size", 7,
     "CREATE_QP: wq_umem_offset is 0x10000, behind the umem's end"},
    {WEFT__DEVX_CREATE_QP, "rq_type", -3, "CREATE_QP: rq_type is 0x0, not from 0x3 to 0x3"},
    {WEFT__DEVX_CREATE_QP, "ts_format", -1, "CREATE_QP: ts_format is 0x0, not from 0x1 to 0x1"},
    {WEFT__DEVX_RST2INIT, "rae", -1, "RST2INIT: rae is 0x0, not from 0x1 to 0x1"},
    {WEFT__DEVX_RST2INIT, "vhca_port_num", 1,
     "RST2INIT: vhca_port_num is 0x2, not from 0x1 to 0x1"},
    {WEFT__DEVX_INIT2RTR, "rlid", 9, "INIT2RTR: rlid is 0xb, which nobody has"},
    {WEFT__DEVX_INIT2RTR, "mtu", 1, "INIT2RTR: mtu is 0x6, not from 0x1 to 0x5"},
    {WEFT__DEVX_RTR2RTS, "retry_count", -7, "RTR2RTS: retry_count is 0x0, not from 0x1 to 0x7"},
};

static void check_refused(const struct mistake *mistake)
{
    nic_kernel_reset();
    job.mistake = mistake;
    const weft_result result = nic_host_try(&job.host, 2, NIC_HOST_OF_HOST, &job.spoiled);
    job.mistake = NULL;
    const char *complaint = nic_hardware_complaint();
    if (result != WEFT_ERROR_SYSTEM || strstr(complaint, mistake->complaint) != complaint)
        fail_msg("%s of 0x%x: result %d, \"%s\"", mistake->field, mistake->opcode, result,
                 complaint);
    if (strstr(weft_last_error(), "mlx5_0 refuses to ") == NULL ||
        strstr(weft_last_error(), " of the queue to rank 1: status 0x3 (bad parameter), syndrome "
                                  "0x") == NULL)
        fail_msg("%s", weft_last_error());
    nic_host_close(&job.host);
    assert_string_equal(nic_hardware_complaint(), "");
}

TEST(weft_tells_what_was_refused)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check_refused(&refused[i]);
}

/* ---------------------------------------------------------------- fields that only data show */

static const struct mistake silent[] = {{WEFT__DEVX_CREATE_CQ, "cq_umem_offset", 1 << 16, NULL},
                                        {WEFT__DEVX_CREATE_QP, "wq_umem_offset", 1 << 16, NULL},
                                        {WEFT__DEVX_CREATE_QP, "dbr_addr", 8, NULL},
                                        {WEFT__DEVX_CREATE_QP, "dbr_addr", -8, NULL},
                                        {WEFT__DEVX_CREATE_QP, "log_sq_size", -1, NULL},
                                        {WEFT__DEVX_CREATE_CQ, "log_cq_size", 1, NULL}};

/* As many puts with signals as go around the queue twice. Returns whether all went well. */
static int data_are_right(void)
{
    const struct wp_access access = {.operation = WP_ACCESS_PUT_SIGNAL,
                                     .rank = 1,
                                     .target = 4096,
                                     .num_bytes = 256,
                                     .word = 8192,
                                     .add = 1};
    memset(nic_host_heap(&job.host, 0), 0x5a, access.num_bytes);
    for (uint64_t i = 0; i < NIC_HOST_DEPTH; i++) {
        uint64_t index, word;
        if (nic_host_post(&job.host, 0, &access, &index) != WP_STATUS_OK ||
            nic_host_await(&job.host, 0, 1, index) != WP_STATUS_OK)
            return 0;
        memcpy(&word, nic_host_heap(&job.host, 1) + access.word, sizeof word);
        if (word != i + 1 || memcmp(nic_host_heap(&job.host, 0), nic_host_heap(&job.host, 1) + 4096,
                                    access.num_bytes) != 0)
            return 0;
    }
    return nic_hardware_complaint()[0] == '\0';
}

/* Without any mistake first. */
TEST(data_show_the_other_mistakes)
{
    for (size_t i = 0; i <= sizeof silent / sizeof *silent; i++) {
        nic_kernel_reset();
        job.mistake = i > 0 ? &silent[i - 1] : NULL;
        const weft_result result = nic_host_try(&job.host, 2, NIC_HOST_OF_HOST, &job.spoiled);
        job.mistake = NULL;
        if ((result == WEFT_OK && data_are_right()) != (i == 0))
            fail_msg("%s: result %d", i > 0 ? silent[i - 1].field : "no mistake", result);
        (void)nic_hardware_complaint();
        nic_host_close(&job.host);
        assert_string_equal(nic_hardware_complaint(), "");
    }
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
