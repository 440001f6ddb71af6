/* SPDX-License-Identifier: MIT */
/* CUDA frees some memory and streams only when all kernels have ended. The library keeps these
 * while the process has a communicator, and uses them again. Streams get their first work one after
 * another. The driver here only counts. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/cmocka.h"
#include "machine/cuda/device.h"
#include "machine/cuda/kept.h"
#include "machine/cuda/network_memory.h"
#include "machine/cuda/own_streams.h"
#include "unit_cuda/plain_driver.h"

/* ---------------------------------------------------------------- a driver */

static atomic_int num_pinned, num_plain, num_registered, num_streams; /* that there are */
static atomic_int num_at_first_work, most_at_first_work;

static CUresult pin(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = malloc(bytes);
    atomic_fetch_add(&num_pinned, 1);
    return CUDA_SUCCESS;
}

static CUresult unpin(void *memory)
{
    free(memory);
    atomic_fetch_sub(&num_pinned, 1);
    return CUDA_SUCCESS;
}

/* The number of bytes lies first in the memory. */
static CUresult allocate(CUdeviceptr *memory, size_t bytes)
{
    size_t *made = malloc(sizeof *made);
    *made = bytes;
    *memory = (CUdeviceptr)(uintptr_t)made;
    atomic_fetch_add(&num_plain, 1);
    return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr memory)
{
    free((void *)(uintptr_t)memory);
    atomic_fetch_sub(&num_plain, 1);
    return CUDA_SUCCESS;
}

