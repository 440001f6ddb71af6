/* SPDX-License-Identifier: MIT */
/*
 * libibverbs and libmlx5, looked up at run time. The declarations are weft's own, so that neither
 * the build nor a machine without RDMA needs the libraries. Names are theirs, behind weft__.
 * tests/unit/test_nic_library.c compares the layouts with those of the libraries' headers.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "weft.h"

struct weft__ibv_device;
struct weft__ibv_context;
struct weft__ibv_pd;
struct weft__ibv_ah;
struct weft__mlx5dv_devx_obj;

enum weft__ibv_access {
    WEFT__IBV_ACCESS_LOCAL_WRITE = 1,
    WEFT__IBV_ACCESS_REMOTE_WRITE = 2,
    WEFT__IBV_ACCESS_REMOTE_READ = 4,
    WEFT__IBV_ACCESS_REMOTE_ATOMIC = 8
};

struct weft__ibv_mr {
    struct weft__ibv_context *context;
    struct weft__ibv_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

enum { WEFT__IBV_PORT_ACTIVE = 4 };
enum weft__ibv_link_layer { WEFT__IBV_INFINIBAND = 1, WEFT__IBV_ETHERNET = 2 };

struct weft__ibv_port_attr {
    uint32_t state, max_mtu, active_mtu;
    int32_t gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed;
    uint8_t phys_state, link_layer, flags;
    uint16_t port_cap_flags2;
};

enum { WEFT__IBV_GID_BYTES = 16 };
enum weft__ibv_gid_type { WEFT__IBV_GID_IB, WEFT__IBV_GID_ROCE_V1, WEFT__IBV_GID_ROCE_V2 };

struct weft__ibv_gid_entry {
    _Alignas(8) uint8_t gid[WEFT__IBV_GID_BYTES];
    uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct weft__ibv_ah_attr {
    struct {
        _Alignas(8) uint8_t dgid[WEFT__IBV_GID_BYTES];
        uint32_t flow_label;
        uint8_t sgid_index, hop_limit, traffic_class;
    } grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

enum { WEFT__MLX5DV_CONTEXT_FLAGS_DEVX = 1 };

struct weft__mlx5dv_context_attr {
    uint32_t flags;
    uint64_t comp_mask;
};

enum { WEFT__MLX5DV_OBJ_AH = 1 << 5, WEFT__MLX5DV_OBJ_PD = 1 << 6 };

struct weft__mlx5dv_pd {
    uint32_t pdn;
    uint64_t comp_mask;
};

enum { WEFT__MLX5_MAC_BYTES = 6 };

struct weft__mlx5_wqe_av {
    _Alignas(8) uint8_t before[20];
    uint8_t rmac[WEFT__MLX5_MAC_BYTES];
    uint8_t behind[22];
};

struct weft__mlx5dv_ah {
    struct weft__mlx5_wqe_av *av;
    uint64_t comp_mask;
};

struct weft__mlx5dv_obj {
    struct {
        void *in, *out;
    } qp, cq, srq, rwq, dm, ah, pd;
};

enum { WEFT__MLX5DV_UMEM_MASK_DMABUF = 1 };

struct weft__mlx5dv_devx_umem_in {
    void *addr; /* of a dmabuf: the offset in it */
    size_t size;
    uint32_t access;
    uint64_t pgsz_bitmap;
    uint64_t comp_mask;
    int dmabuf_fd;
};

struct weft__mlx5dv_devx_umem {
    uint32_t umem_id;
};

enum { WEFT__MLX5DV_UAR_BLUE_FLAME = 0, WEFT__MLX5DV_UAR_NON_CACHED = 1 };

struct weft__mlx5dv_devx_uar {
    void *reg_addr, *base_addr;
    uint32_t page_id;
    off_t mmap_off;
    uint64_t comp_mask;
};

