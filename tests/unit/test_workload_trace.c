/* SPDX-License-Identifier: MIT */
/* The reader of MOETRACE files, on good and on corrupt files. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "workload/convert.h"
#include "workload/trace.h"

enum { T = 5, L = 3, K = 2, E = 7, LAYER_BYTES = T * K * (2 + 4) };

struct trace_file {
    char path[32];
    unsigned char bytes[32 + L * LAYER_BYTES];
    size_t num_bytes;
};

static void put_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

static int32_t expert_of(int layer, int selection)
{
    return (3 * selection + layer) % E;
}

static float weight_of(int layer, int selection)
{
    return (float)(layer * 100 + selection) / 1024;
}

static struct trace_file good_trace(uint32_t flags)
{
    const uint32_t fields[] = {1, T, L, K, E, flags};
    struct trace_file file = {.path = "/tmp/weft-trace-XXXXXX"};
    unsigned char *bytes = file.bytes;
    memcpy(bytes, "MOETRACE", 8);
    for (int i = 0; i < 6; i++)
        put_u32(&bytes[8 + 4 * i], fields[i]);
    bytes += 32;
    for (int layer = 0; layer < L; layer++) {
        for (int i = 0; i < T * K; i++, bytes += 2) {
            bytes[0] = (unsigned char)expert_of(layer, i);
            bytes[1] = 0;
        }
        for (int i = 0; i < T * K && flags; i++, bytes += 4)
            put_u32(bytes, fp32_bits(weight_of(layer, i)));
    }
    file.num_bytes = (size_t)(bytes - file.bytes);
    return file;
}

static struct trace *open_trace(struct trace_file *file, char error[TRACE_ERROR_BYTES])
{
    int fd = mkstemp(file->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file->bytes, file->num_bytes), file->num_bytes);
    close(fd);
    *error = '\0';
    struct trace *trace = trace_open(file->path, error);
    unlink(file->path);
    return trace;
}

TEST(trace_gives_what_was_written)
{
    char error[TRACE_ERROR_BYTES];
    struct trace_file file = good_trace(1);
    struct trace *trace = open_trace(&file, error);
    assert_non_null(trace);
    assert_int_equal(trace->num_tokens, T);
    assert_int_equal(trace->num_layers, L);
    assert_int_equal(trace->num_topk, K);
    assert_int_equal(trace->num_experts, E);
    for (int layer = 0; layer < L; layer++) {
        for (int first = 0; first <= T; first++) {
            int32_t topk_idx[T * K];
            float topk_weights[T * K];
            trace_read(trace, layer, first, T - first, topk_idx, topk_weights);
            for (int i = 0; i < (T - first) * K; i++) {
                assert_int_equal(topk_idx[i], expert_of(layer, first * K + i));
                assert_true(topk_weights[i] == weight_of(layer, first * K + i));
            }
        }
    }
    trace_close(trace);
}

TEST(trace_without_weights_weighs_evenly)
{
    char error[TRACE_ERROR_BYTES];
    struct trace_file file = good_trace(0);
    struct trace *trace = open_trace(&file, error);
    int32_t topk_idx[T * K];
    float topk_weights[T * K];
    assert_non_null(trace);
    trace_read(trace, 2, 0, T, topk_idx, topk_weights);
    for (int i = 0; i < T * K; i++) {
        assert_int_equal(topk_idx[i], expert_of(2, i));
        assert_true(topk_weights[i] == 1.0f / K);
    }
    trace_close(trace);
}

TEST(shares_of_ranks_tile_the_trace)
{
    const struct trace trace = {.num_tokens = 8222};
    for (int32_t num_ranks = 1; num_ranks < 20; num_ranks++) {
        assert_int_equal(trace_first_token(&trace, 0, num_ranks), 0);
        assert_int_equal(trace_first_token(&trace, num_ranks, num_ranks), 8222);
        for (int32_t r = 0; r < num_ranks; r++) {
            int32_t share = trace_first_token(&trace, r + 1, num_ranks) -
                            trace_first_token(&trace, r, num_ranks);
            assert_in_range(share, 8222 / num_ranks, 8222 / num_ranks + 1);
        }
    }
}

/* Each defect is told by a message that names the file and holds the given words. */
TEST(corrupt_traces_are_refused)
{
    const struct {
        size_t offset;
        uint32_t value;
        const char *words;
    } defects[] = {
        {0, 0x20454f4d, "does not begin with MOETRACE"},
        {8, 2, "version 2"},
        {12, T + 1, "bytes after the header"},
        {12, 0x80000000u, "2147483648 tokens, must be"},
        {16, 0, "0 layers, must be 1"},
        {16, L + 1, "bytes after the header"},
        {16, 0xffffffff, "4294967295 layers, must be 1 to 65536"},
        {20, 0, "0 topk, must be 1 to 64"},
        {20, 65, "65 topk, must be 1 to 64"},
        {24, 0, "0 experts, must be 1"},
        {24, 32769, "32769 experts, must be 1 to 32768"},
        {24, 3, "must be 0 to 2"},
        {28, 0, "bytes after the header"},
        {28, 3, "flags 0x3"},
        {32 + LAYER_BYTES + 4, 0xffff, "layer 1, token 1: expert -1, must be 0 to 6"},
        {32 + LAYER_BYTES + 8, E, "layer 1, token 2: expert 7, must be 0 to 6"},
    };
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        char error[TRACE_ERROR_BYTES];
        struct trace_file file = good_trace(1);
        put_u32(file.bytes + defects[i].offset, defects[i].value);
        assert_null(open_trace(&file, error));
        assert_non_null(strstr(error, file.path));
        if (!strstr(error, defects[i].words))
            fail_msg("message \"%s\" lacks \"%s\"", error, defects[i].words);
    }
}

TEST(truncated_traces_are_refused)
{
    struct trace_file whole = good_trace(1);
    for (size_t num_bytes = 0; num_bytes < whole.num_bytes; num_bytes++) {
        char error[TRACE_ERROR_BYTES];
        struct trace_file file = good_trace(1);
        file.num_bytes = num_bytes;
        assert_null(open_trace(&file, error));
        assert_non_null(strstr(error, num_bytes < 32 ? "shorter than the header" : "bytes after"));
    }
}

TEST(missing_traces_are_refused)
{
    char error[TRACE_ERROR_BYTES];
    assert_null(trace_open("/no/such.trace", error));
    assert_string_equal(error, "trace /no/such.trace: No such file or directory");
    assert_null(trace_open("/tmp", error));
    assert_string_equal(error, "trace /tmp: not a regular file");
}