static CUresult tell_range(CUdeviceptr *begin, size_t *bytes, CUdeviceptr memory)
{
    (void)begin;
    *bytes = *(const size_t *)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult register_memory(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    memset(memory, 1, bytes); /* it can be accessed */
    atomic_fetch_add(&num_registered, 1);
    return CUDA_SUCCESS;
}

static CUresult unregister_memory(void *memory)
{
    (void)memory;
    atomic_fetch_sub(&num_registered, 1);
    return CUDA_SUCCESS;
}

static CUresult tell_address(CUdeviceptr *on_device, void *memory, unsigned flags)
{
    (void)flags;
    *on_device = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult make_stream(CUstream *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    *stream = malloc(1);
    atomic_fetch_add(&num_streams, 1);
    return CUDA_SUCCESS;
}

static CUresult end_stream(CUstream stream)
{
    free(stream);
    atomic_fetch_sub(&num_streams, 1);
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult allocate_in_order(CUdeviceptr *memory, size_t bytes, CUstream stream)
{
    const struct timespec pause = {.tv_nsec = 200000};
    (void)bytes;
    (void)stream;
    *memory = 1;
    const int num = atomic_fetch_add(&num_at_first_work, 1) + 1;
    if (num > atomic_load(&most_at_first_work))
        atomic_store(&most_at_first_work, num);
    nanosleep(&pause, NULL);
    return CUDA_SUCCESS;
}

static CUresult set_bytes(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream)
{
    (void)memory;
    (void)value;
    (void)bytes;
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult free_in_order(CUdeviceptr memory, CUstream stream)
{
    (void)memory;
    (void)stream;
    atomic_fetch_sub(&num_at_first_work, 1);
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

static const struct weft__cuda device = {.ordinal = 0};

/* ---------------------------------------------------------------- tests */

TEST(pinned_memory_is_used_again)
{
    void *first, *second, *other;
    weft__cuda_kept_begin();
    weft__cuda_kept_begin();
    assert_ok(weft__cuda_pinned_alloc(&device, 100, &first));
    memset(first, 1, 100);
    weft__cuda_pinned_free(&device, first, 100);
    weft__cuda_kept_end();
    assert_int_equal(num_pinned, 1);                           /* a communicator is there */
    assert_ok(weft__cuda_pinned_alloc(&device, 5000, &other)); /* another size */
    assert_ptr_not_equal(other, first);
    assert_ok(weft__cuda_pinned_alloc(&device, 200, &second));
    assert_ptr_equal(second, first);
    assert_int_equal(((const char *)second)[99], 0);
    weft__cuda_pinned_free(&device, second, 200);
    weft__cuda_pinned_free(&device, other, 5000);
    assert_int_equal(num_pinned, 2);
    weft__cuda_kept_end();
    assert_int_equal(num_pinned, 0);
    assert_int_equal(num_entered, 0);
}

TEST(plain_memory_is_used_again_if_it_is_not_much_larger)
{
    CUdeviceptr first, second, third;
    weft__cuda_kept_begin();
    assert_ok(weft__cuda_plain_alloc(&device, 1000, &first));
    weft__cuda_plain_free(&device, first);
    assert_ok(weft__cuda_plain_alloc(&device, 499, &second));
    assert_true(second != first);
    assert_ok(weft__cuda_plain_alloc(&device, 500, &third));
    assert_true(third == first);
    weft__cuda_plain_free(&device, third);
    weft__cuda_plain_free(&device, second);
    assert_int_equal(num_plain, 2);
    weft__cuda_kept_end();
    assert_int_equal(num_plain, 0);
}

TEST(memory_of_the_network_stays_pinned)
{
    struct weft__cuda_network_memory *first, *second;
    weft__cuda_kept_begin();
    assert_ok(weft__cuda_network_memory_open(&device, &first));
    assert_ok(weft__cuda_network_memory_pin(&device, first, 1 << 16));
    assert_ok(weft__cuda_network_memory_pin(&device, first, 1 << 15));
    assert_ok(weft__cuda_network_memory_pin(&device, first, 3 << 16));
    assert_int_equal(num_registered, 2);
    weft__cuda_network_memory_close(&device, first);
    assert_ok(weft__cuda_network_memory_open(&device, &second));
    assert_ptr_equal(second, first);
    assert_ok(weft__cuda_network_memory_pin(&device, second, 2 << 16));
    assert_int_equal(num_registered, 2);
    weft__cuda_network_memory_close(&device, second);
    weft__cuda_kept_end();
    assert_int_equal(num_registered, 0);
}

TEST(streams_are_used_again_while_there_is_a_communicator)
{
    CUstream first, second;
    weft__cuda_kept_begin();
    assert_ok(weft__cuda_take_stream(NULL, &first));
    weft__cuda_give_stream(NULL, first);
    assert_ok(weft__cuda_take_stream(NULL, &second));
    assert_ptr_equal(second, first);
    weft__cuda_kept_end();
    assert_int_equal(num_streams, 1); /* it outlives the communicator */
    weft__cuda_give_stream(NULL, second);
    assert_int_equal(num_streams, 0);
}

static void *make_streams(void *argument)
{
    CUstream streams[8];
    (void)argument;
    for (int i = 0; i < 8; i++)
        if (weft__cuda_take_stream(NULL, &streams[i]) != WEFT_OK)
            return NULL;
    for (int i = 0; i < 8; i++)
        weft__cuda_give_stream(NULL, streams[i]);
    return NULL;
}

TEST(first_work_comes_one_after_another)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_streams, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(most_at_first_work, 1);
    assert_int_equal(num_streams, 0);
}

int main(void)
{
    use_plain_driver();
    weft__cu.mem_host_alloc = pin;
    weft__cu.mem_free_host = unpin;
    weft__cu.mem_alloc = allocate;
    weft__cu.mem_free = release;
    weft__cu.mem_get_address_range = tell_range;
    weft__cu.mem_host_register = register_memory;
    weft__cu.mem_host_unregister = unregister_memory;
    weft__cu.mem_host_get_device_pointer = tell_address;
    weft__cu.stream_create_with_priority = make_stream;
    weft__cu.stream_destroy = end_stream;
    weft__cu.stream_synchronize = synchronize;
    weft__cu.mem_alloc_async = allocate_in_order;
    weft__cu.memset_d8_async = set_bytes;
    weft__cu.mem_free_async = free_in_order;
    weft__cu.thread_exchange_stream_capture_mode = exchange_mode;
    return tests_run(NULL, NULL);
}
