/* What the thread sanitizer is told of the order of the emulated GPUs' work. Whoever waits does that
 * work, on a thread of the host, which alone would order nearly all of it. So each stream is a fiber of the
 * sanitizer, and work is ordered by what CUDA promises only:
 *
 *     a call that queues work is before that work;
 *     the pieces of a stream are one after the other;
 *     what an event has recorded is before what waits for it, on a stream or on the host;
 *     work is before the end of a call that waits for its stream or its GPU.
 *
 * So it finds a missing event between two streams, and memory that the host uses too early or frees too
 * soon. The threads of a grid are one to it: races.cc is for them. Without that sanitizer all of this is
 * nothing. No state. Read next: work.cc. */
#ifndef EXO_TEST_CUDA_ORDER_H
#define EXO_TEST_CUDA_ORDER_H

#include <stddef.h>

#if defined(EXO_TEST_THREAD_SANITIZER)
#define CUDA_ORDER_IS_TOLD true
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateBenignRaceSized(const char *file, int line, const volatile void *at, size_t bytes,
                             const char *why);
}

static inline void *
cuda_order_new(void)
{
    return __tsan_create_fiber(0);
}

static inline void
cuda_order_free(void *stream)
{
    __tsan_destroy_fiber(stream);
}

/* Goes on as that one. Returns which it was before. */
static inline void *
cuda_order_enter(void *next)
{
    void *const before = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(next, __tsan_switch_to_fiber_no_sync);
    return before;
}

/* All until now is before what comes behind `cuda_order_after` of the same address. */
static inline void
cuda_order_before(const void *at)
{
    __tsan_release(const_cast<void *>(at));
}

static inline void
cuda_order_after(const void *at)
{
    __tsan_acquire(const_cast<void *>(at));
}

/* Memory of the emulator that grids of all streams use, one after the other. */
static inline void
cuda_order_own(const volatile void *at, size_t bytes)
{
    AnnotateBenignRaceSized(__FILE__, __LINE__, at, bytes, "of the emulator");
}

/* While one lives, the emulator changes objects of its own. */
struct cuda_order_inside {
    cuda_order_inside()
    {
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~cuda_order_inside()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    }
};
#else
#define CUDA_ORDER_IS_TOLD false
static inline void *
cuda_order_new(void)
{
    return NULL;
}

static inline void
cuda_order_free(void *)
{
}

static inline void *
cuda_order_enter(void *)
{
    return NULL;
}

static inline void
cuda_order_before(const void *)
{
}

static inline void
cuda_order_after(const void *)
{
}

static inline void
cuda_order_own(const volatile void *, size_t)
{
}

struct cuda_order_inside {
    cuda_order_inside()
    {
    }
};
#endif

#endif
