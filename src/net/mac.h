/* SPDX-License-Identifier: MIT */
/* Proofs that somebody knows a secret, which do not tell it: HMAC-SHA256, from libnettle. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { WEFT__MAC_BYTES = 32 };

struct weft__mac_part {
    const void *bytes;
    size_t num_bytes;
};

/* Authenticates the parts one behind the other: each but the last must have a fixed length, so that
 * one text is one message. */
void weft__mac(const void *key, size_t key_bytes, const struct weft__mac_part *parts,
               size_t num_parts, uint8_t mac[WEFT__MAC_BYTES]);
/* In a time that does not tell where they differ. */
int weft__mac_equal(const uint8_t one[WEFT__MAC_BYTES], const uint8_t other[WEFT__MAC_BYTES]);
