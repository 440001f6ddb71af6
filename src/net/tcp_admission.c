/* SPDX-License-Identifier: MIT */
#include "net/tcp_admission.h"

void weft__tcp_prove(const uint8_t secret[WEFT__NONCE_BYTES], enum weft__tcp_role who,
                     const struct weft__tcp_talk *talk, uint8_t proof[WEFT__MAC_BYTES])
{
    const uint32_t role = who;
    const struct weft__mac_part parts[] = {{"weft tcp", 8},
                                           {&role, sizeof(role)},
                                           {&talk->hello, sizeof(talk->hello)},
                                           {&talk->challenge, sizeof(talk->challenge)}};
    weft__mac(secret, WEFT__NONCE_BYTES, parts, sizeof(parts) / sizeof(parts[0]), proof);
}
