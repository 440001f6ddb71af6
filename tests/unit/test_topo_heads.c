/* SPDX-License-Identifier: MIT */
/* Which ranks are heads of multicast objects, by files of machines. */
#include <string.h>

#include "comm/error.h"
#include "harness/cmocka.h"
#include "topo/heads.h"

#define FILE_OF(name) WEFT_TOPOLOGY_DIR "/" name

enum { MAX_RANKS = 32 };

static int32_t count(const char *path, int32_t num_ranks, int32_t heads[MAX_RANKS])
{
    int32_t num_heads = -1;
    assert_ok(weft__topo_find_heads(path, num_ranks, heads, &num_heads));
    return num_heads;
}

/* On one node each GPU behind NVSwitch is one. */
TEST(of_hgx)
{
    int32_t heads[MAX_RANKS];
    assert_int_equal(count(FILE_OF("vastai-hgx-h200-8x.topo.xml"), 8, heads), 8);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(heads[i], i);
}

TEST(none_without_a_switch)
{
    int32_t heads[MAX_RANKS];
    assert_int_equal(count(FILE_OF("perlmutter-a100-4x.topo.xml"), 4, heads), 0);
}

TEST(none_for_other_ranks_than_those_of_the_file)
{
    int32_t heads[MAX_RANKS];
    assert_int_equal(count(FILE_OF("vastai-hgx-h200-8x.topo.xml"), 4, heads), 0);
    assert_int_equal(count(FILE_OF("vastai-hgx-h200-8x.topo.xml"), 16, heads), 0);
    assert_int_equal(count(FILE_OF("azure-ndv2.partial.topo.xml"), 8, heads), 0);
}

TEST(no_file_is_an_error)
{
    int32_t heads[MAX_RANKS], num_heads = -1;
    assert_int_not_equal(weft__topo_find_heads(FILE_OF("none.xml"), 8, heads, &num_heads), WEFT_OK);
    assert_int_equal(num_heads, 0);
    assert_non_null(strstr(weft__last_error(), "none.xml"));
}
