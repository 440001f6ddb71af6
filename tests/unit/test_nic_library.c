/* SPDX-License-Identifier: MIT */
/* weft's declarations of libibverbs and libmlx5 are those of the libraries' headers, and both
 * libraries can be loaded. Skipped where the headers are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "net/nic/verbs_library.h"

#define SAME_SIZE(type) _Static_assert(sizeof(struct weft__##type) == sizeof(struct type), #type)
#define SAME(type, ours, theirs)                                                                   \
    _Static_assert(offsetof(struct weft__##type, ours) == offsetof(struct type, theirs) &&         \
                       sizeof((struct weft__##type *)0)->ours == sizeof((struct type *)0)->theirs, \
                   #type "." #theirs)

SAME_SIZE(ibv_mr);
SAME(ibv_mr, lkey, lkey);
SAME(ibv_mr, rkey, rkey);
SAME_SIZE(ibv_port_attr);
SAME(ibv_port_attr, state, state);
SAME(ibv_port_attr, active_mtu, active_mtu);
SAME(ibv_port_attr, gid_tbl_len, gid_tbl_len);
SAME(ibv_port_attr, lid, lid);
SAME(ibv_port_attr, link_layer, link_layer);
SAME_SIZE(ibv_gid_entry);
SAME(ibv_gid_entry, gid, gid);
SAME(ibv_gid_entry, gid_type, gid_type);
SAME_SIZE(ibv_ah_attr);
SAME(ibv_ah_attr, grh, grh);
SAME(ibv_ah_attr, grh.dgid, grh.dgid);
SAME(ibv_ah_attr, grh.sgid_index, grh.sgid_index);
SAME(ibv_ah_attr, grh.hop_limit, grh.hop_limit);
SAME(ibv_ah_attr, is_global, is_global);
SAME(ibv_ah_attr, port_num, port_num);
SAME_SIZE(mlx5dv_context_attr);
SAME(mlx5dv_context_attr, flags, flags);
SAME(mlx5dv_context_attr, comp_mask, comp_mask);
SAME_SIZE(mlx5dv_pd);
SAME(mlx5dv_pd, pdn, pdn);
SAME_SIZE(mlx5_wqe_av);
SAME(mlx5_wqe_av, rmac, rmac);
SAME_SIZE(mlx5dv_ah);
SAME(mlx5dv_ah, av, av);
SAME_SIZE(mlx5dv_obj);
SAME(mlx5dv_obj, ah.in, ah.in);
SAME(mlx5dv_obj, ah.out, ah.out);
SAME(mlx5dv_obj, pd.in, pd.in);
SAME(mlx5dv_obj, pd.out, pd.out);
SAME_SIZE(mlx5dv_devx_umem_in);
SAME(mlx5dv_devx_umem_in, addr, addr);
SAME(mlx5dv_devx_umem_in, size, size);
SAME(mlx5dv_devx_umem_in, access, access);
SAME(mlx5dv_devx_umem_in, pgsz_bitmap, pgsz_bitmap);
SAME(mlx5dv_devx_umem_in, comp_mask, comp_mask);
SAME(mlx5dv_devx_umem_in, dmabuf_fd, dmabuf_fd);
SAME_SIZE(mlx5dv_devx_umem);
SAME(mlx5dv_devx_umem, umem_id, umem_id);
SAME_SIZE(mlx5dv_devx_uar);
SAME(mlx5dv_devx_uar, reg_addr, reg_addr);
SAME(mlx5dv_devx_uar, page_id, page_id);

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(WEFT__IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
SAME_VALUE(WEFT__IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
SAME_VALUE(WEFT__IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
SAME_VALUE(WEFT__IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);
SAME_VALUE(WEFT__IBV_PORT_ACTIVE, IBV_PORT_ACTIVE);
SAME_VALUE(WEFT__IBV_INFINIBAND, IBV_LINK_LAYER_INFINIBAND);
SAME_VALUE(WEFT__IBV_ETHERNET, IBV_LINK_LAYER_ETHERNET);
SAME_VALUE(WEFT__IBV_GID_ROCE_V2, IBV_GID_TYPE_ROCE_V2);
SAME_VALUE(WEFT__MLX5DV_CONTEXT_FLAGS_DEVX, MLX5DV_CONTEXT_FLAGS_DEVX);
SAME_VALUE(WEFT__MLX5DV_OBJ_AH, MLX5DV_OBJ_AH);
SAME_VALUE(WEFT__MLX5DV_OBJ_PD, MLX5DV_OBJ_PD);
SAME_VALUE(WEFT__MLX5DV_UMEM_MASK_DMABUF, MLX5DV_UMEM_MASK_DMABUF);
SAME_VALUE(WEFT__MLX5DV_UAR_BLUE_FLAME, MLX5DV_UAR_ALLOC_TYPE_BF);
SAME_VALUE(WEFT__MLX5DV_UAR_NON_CACHED, MLX5DV_UAR_ALLOC_TYPE_NC);

TEST(the_libraries_have_what_is_declared)
{
    const struct weft__verbs *verbs = NULL, *again = NULL;
    assert_ok(weft__verbs_load(&verbs));
    assert_ok(weft__verbs_load(&again));
    assert_ptr_equal(verbs, again);
    for (size_t i = 0; i < sizeof *verbs / sizeof(void *); i++)
        assert_non_null(((void *const *)verbs)[i]);
}
#else
int main(void)
{
    enum { SKIPPED = 77 };
    return SKIPPED;
}
#endif
