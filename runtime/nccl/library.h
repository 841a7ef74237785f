/* NCCL as a table of its functions, which are looked up in libnccl.so.2 when a job first needs them:
 * the plugin exogym-cuda.so loads where there is no NCCL. Types and numbers are those of nccl.h, which
 * is not needed; header.cu compares them where there is one. NCCL from 2.14 on.
 *
 * State: the table, one for the process. Read next: library.c. */
#ifndef EXO_NCCL_LIBRARY_H
#define EXO_NCCL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* ncclResult_t */
enum {
    EXO_NCCL_SUCCESS = 0,
    EXO_NCCL_INVALID_USAGE = 5,
    EXO_NCCL_REMOTE_ERROR = 6,
    EXO_NCCL_IN_PROGRESS = 7
};

/* ncclDataType_t */
enum {
    EXO_NCCL_I8 = 0,
    EXO_NCCL_U8 = 1,
    EXO_NCCL_I32 = 2,
    EXO_NCCL_I64 = 4,
    EXO_NCCL_F16 = 6,
    EXO_NCCL_F32 = 7,
    EXO_NCCL_BF16 = 9
};

/* ncclRedOp_t */
enum {
    EXO_NCCL_SUM = 0,
    EXO_NCCL_AVG = 4
};

enum {
    EXO_NCCL_SUSPEND_MEM = 1 /* the flag of CommSuspend */
};

typedef struct exo_nccl_id { /* ncclUniqueId */
    char bytes[128];
} exo_nccl_id;

/* The beginning of an ncclConfig_t, as NCCL 2.17 had it: NCCL sets what an older config lacks. */
typedef struct exo_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
} exo_nccl_config;

typedef void *exo_nccl_comm; /* ncclComm_t */

/* The functions: exo_nccl_table.NAME is ncclNAME. X(result, NAME, (parameters)); streams are
 * cudaStream_t. */
#define EXO_NCCL_FUNCTIONS(X)                                                                      \
    X(int, GetVersion, (int *version))                                                             \
    X(const char *, GetErrorString, (int result))                                                  \
    X(const char *, GetLastError, (exo_nccl_comm comm))                                            \
    X(int, GetUniqueId, (exo_nccl_id * id))                                                        \
    X(int, CommInitRankConfig,                                                                     \
      (exo_nccl_comm * out, int size, exo_nccl_id id, int rank, exo_nccl_config *config))          \
    X(int, CommFinalize, (exo_nccl_comm comm))                                                     \
    X(int, CommDestroy, (exo_nccl_comm comm))                                                      \
    X(int, CommAbort, (exo_nccl_comm comm))                                                        \
    X(int, CommGetAsyncError, (exo_nccl_comm comm, int *result))                                   \
    X(int, AllReduce,                                                                              \
      (const void *from, void *to, size_t count, int type, int op, exo_nccl_comm comm,             \
       void *stream))                                                                              \
    X(int, ReduceScatter,                                                                          \
      (const void *from, void *to, size_t count, int type, int op, exo_nccl_comm comm,             \
       void *stream))                                                                              \
    X(int, Reduce,                                                                                 \
      (const void *from, void *to, size_t count, int type, int op, int root, exo_nccl_comm comm,   \
       void *stream))                                                                              \
    X(int, AllGather,                                                                              \
      (const void *from, void *to, size_t count, int type, exo_nccl_comm comm, void *stream))      \
    X(int, Broadcast,                                                                              \
      (const void *from, void *to, size_t count, int type, int root, exo_nccl_comm comm,           \
       void *stream))                                                                              \
    X(int, Send,                                                                                   \
      (const void *from, size_t count, int type, int to, exo_nccl_comm comm, void *stream))        \
    X(int, Recv, (void *to, size_t count, int type, int from, exo_nccl_comm comm, void *stream))   \
    X(int, GroupStart, (void))                                                                     \
    X(int, GroupEnd, (void))

/* Functions that older versions lack: NULL in the table. */
#define EXO_NCCL_NEWER_FUNCTIONS(X)                                                                \
    X(int, CommRevoke, (exo_nccl_comm comm, int flags))                                            \
    X(int, CommShrink,                                                                             \
      (exo_nccl_comm comm, int *excluded, int count, exo_nccl_comm *out, exo_nccl_config *config,  \
       int flags))                                                                                 \
    X(int, CommGetUniqueId, (exo_nccl_comm comm, exo_nccl_id * id))                                \
    X(int, CommGrow,                                                                               \
      (exo_nccl_comm comm, int size, const exo_nccl_id *id, int rank, exo_nccl_comm *out,          \
       exo_nccl_config *config))                                                                   \
    X(int, CommSuspend, (exo_nccl_comm comm, int flags))                                           \
    X(int, CommResume, (exo_nccl_comm comm))

typedef struct exo_nccl_table {
#define EXO_NCCL_MEMBER(result, name, parameters) result(*name) parameters;
    EXO_NCCL_FUNCTIONS(EXO_NCCL_MEMBER)
    EXO_NCCL_NEWER_FUNCTIONS(EXO_NCCL_MEMBER)
#undef EXO_NCCL_MEMBER
    char name[320]; /* for errors: "NCCL 2.30.7 (FILE)" */
} exo_nccl_table;

/* Whether it grows communicators (NCCL 2.29.2). */
static inline bool
exo_nccl_can_grow(const exo_nccl_table *nccl)
{
    return nccl->CommGrow && nccl->CommGetUniqueId;
}

/* Whether it suspends them (NCCL 2.30.3: before, both functions wait for the other members in the thread
 * that calls them, and the table lacks them). */
static inline bool
exo_nccl_can_suspend(const exo_nccl_table *nccl)
{
    return nccl->CommSuspend && nccl->CommResume;
}

/* Loads the library, once, with the environment that decision 48 has. The table stays as long as the
 * process. Errors: UNSUPPORTED (there is no NCCL, one that lacks functions, or one that is told to
 * block). Any thread. */
exo_status exo_nccl_load(const exo_nccl_table **out, exo_err *err);
/* For tests: the file to load in place of libnccl.so.2. Before the first load. */
void exo_nccl_use(const char *path);
/* For tests: from now on there is no ncclNAME, one of the newer functions, as in older versions. Before
 * the first group. */
void exo_nccl_lack(const char *name);

#endif
