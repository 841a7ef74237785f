/* Limits, read from the kernel's files; host.h has the contracts. No state. */
#include "store/host.h"

#include <sys/resource.h>

void
exo_raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, the lower limit shows as FULL */
}
