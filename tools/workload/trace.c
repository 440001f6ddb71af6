/* SPDX-License-Identifier: MIT */
#include "workload/trace.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft.h"

enum { HEADER_BYTES = 32, VERSION = 1, FLAG_WEIGHTS = 1, MAX_LAYERS = 65536, MAX_EXPERTS = 32768 };

static void explain(char *error, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void explain(char *error, const char *path, const char *format, ...)
{
    int length = snprintf(error, TRACE_ERROR_BYTES, "trace %s: ", path);
    if (length < 0 || length >= TRACE_ERROR_BYTES)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error + length, TRACE_ERROR_BYTES - (size_t)length, format, arguments);
    va_end(arguments);
}

static uint32_t read_u32(const unsigned char *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return le32toh(value);
}

static int32_t read_expert(const unsigned char *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return (int16_t)le16toh(value);
}

static uint64_t selections(const struct trace *trace)
{
    return (uint64_t)trace->num_tokens * (uint64_t)trace->num_topk;
}

static uint64_t layer_bytes(const struct trace *trace)
{
    uint64_t selection_bytes = trace->weights == TRACE_WITH_WEIGHTS ? 2 + 4 : 2;
    return selections(trace) * selection_bytes;
}

static const unsigned char *layer_start(const struct trace *trace, int32_t layer)
{
    return trace->file + HEADER_BYTES + (uint64_t)layer * layer_bytes(trace);
}

static int map_file(struct trace *trace, const char *path, char *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
    if (fd < 0) {
        explain(error, path, "%s", strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        explain(error, path, "not a regular file");
        return -1;
    }
    if (status.st_size < HEADER_BYTES) {
        close(fd);
        explain(error, path, "%lld bytes, shorter than the header of %d", (long long)status.st_size,
                HEADER_BYTES);
        return -1;
    }
    trace->file_bytes = (size_t)status.st_size;
    void *file = mmap(NULL, trace->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        explain(error, path, "cannot be mapped: %s", strerror(errno));
        return -1;
    }
    trace->file = file;
    return 0;
}

struct field {
    const char *name;
    uint32_t min, max;
    int32_t *value;
};

static int read_header(struct trace *trace, const char *path, char *error)
{
    const struct field fields[] = {
        {"tokens", 0, INT32_MAX, &trace->num_tokens},
        {"layers", 1, MAX_LAYERS, &trace->num_layers},
        {"topk", 1, WEFT_MAX_TOPK, &trace->num_topk},
        {"experts", 1, MAX_EXPERTS, &trace->num_experts},
    };
    const unsigned char *header = trace->file;
    if (memcmp(header, "MOETRACE", 8) != 0) {
        explain(error, path, "does not begin with MOETRACE");
        return -1;
    }
    uint32_t version = read_u32(header + 8);
    if (version != VERSION) {
        explain(error, path, "version %u, this reader knows %d", version, VERSION);
        return -1;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint32_t value = read_u32(header + 12 + 4 * i);
        if (value < fields[i].min || value > fields[i].max) {
            explain(error, path, "%u %s, must be %u to %u", value, fields[i].name, fields[i].min,
                    fields[i].max);
            return -1;
        }
        *fields[i].value = (int32_t)value;
    }
    uint32_t flags = read_u32(header + 28);
    if (flags & ~(uint32_t)FLAG_WEIGHTS) {
        explain(error, path, "flags 0x%x, this reader knows bit 0 only", flags);
        return -1;
    }
    trace->weights = flags & FLAG_WEIGHTS ? TRACE_WITH_WEIGHTS : TRACE_WITHOUT_WEIGHTS;
    return 0;
}

static int check_size(const struct trace *trace, const char *path, char *error)
{
    uint64_t content_bytes = trace->file_bytes - HEADER_BYTES;
    uint64_t per_layer = layer_bytes(trace);
    uint64_t num_layers = (uint64_t)trace->num_layers;
    if (per_layer * num_layers != content_bytes) {
        explain(error, path,
                "%llu bytes after the header, which promises %llu layers of %llu bytes",
                (unsigned long long)content_bytes, (unsigned long long)num_layers,
                (unsigned long long)per_layer);
        return -1;
    }
    return 0;
}

static int check_experts(const struct trace *trace, const char *path, char *error)
{
    for (int32_t layer = 0; layer < trace->num_layers; layer++) {
        const unsigned char *experts = layer_start(trace, layer);
        for (uint64_t i = 0; i < selections(trace); i++) {
            int32_t expert = read_expert(experts + 2 * i);
            if (expert < 0 || expert >= trace->num_experts) {
                explain(error, path, "layer %d, token %llu: expert %d, must be 0 to %d", layer,
                        (unsigned long long)(i / (uint64_t)trace->num_topk), expert,
                        trace->num_experts - 1);
                return -1;
            }
        }
    }
    return 0;
}

struct trace *trace_open(const char *path, char error[TRACE_ERROR_BYTES])
{
    struct trace *trace = calloc(1, sizeof *trace);
    if (!trace) {
        explain(error, path, "out of memory");
        return NULL;
    }
    if (map_file(trace, path, error) == 0 && read_header(trace, path, error) == 0 &&
        check_size(trace, path, error) == 0 && check_experts(trace, path, error) == 0)
        return trace;
    trace_close(trace);
    return NULL;
}

void trace_close(struct trace *trace)
{
    if (!trace)
        return;
    if (trace->file)
        munmap((void *)trace->file, trace->file_bytes);
    free(trace);
}

void trace_read(const struct trace *trace, int32_t layer, int32_t first_token, int32_t num_tokens,
                int32_t *topk_idx, float *topk_weights)
{
    uint64_t first = (uint64_t)first_token * (uint64_t)trace->num_topk;
    uint64_t count = (uint64_t)num_tokens * (uint64_t)trace->num_topk;
    const unsigned char *experts = layer_start(trace, layer) + 2 * first;
    const unsigned char *weights = layer_start(trace, layer) + 2 * selections(trace) + 4 * first;
    for (uint64_t i = 0; i < count; i++)
        topk_idx[i] = read_expert(experts + 2 * i);
    for (uint64_t i = 0; topk_weights && i < count; i++) {
        uint32_t bits = trace->weights == TRACE_WITH_WEIGHTS ? read_u32(weights + 4 * i) : 0;
        memcpy(&topk_weights[i], &bits, sizeof bits);
        if (trace->weights == TRACE_WITHOUT_WEIGHTS)
            topk_weights[i] = 1.0f / (float)trace->num_topk;
    }
}