/* Each row is use(result, name, arguments). */
#define WEFT__IBV_FUNCTIONS(use)                                                                   \
    use(struct weft__ibv_device **, ibv_get_device_list,                                           \
        (int *num_devices)) use(void, ibv_free_device_list, (struct weft__ibv_device * *list))     \
        use(const char *, ibv_get_device_name, (struct weft__ibv_device * device)) use(            \
            int, ibv_close_device, (struct weft__ibv_context * context))                           \
            use(struct weft__ibv_pd *, ibv_alloc_pd, (struct weft__ibv_context * context)) use(    \
                int, ibv_dealloc_pd,                                                               \
                (struct weft__ibv_pd * pd)) use(int, ibv_query_port,                               \
                                                (struct weft__ibv_context * context, uint8_t port, \
                                                 struct weft__ibv_port_attr * attr))               \
                use(int, _ibv_query_gid_ex,                                                        \
                    (struct weft__ibv_context * context, uint32_t port, uint32_t index,            \
                     struct weft__ibv_gid_entry * entry, uint32_t flags, size_t entry_bytes))      \
                    use(struct weft__ibv_ah *, ibv_create_ah,                                      \
                        (struct weft__ibv_pd * pd, struct weft__ibv_ah_attr * attr))               \
                        use(int, ibv_destroy_ah, (struct weft__ibv_ah * ah))                       \
                            use(struct weft__ibv_mr *, ibv_reg_mr,                                 \
                                (struct weft__ibv_pd * pd, void *addr, size_t length, int access)) \
                                use(struct weft__ibv_mr *, ibv_reg_dmabuf_mr,                      \
                                    (struct weft__ibv_pd * pd, uint64_t offset, size_t length,     \
                                     uint64_t iova, int fd, int access))                           \
                                    use(int, ibv_dereg_mr, (struct weft__ibv_mr * mr))

#define WEFT__MLX5_FUNCTIONS(use)                                                                  \
    use(_Bool, mlx5dv_is_supported, (struct weft__ibv_device * device)) use(                       \
        struct weft__ibv_context *, mlx5dv_open_device,                                            \
        (struct weft__ibv_device * device, struct weft__mlx5dv_context_attr * attr))               \
        use(int, mlx5dv_init_obj, (struct weft__mlx5dv_obj * obj, uint64_t types)) use(            \
            int, mlx5dv_devx_query_eqn,                                                            \
            (struct weft__ibv_context * context, uint32_t vector, uint32_t * eqn))                 \
            use(struct weft__mlx5dv_devx_uar *, mlx5dv_devx_alloc_uar,                             \
                (struct weft__ibv_context * context, uint32_t flags))                              \
                use(void, mlx5dv_devx_free_uar, (struct weft__mlx5dv_devx_uar * uar)) use(         \
                    struct weft__mlx5dv_devx_umem *, mlx5dv_devx_umem_reg_ex,                      \
                    (struct weft__ibv_context * context, struct weft__mlx5dv_devx_umem_in * in))   \
                    use(int, mlx5dv_devx_umem_dereg, (struct weft__mlx5dv_devx_umem * umem))       \
                        use(struct weft__mlx5dv_devx_obj *, mlx5dv_devx_obj_create,                \
                            (struct weft__ibv_context * context, const void *in, size_t in_bytes,  \
                             void *out, size_t out_bytes))                                         \
                            use(int, mlx5dv_devx_obj_modify,                                       \
                                (struct weft__mlx5dv_devx_obj * object, const void *in,            \
                                 size_t in_bytes, void *out, size_t out_bytes))                    \
                                use(int, mlx5dv_devx_obj_destroy,                                  \
                                    (struct weft__mlx5dv_devx_obj * object))                       \
                                    use(int, mlx5dv_devx_general_cmd,                              \
                                        (struct weft__ibv_context * context, const void *in,       \
                                         size_t in_bytes, void *out, size_t out_bytes))

struct weft__verbs {
#define WEFT__VERBS_MEMBER(result, name, arguments) result(*name) arguments;
    WEFT__IBV_FUNCTIONS(WEFT__VERBS_MEMBER)
    WEFT__MLX5_FUNCTIONS(WEFT__VERBS_MEMBER)
#undef WEFT__VERBS_MEMBER
};

/* Loads them once per process. UNSUPPORTED if a library is not there, or lacks a function: the
 * message names it. */
weft_result weft__verbs_load(const struct weft__verbs **verbs);
