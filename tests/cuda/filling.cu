/* SPDX-License-Identifier: MIT */
/* A kernel of an application that may start before the one before it in the stream has ended: its
 * blocks take their places on the GPU, and hold them until then. */
extern "C" __global__ void filling(unsigned *num_blocks_run)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
    if (threadIdx.x == 0)
        atomicAdd(num_blocks_run, 1u);
}
