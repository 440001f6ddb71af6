/* SPDX-License-Identifier: MIT */
/* Elements with attributes, which is all that files of topologies and channels are made of: read, looked at, changed
 * and written. Every error names file, line and element. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* What is larger is refused: NCCL's own limits are lower but for the depth, which it does not have. */
enum {
    WEFT__XML_MAX_BYTES = 16 << 20,
    WEFT__XML_MAX_ELEMENTS = 65536,
    WEFT__XML_MAX_DEPTH = 64,
    WEFT__XML_MAX_ATTRIBUTES = 64, /* of an element */
    WEFT__XML_MAX_VALUE_BYTES = 4096
};

struct weft__xml_attribute {
    char *name, *value;
};

struct weft__xml {
    char *name;
    char *source; /* of the root: the file; else NULL */
    int32_t line; /* 0: the element was not read */
    int32_t num_attributes, num_children;
    struct weft__xml_attribute *attributes;
    struct weft__xml **children;
    struct weft__xml *parent; /* NULL: the root */
};

/* ------------------------------------------------------------------ reading and writing */

/* An element of a kind of file. Other elements are skipped with all that is in them, and so are
 * other attributes. A warning names both. */
struct weft__xml_rule {
    const char *parent, *name; /* "": the root's */
    const char *attributes;    /* separated by blanks; NULL: the element is known, and skipped */
};
struct weft__xml_format {
    const struct weft__xml_rule *rules;
    size_t num_rules;
};

/* `source` is what messages call it. */
weft_result weft__xml_parse(const struct weft__xml_format *format, const char *source,
                            const char *text, size_t num_bytes, struct weft__xml **root);
weft_result weft__xml_read(const struct weft__xml_format *format, const char *path,
                           struct weft__xml **root);

/* Two spaces a level, attributes in their order: what NCCL has written comes out byte for byte. */
weft_result weft__xml_print(const struct weft__xml *root, char **text, size_t *num_bytes);
weft_result weft__xml_write(const struct weft__xml *root, const char *path);

/* ------------------------------------------------------------------ elements */

/* With NULL: a root. */
weft_result weft__xml_add(struct weft__xml *parent, const char *name, struct weft__xml **child);
/* Moves a child to another place among its siblings. */
void weft__xml_move(struct weft__xml *element, int32_t place);
/* With all that is in it. NULL is allowed. */
void weft__xml_remove(struct weft__xml *element);

/* A new attribute comes last. */
weft_result weft__xml_set(struct weft__xml *element, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* NULL: the element has none. */
const char *weft__xml_get(const struct weft__xml *element, const char *name);
/* The same, "" for none. */
const char *weft__xml_text(const struct weft__xml *element, const char *name);

int weft__xml_is(const struct weft__xml *element, const char *name);
/* The first child of that name whose attribute has that value, or with attribute NULL any; NULL: there is none. */
struct weft__xml *weft__xml_find(const struct weft__xml *parent, const char *name,
                                 const char *attribute, const char *value);

/* ------------------------------------------------------------------ values */

/* INVALID_ARGUMENT with where the element is, then the message. */
weft_result weft__xml_error(const struct weft__xml *element, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An attribute that is a whole number, decimal or 0x and hexadecimal. */
struct weft__xml_number {
    const char *name;
    int64_t min, max;
};
/* Where there is none, or "", an error. */
weft_result weft__xml_integer(const struct weft__xml *element, struct weft__xml_number number,
                              int32_t *value);
/* Where there is none, or "", `usual`. */
weft_result weft__xml_integer_or(const struct weft__xml *element, struct weft__xml_number number,
                                 int32_t usual, int32_t *value);
/* A number with a fraction, at least 0. */
weft_result weft__xml_real_or(const struct weft__xml *element, const char *name, float usual,
                              float *value);
/* 64 bits in hexadecimal, with or without 0x. */
weft_result weft__xml_hex_or(const struct weft__xml *element, const char *name, uint64_t usual,
                             uint64_t *value);
