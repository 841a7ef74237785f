/* Products of a warp, as the PTX ISA has them: "Matrix Fragments for mma.m16n8k16 with floating point
 * type" and "ldmatrix" say which lane has which element. A sum is exact and rounded once; a GPU's
 * has an order of its own. And copies to shared memory, which come at a drawn moment up to the wait
 * for them. State: the copies of the block that runs. */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "cuda/fibers.h"
#include "cuda/order.h"
#include "cuda/races.h"

enum {
    WARP = 32
};

struct operands {
    uint32_t a[4], b[2];
};

static double
half_of(uint32_t word, unsigned upper)
{
    const uint32_t bits = upper ? word & 0xFFFF0000u : word << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return static_cast<double>(value);
}

/* A (16, 16): element i of a lane is in row g for i of 0, 1, 4 and 5, else in row g + 8; in column
 * 2 t + i % 2, from i = 4 on 8 later. */
static double
element_a(const operands *lanes, unsigned row, unsigned column)
{
    const unsigned lane = row % 8 * 4 + column % 8 / 2, word = row / 8 + column / 8 * 2;
    return half_of(lanes[lane].a[word], column % 2);
}

/* B (16, 8): element i of a lane is in row 2 t + i % 2, from i = 2 on 8 later, and in column g. */
static double
element_b(const operands *lanes, unsigned row, unsigned column)
{
    const unsigned lane = column * 4 + row % 8 / 2;
    return half_of(lanes[lane].b[row / 8], row % 2);
}

void
emulated_mma(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    operands own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    const operands *lanes = static_cast<const operands *>(cuda_emulated_meet(&own, sizeof own));
    const unsigned g = emulated_lane() / 4, t = emulated_lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = g + i / 2 * 8, column = 2 * t + i % 2;
        double total = static_cast<double>(sum[i]);
        for (unsigned k = 0; k < 16; k++)
            total += element_a(lanes, row, k) * element_b(lanes, k, column);
        sum[i] = static_cast<float>(total);
    }
}

void
emulated_load_matrices(uint32_t word[4], const void *row, bool transposed)
{
    const void *const *rows =
        static_cast<const void *const *>(cuda_emulated_meet(&row, sizeof row));
    const unsigned g = emulated_lane() / 4, t = emulated_lane() % 4;
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        fprintf(stderr, "cuda: ldmatrix: %p is no multiple of 16\n", row);
        abort();
    }
    cuda_emulated_note_warp_read(row, 16);
    for (unsigned m = 0; m < 4; m++) {
        uint16_t two[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned r = transposed ? 2 * t + e : g, c = transposed ? g : 2 * t + e;
            two[e] = static_cast<const uint16_t *>(rows[m * 8 + r])[c];
        }
        word[m] = two[0] | static_cast<uint32_t>(two[1]) << 16;
    }
}

/* --- Copies ----------------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
    bool came; /* before the wait for it */
};

struct thread_copies {
    std::vector<copy> pending;
    unsigned group; /* that further copies belong to */
};

static thread_copies copies[1024];

static thread_copies *
own_copies(void)
{
    return &copies[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
}

static void
bring(const copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}

void
emulated_begin_copy(void *shared, const void *from, bool zeros)
{
    thread_copies *own = own_copies();
    const copy c = {shared, zeros ? NULL : from, own->group, cuda_emulated_random() % 4 == 0};
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(from)) % 16 != 0) {
        fprintf(stderr, "cuda: cp.async: %p or %p is no multiple of 16\n", shared, from);
        abort();
    }
    cuda_emulated_watch_copy(shared);
    if (c.from)
        cuda_emulated_note_read(from, 16);
    if (c.came)
        bring(&c);
    const cuda_order_inside inside;
    own->pending.push_back(c);
}

void
emulated_end_copies(void)
{
    own_copies()->group++;
}

void
emulated_wait_copies(unsigned pending)
{
    thread_copies *own = own_copies();
    size_t left = 0;
    for (const copy &c : own->pending)
        if (c.group + pending < own->group) {
            cuda_emulated_watch_arrival(c.to);
            if (!c.came)
                bring(&c);
        } else {
            own->pending[left++] = c;
        }
    own->pending.resize(left);
}

bool
cuda_emulated_end_copies(unsigned thread)
{
    const bool left = !copies[thread].pending.empty();
    copies[thread].pending.clear();
    copies[thread].group = 0;
    return left;
}
