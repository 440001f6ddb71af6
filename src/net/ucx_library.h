/* SPDX-License-Identifier: MIT */
/* UCX, looked up at run time: a build with it runs where it is not installed. */
#pragma once

#include <ucp/api/ucp.h>

#include "weft.h"

/* The part that is used; all of it is in version 1.13. */
#define WEFT__UCX_FUNCTIONS(use)                                                                   \
    use(ucp_am_send_nbx) use(ucp_cleanup) use(ucp_config_modify) use(ucp_config_read)              \
        use(ucp_config_release) use(ucp_context_query) use(ucp_ep_close_nbx) use(ucp_ep_create)    \
            use(ucp_ep_flush_nbx) use(ucp_ep_print_info) use(ucp_ep_rkey_unpack)                   \
                use(ucp_get_version) use(ucp_get_version_string) use(ucp_init_version)             \
                    use(ucp_mem_map) use(ucp_mem_unmap) use(ucp_put_nbx) use(ucp_request_free)     \
                        use(ucp_rkey_buffer_release) use(ucp_rkey_destroy) use(ucp_rkey_pack)      \
                            use(ucp_worker_arm) use(ucp_worker_create) use(ucp_worker_destroy)     \
                                use(ucp_worker_get_address) use(ucp_worker_get_efd)                \
                                    use(ucp_worker_progress) use(ucp_worker_release_address)       \
                                        use(ucp_worker_set_am_recv_handler) use(ucs_status_string)

struct weft__ucx {
#define WEFT__UCX_MEMBER(name) __typeof__(name) *name;
    WEFT__UCX_FUNCTIONS(WEFT__UCX_MEMBER)
#undef WEFT__UCX_MEMBER
};

/* Loads it once per process. UNSUPPORTED, with a message, if it is not there or too old. */
weft_result weft__ucx_load(const struct weft__ucx **ucx);
