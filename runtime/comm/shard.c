/* Shards: a buffer is cut into as many parts as there are members. No state. */
#include <exogym/comm.h>

void
exo_shard(size_t count, uint32_t size, uint32_t rank, size_t *first, size_t *length)
{
    size_t each = count / size, longer = count % size;
    *first = each * rank + (rank < longer ? rank : longer);
    *length = each + (rank < longer);
}
