/* SPDX-License-Identifier: MIT */
/* The structs of weft.h as callers of other versions have them: shorter, longer, and in arrays. */
#include <string.h>

#include "api/structs.h"
#include "harness/cmocka.h"

enum { MAX_BYTES = 4096, LATER_BYTES = 24 };

struct type {
    const char *name;
    size_t bytes;
    size_t first_bytes; /* of its first version */
};
static const struct type types[WEFT__NUM_STRUCTS] = {
#define TYPE(type, last)                                                                           \
    {#type, sizeof(type), offsetof(type, last) + sizeof(((const type *)NULL)->last)},
    WEFT__STRUCTS(TYPE)
#undef TYPE
};

static size_t size_at(const void *memory)
{
    size_t size;
    memcpy(&size, memory, sizeof size);
    return size;
}

static void set_size(void *memory, size_t size)
{
    memcpy(memory, &size, sizeof size);
}

#define assert_refused(call, text) assert_error(call, WEFT_ERROR_INVALID_ARGUMENT, text)

TEST(inputs_are_copied_as_far_as_both_know)
{
    unsigned char given[MAX_BYTES], copy[MAX_BYTES];
    for (int i = 0; i < WEFT__NUM_STRUCTS; i++) {
        const enum weft__struct kind = (enum weft__struct)i;
        const size_t bytes = types[i].bytes;
        memset(given, 0, sizeof given);
        memset(given, 0x5a, bytes);
        for (size_t size = bytes; size <= bytes + LATER_BYTES; size += 8) {
            set_size(given, size);
            memset(copy, 0xff, sizeof copy);
            assert_ok(weft__struct_read(kind, copy, given, "args"));
            assert_int_equal(size_at(copy), bytes);
            assert_memory_equal(copy + sizeof(size_t), given + sizeof(size_t),
                                bytes - sizeof(size_t));
            assert_int_equal(copy[bytes], 0xff);
        }
        /* What an older caller does not know is 0. */
        for (size_t size = types[i].first_bytes; size < bytes; size += 4) {
            set_size(given, size);
            memset(copy, 0xff, sizeof copy);
            assert_ok(weft__struct_read(kind, copy, given, "args"));
            assert_memory_equal(copy + sizeof(size_t), given + sizeof(size_t),
                                size - sizeof(size_t));
            for (size_t byte = size; byte < bytes; byte++)
                assert_int_equal(copy[byte], 0);
        }
        set_size(given, bytes + LATER_BYTES);
        given[bytes + LATER_BYTES - 1] = 1;
        assert_refused(weft__struct_read(kind, copy, given, "args"), types[i].name);
        set_size(given, bytes + LATER_BYTES - 1);
        assert_ok(weft__struct_read(kind, copy, given, "args"));
    }
}

TEST(sizes_that_are_none_are_refused)
{
    unsigned char given[MAX_BYTES] = {0}, copy[MAX_BYTES];
    for (int i = 0; i < WEFT__NUM_STRUCTS; i++) {
        const enum weft__struct kind = (enum weft__struct)i;
        const size_t sizes[] = {0, 7, sizeof(size_t), types[i].first_bytes - 1, SIZE_MAX};
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            set_size(given, sizes[j]);
            assert_refused(weft__struct_read(kind, copy, given, "args"), types[i].name);
            assert_refused(weft__struct_read_optional(kind, copy, given, "args"), "args");
            assert_refused(weft__struct_check(kind, given, "info"), "info");
        }
        assert_refused(weft__struct_read(kind, copy, NULL, "args"), "args is NULL");
        assert_refused(weft__struct_check(kind, NULL, "info"), "info is NULL");
        memset(copy, 0xff, sizeof copy);
        assert_ok(weft__struct_read_optional(kind, copy, NULL, "args"));
        assert_int_equal(size_at(copy), types[i].bytes);
        for (size_t byte = sizeof(size_t); byte < types[i].bytes; byte++)
            assert_int_equal(copy[byte], 0);
    }
}

TEST(outputs_are_written_as_far_as_both_know)
{
    unsigned char given[MAX_BYTES], filled[MAX_BYTES];
    memset(filled, 0x33, sizeof filled);
    for (int i = 0; i < WEFT__NUM_STRUCTS; i++) {
        const enum weft__struct kind = (enum weft__struct)i;
        const size_t bytes = types[i].bytes;
        /* The last stands for a caller of a version before a field was appended. */
        const size_t sizes[] = {bytes, bytes + LATER_BYTES, bytes - 4};
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            const size_t known_bytes = sizes[j] < bytes ? sizes[j] : bytes;
            memset(given, 0xaa, sizeof given);
            set_size(given, sizes[j]);
            weft__struct_write(kind, given, filled);
            assert_int_equal(size_at(given), sizes[j]);
            for (size_t byte = sizeof(size_t); byte < sizeof given; byte++)
                assert_int_equal(given[byte], byte < known_bytes ? 0x33 : 0xaa);
        }
    }
}

/* As a later version has it. */
struct later_plane {
    weft_plane known;
    uint64_t later;
};

TEST(arrays_have_the_stride_of_their_first_element)
{
    enum { NUM_PLANES = 3 };
    struct later_plane given[NUM_PLANES] = {{{0}, 0}};
    weft_plane copies[NUM_PLANES];
    for (int i = 0; i < NUM_PLANES; i++)
        given[i].known = (weft_plane){.size = sizeof given[0], .row_bytes = (uint64_t)i + 1};
    const enum weft__struct kind = WEFT__STRUCT_weft_plane;
    assert_ok(weft__struct_read_array(kind, copies, given, NUM_PLANES, "planes"));
    for (int i = 0; i < NUM_PLANES; i++)
        assert_int_equal(copies[i].row_bytes, i + 1);
    given[2].later = 1;
    assert_refused(weft__struct_read_array(kind, copies, given, NUM_PLANES, "planes"),
                   "planes[2]: weft_plane has 72 bytes");
    given[1].known.size = sizeof given[0].known;
    assert_refused(weft__struct_read_array(kind, copies, given, NUM_PLANES, "planes"),
                   "planes[1].size is 64 and planes[0].size is 72");
    given[0].known.size = 1;
    assert_refused(weft__struct_read_array(kind, copies, given, NUM_PLANES, "planes"),
                   "planes[0]: size of weft_plane is 1");
    assert_refused(weft__struct_read_array(kind, copies, NULL, 1, "planes"), "planes is NULL");
    assert_ok(weft__struct_read_array(kind, copies, NULL, 0, "planes"));
}
