/* Compares library.h with NCCL's own header, where there is one. Nothing here runs. */
#if __has_include(<nccl.h>)
#include <nccl.h>
#include <stddef.h>

#include "nccl/library.h"

#define EQUAL(own, its) static_assert(static_cast<int>(own) == static_cast<int>(its), "")
EQUAL(EXO_NCCL_SUCCESS, ncclSuccess);
EQUAL(EXO_NCCL_INVALID_USAGE, ncclInvalidUsage);
EQUAL(EXO_NCCL_REMOTE_ERROR, ncclRemoteError);
EQUAL(EXO_NCCL_IN_PROGRESS, ncclInProgress);
EQUAL(EXO_NCCL_I8, ncclInt8);
EQUAL(EXO_NCCL_U8, ncclUint8);
EQUAL(EXO_NCCL_I32, ncclInt32);
EQUAL(EXO_NCCL_I64, ncclInt64);
EQUAL(EXO_NCCL_F16, ncclFloat16);
EQUAL(EXO_NCCL_F32, ncclFloat32);
EQUAL(EXO_NCCL_BF16, ncclBfloat16);
EQUAL(EXO_NCCL_SUM, ncclSum);
EQUAL(EXO_NCCL_AVG, ncclAvg);
static_assert(sizeof(exo_nccl_id) == sizeof(ncclUniqueId), "");
#define SAME(own, its)                                                                             \
    static_assert(offsetof(exo_nccl_config, own) == offsetof(ncclConfig_t, its), "")
SAME(size, size);
SAME(magic, magic);
SAME(version, version);
SAME(blocking, blocking);
SAME(cga_cluster_size, cgaClusterSize);
SAME(min_ctas, minCTAs);
SAME(max_ctas, maxCTAs);
SAME(net_name, netName);

/* Where the table has ints and pointers, the header has enums and pointers of the same size. */
static_assert(sizeof(ncclComm_t) == sizeof(exo_nccl_comm), "");
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "");
static_assert(sizeof(ncclRedOp_t) == sizeof(int) && sizeof(cudaStream_t) == sizeof(void *), "");
static_assert(NCCL_VERSION_CODE >= 21400, "");

/* The types of the functions: the header's, with enums and pointers as the table has them. */
template <typename T, bool is_enum = __is_enum(T)> struct own_type {
    typedef T type;
};
template <typename T> struct own_type<T, true> {
    typedef int type;
};
template <typename T> struct own_type<T *, false> {
    typedef void *type;
};
template <> struct own_type<ncclUniqueId, false> {
    typedef exo_nccl_id type;
};
template <typename F> struct own_function;
template <typename R, typename... P> struct own_function<R(P...)> {
    typedef typename own_type<R>::type type(typename own_type<P>::type...);
};
template <typename A, typename B> struct equal_types {
    static const bool value = false;
};
template <typename A> struct equal_types<A, A> {
    static const bool value = true;
};
#define COMPARE(result, name, parameters)                                                          \
    static_assert(equal_types<typename own_function<result parameters>::type,                      \
                              typename own_function<decltype(nccl##name)>::type>::value,           \
                  #name);
EXO_NCCL_FUNCTIONS(COMPARE)
#if NCCL_VERSION_CODE >= 23003
EXO_NCCL_NEWER_FUNCTIONS(COMPARE)
#endif
#ifdef NCCL_SHRINK_DEFAULT
static_assert(NCCL_SHRINK_DEFAULT == 0, "make.c passes 0");
#endif
#ifdef NCCL_SUSPEND_MEM
EQUAL(EXO_NCCL_SUSPEND_MEM, NCCL_SUSPEND_MEM);
#endif
#ifdef NCCL_REVOKE_DEFAULT
static_assert(NCCL_REVOKE_DEFAULT == 0, "set.c passes 0");
#endif
#endif
