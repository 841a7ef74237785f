/* A test with a fault of its own, which nearly always passes: it waits until a thread says that it is
 * done, and then looks at what the thread counts afterwards. late.sh finds it by pauses of
 * schedule.c; its other delays are shorter than LEAD_MS. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum {
    LEAD_MS = 30 /* what the thread has for its count */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool done; /* guarded by `lock` */
static atomic_uint count;

static void *
work(void *unused)
{
    pthread_mutex_lock(&lock);
    done = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&count, 1);
    return unused;
}

int
main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 2;
    pthread_mutex_lock(&lock);
    while (!done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = LEAD_MS * 1000000}, NULL);
    bool counted = atomic_load(&count) == 1;
    pthread_join(thread, NULL);
    if (!counted)
        puts("it was done before it had counted");
    return counted ? 0 : 1;
}
