/* SPDX-License-Identifier: MIT */
/* A rank that is not one: a socket that speaks the protocol of engine tcp as far as a test lets it.
 */
#pragma once

#include "net/net.h"
#include "net/tcp_address.h"
#include "net/tcp_admission.h"
#include "net/tcp_stream.h"

/* Where the net of this blob listens. */
struct weft__tcp_addresses puppet_addresses(const struct weft__net_blob *blob);
/* The blob with other addresses, in `bytes`, which has room for it. */
struct weft__net_blob puppet_blob(const struct weft__net_blob *blob,
                                  const struct weft__tcp_addresses *addresses,
                                  unsigned char *bytes);

/* A listening socket on the loopback; -1: none. */
int puppet_listen(struct weft__tcp_address *address);
/* A connection; -1: none. */
int puppet_dial(const struct weft__tcp_address *address);
/* Drives the net until bytes have come; 0 if the connection ends, or nothing comes for seconds. */
int puppet_read(int fd, struct weft__net *net, void *bytes, size_t num_bytes);
int puppet_write(int fd, const void *bytes, size_t num_bytes);
/* With a RST, which leaves no port behind. */
void puppet_hang_up(int fd);

struct weft__tcp_hello puppet_hello(int32_t from, int32_t to, int32_t num_ranks);
/* The whole of it as the dialer, to a net that is driven meanwhile; -1: it was refused. */
int puppet_join(const struct weft__tcp_address *address, struct weft__net *net,
                const struct weft__tcp_hello *hello, const uint8_t secret[WEFT__NONCE_BYTES]);
/* A message, of which `num_bytes` of the payload go. */
int puppet_send(int fd, struct weft__net_header header, const void *payload, size_t num_bytes);
