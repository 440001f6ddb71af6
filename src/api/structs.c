/* SPDX-License-Identifier: MIT */
#include "api/structs.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A larger one is no struct, but a size that was not set. */
enum { MAX_STRUCT_BYTES = 1 << 20 };

static const struct type {
    const char *name;
    size_t bytes;       /* that this library knows */
    size_t first_bytes; /* of its first version */
} types[WEFT__NUM_STRUCTS] = {
#define TYPE(type, last)                                                                           \
    {#type, sizeof(type), offsetof(type, last) + sizeof((const type *)NULL)->last},
    WEFT__STRUCTS(TYPE)
#undef TYPE
};

/* A field that is appended lies where an older caller has nothing: not in padding, whose content
 * nobody sets. */
#define NO_PADDING(type, last)                                                                     \
    _Static_assert((offsetof(type, last) + sizeof((const type *)NULL)->last) % _Alignof(type) ==   \
                       0,                                                                          \
                   #type " ends in padding");                                                      \
    _Static_assert(offsetof(type, size) == 0, #type " does not open with its size");
WEFT__STRUCTS(NO_PADDING)
#undef NO_PADDING

static weft_result check_size(const struct type *type, size_t size, const char *name)
{
    if (size >= type->first_bytes && size <= MAX_STRUCT_BYTES)
        return WEFT_OK;
    return weft__invalid(
        "%s: size of %s is %zu; it must be sizeof(%s), which is %zu, and at least %zu", name,
        type->name, size, type->name, type->bytes, type->first_bytes);
}

static weft_result check_tail(const struct type *type, const void *given, size_t size,
                              const char *name)
{
    for (size_t byte = type->bytes; byte < size; byte++)
        if (((const unsigned char *)given)[byte] != 0)
            return weft__invalid(
                "%s: %s has %zu bytes, of which this library knows %zu, and byte %zu is not zero",
                name, type->name, size, type->bytes, byte);
    return WEFT_OK;
}

static void copy_known(const struct type *type, void *copy, const void *given, size_t size)
{
    const size_t known_bytes = size < type->bytes ? size : type->bytes;
    memcpy(copy, given, known_bytes);
    memset((char *)copy + known_bytes, 0, type->bytes - known_bytes);
    memcpy(copy, &type->bytes, sizeof type->bytes);
}

weft_result weft__struct_read(enum weft__struct kind, void *copy, const void *given,
                              const char *name)
{
    const struct type *type = &types[kind];
    size_t size;
    WEFT__TRY(weft__check_not_null(given, name));
    memcpy(&size, given, sizeof size);
    WEFT__TRY(check_size(type, size, name));
    WEFT__TRY(check_tail(type, given, size, name));
    copy_known(type, copy, given, size);
    return WEFT_OK;
}

weft_result weft__struct_read_optional(enum weft__struct kind, void *copy, const void *given,
                                       const char *name)
{
    if (given != NULL)
        return weft__struct_read(kind, copy, given, name);
    memset(copy, 0, types[kind].bytes);
    memcpy(copy, &types[kind].bytes, sizeof types[kind].bytes);
    return WEFT_OK;
}

/* Its name is written for errors only. */
static weft_result read_element(enum weft__struct kind, void *copy, const void *given,
                                size_t stride, const char *array, int32_t i)
{
    char name[64];
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size == stride && weft__struct_read(kind, copy, given, array) == WEFT_OK)
        return WEFT_OK;
    snprintf(name, sizeof name, "%s[%d]", array, i);
    if (size != stride)
        return weft__invalid("%s.size is %zu and %s[0].size is %zu: they must be the same", name,
                             size, array, stride);
    return weft__struct_read(kind, copy, given, name);
}

weft_result weft__struct_read_array(enum weft__struct kind, void *copies, const void *given,
                                    int32_t count, const char *name)
{
    size_t stride = 0;
    WEFT__TRY(weft__check_array(given, count, name));
    if (count > 0)
        memcpy(&stride, given, sizeof stride);
    for (int32_t i = 0; i < count; i++)
        WEFT__TRY(read_element(kind, (char *)copies + (size_t)i * types[kind].bytes,
                               (const char *)given + (size_t)i * stride, stride, name, i));
    return WEFT_OK;
}

weft_result weft__struct_check(enum weft__struct kind, const void *given, const char *name)
{
    size_t size;
    WEFT__TRY(weft__check_not_null(given, name));
    memcpy(&size, given, sizeof size);
    return check_size(&types[kind], size, name);
}

weft_result weft__struct_check_array(enum weft__struct kind, const void *given, int32_t count,
                                     const char *name)
{
    size_t stride = 0, size;
    WEFT__TRY(weft__check_array(given, count, name));
    if (count > 0)
        memcpy(&stride, given, sizeof stride);
    for (int32_t i = 0; i < count; i++) {
        memcpy(&size, (const char *)given + (size_t)i * stride, sizeof size);
        WEFT__TRY(check_size(&types[kind], size, name));
        if (size != stride)
            return weft__invalid("%s[%d].size is %zu and %s[0].size is %zu: they must be the same",
                                 name, i, size, name, stride);
    }
    return WEFT_OK;
}

void weft__struct_write(enum weft__struct kind, void *given, const void *filled)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    const size_t known_bytes = size < types[kind].bytes ? size : types[kind].bytes;
    memcpy((char *)given + sizeof size, (const char *)filled + sizeof size,
           known_bytes - sizeof size);
}
