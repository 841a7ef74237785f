/* The calls of a member through shared memory: see near.h. Read next: near_meet.c (boards, sets and
 * buffers), near_work.c (the operations), near_wait.c (the steps). */
#include "comm/near.h"

#include <exogym/memory.h>

#include "comm/near_impl.h"
#include "comm/reduce.h"

exo_status
exo_near_run(exo_far *f, const exo_collective_args *args, exo_time deadline, bool *done,
             exo_err *err)
{
    *done = false;
    if (args->size < 2 || args->size > EXO_NEAR_MEMBERS || args->codec || f->edge.links)
        return EXO_OK;
    if (!f->near) {
        exo_near *n = exo_near_new(f);
        pthread_mutex_lock(&f->lock);
        f->near = n;
        pthread_mutex_unlock(&f->lock);
        if (!n)
            return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    }
    exo_status st = EXO_OK;
    exo_near_set *s = exo_near_find_set(f->near, args);
    if (!s)
        st = exo_near_add_set(f->near, args, deadline, &s, err);
    if (st != EXO_OK || !s->near)
        return st;
    exo_near_call call = {.near = f->near,
                          .set = s,
                          .args = args,
                          .deadline = deadline,
                          .bytes = args->count * exo_dtype_size(args->dtype)};
    if (exo_comm_ways_reorders(args) && !f->near->scratch &&
        !(f->near->scratch =
              exo_alloc_aligned((size_t)f->near->size * EXO_REDUCE_BLOCK * sizeof(int64_t))))
        return exo_fail(err, EXO_NOMEM, "no memory for sums in the order of a way");
    *done = true;
    st = exo_near_do(&call);
    if (st == EXO_OK)
        return EXO_OK;
    pthread_mutex_lock(&f->lock);
    exo_far_break_locked(f, st, "a member of the collective says what cannot be");
    st = f->broken.code;
    if (err)
        *err = f->broken;
    pthread_mutex_unlock(&f->lock);
    exo_near_fail(&call);
    return st;
}
