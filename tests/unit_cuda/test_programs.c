/* SPDX-License-Identifier: MIT */
/* Which of the compiled programs a GPU runs. */
#include "harness/cmocka.h"
#include "machine/cuda/cuda_programs.h"

TEST(a_gpu_runs_the_newest_code_of_its_generation)
{
    const int32_t gpus[] = {80, 86, 90, 100, 0};
    assert_int_equal(weft__cuda_code_for(gpus, 80), 80);
    assert_int_equal(weft__cuda_code_for(gpus, 86), 86);
    assert_int_equal(weft__cuda_code_for(gpus, 89), 86);
    assert_int_equal(weft__cuda_code_for(gpus, 90), 90);
    assert_int_equal(weft__cuda_code_for(gpus, 103), 100);
}

TEST(a_newer_generation_runs_what_the_driver_compiles_from_the_last)
{
    const int32_t gpus[] = {80, 90, 0};
    assert_int_equal(weft__cuda_code_for(gpus, 120), 90);
    assert_int_equal(weft__cuda_code_for((const int32_t[]){80, 0}, 90), 80);
}

TEST(other_gpus_have_no_code)
{
    const int32_t gpus[] = {86, 100, 0};
    assert_int_equal(weft__cuda_code_for(gpus, 75), 0);
    assert_int_equal(weft__cuda_code_for(gpus, 80), 0);
    assert_int_equal(weft__cuda_code_for(gpus, 90), 0); /* PTX for 10.0 is too new */
}

TEST(the_library_has_a_list_of_its_gpus)
{
    int num = 0;
    for (const int32_t *gpu = weft__cuda_gpus; *gpu != 0; gpu++, num++)
        assert_true(*gpu >= 80 && *gpu < 1000);
    assert_true(num > 0);
}
