/* SPDX-License-Identifier: MIT */
/* Elements with attributes, which is all that files of topologies and channels are made of: read,
 * looked at, changed and written. Every error names file, line and element. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* Larger ones are refused: NCCL's own limits are lower but for the depth, which it does not
 * have. */
enum {
    XML_MAX_BYTES = 16 << 20,
    XML_MAX_ELEMENTS = 65536,
    XML_MAX_DEPTH = 64,
    XML_MAX_ATTRIBUTES = 64, /* of an element */
    XML_MAX_VALUE_BYTES = 4096
};

struct xml_attribute {
    char *name, *value;
};

struct xml {
    char *name;
    char *source; /* of the root: the file; else NULL */
    int32_t line; /* 0: the element was not read */
    int32_t num_attributes, num_children;
    struct xml_attribute *attributes;
    struct xml **children;
    struct xml *parent; /* NULL: the root */
};

/* ------------------------------------------------------------------ reading and writing */

/* The element system of a topology; an error if it is of another version than 1. Elements that NCCL
 * does not write are skipped with all that is in them, and so are other attributes. A warning names
 * both. `source` is what messages call the text. */
weft_result topo_parse(const char *source, const char *text, size_t num_bytes, struct xml **system);
/* The same of a file. */
weft_result topo_read(const char *path, struct xml **system);

/* Two spaces a level, attributes in their order: what NCCL has written comes out byte for byte. */
weft_result xml_print(const struct xml *root, char **text, size_t *num_bytes);
weft_result xml_write(const struct xml *root, const char *path);

/* ------------------------------------------------------------------ elements */

/* With NULL: a root. */
weft_result xml_add(struct xml *parent, const char *name, struct xml **child);
/* Moves a child to another place among its siblings. */
void xml_move(struct xml *element, int32_t place);
/* With all that is in it. NULL is allowed. */
void xml_remove(struct xml *element);

/* A new attribute comes last. */
weft_result xml_set(struct xml *element, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* NULL: the element has none. */
const char *xml_get(const struct xml *element, const char *name);
/* The same, "" for none. */
const char *xml_text(const struct xml *element, const char *name);

int xml_is(const struct xml *element, const char *name);
/* The first child of that name whose attribute has that value, or with attribute NULL any; NULL:
 * there is none. */
struct xml *xml_find(const struct xml *parent, const char *name, const char *attribute,
                     const char *value);

/* ------------------------------------------------------------------ values */

/* INVALID_ARGUMENT with where the element is, then the message. */
weft_result xml_error(const struct xml *element, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An attribute that is a whole number, decimal or 0x and hexadecimal. */
struct xml_number {
    const char *name;
    int64_t min, max;
};
/* Where there is none, or "", an error. */
weft_result xml_integer(const struct xml *element, struct xml_number number, int32_t *value);
/* Where there is none, or "", `usual`. */
weft_result xml_integer_or(const struct xml *element, struct xml_number number, int32_t usual,
                           int32_t *value);
/* A number with a fraction, at least 0. */
weft_result xml_real_or(const struct xml *element, const char *name, float usual, float *value);
/* 64 bits in hexadecimal, with or without 0x. */
weft_result xml_hex_or(const struct xml *element, const char *name, uint64_t usual,
                       uint64_t *value);
