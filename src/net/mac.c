/* SPDX-License-Identifier: MIT */
#include "net/mac.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>

_Static_assert(WEFT__MAC_BYTES == SHA256_DIGEST_SIZE, "the whole digest");

void weft__mac(const void *key, size_t key_bytes, const struct weft__mac_part *parts,
               size_t num_parts, uint8_t mac[WEFT__MAC_BYTES])
{
    struct hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, key_bytes, key);
    for (size_t index = 0; index < num_parts; index++)
        hmac_sha256_update(&context, parts[index].num_bytes, parts[index].bytes);
    hmac_sha256_digest(&context, WEFT__MAC_BYTES, mac);
}

int weft__mac_equal(const uint8_t one[WEFT__MAC_BYTES], const uint8_t other[WEFT__MAC_BYTES])
{
    return memeql_sec(one, other, WEFT__MAC_BYTES);
}
