/* Descriptors of the cuDNN of the tests, for its files (cudnn_test.h). The emulator's lock guards them.
 * Read next: cudnn.cc, graphs.cc. */
#ifndef EXO_TEST_CUDNN_THINGS_H
#define EXO_TEST_CUDNN_THINGS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <map>
#include <set>
#include <string>

enum {
    SUCCESS = 0,
    FLOAT = 0,
    INT32 = 4,
    BFLOAT16 = 9,
    BOOLEAN = 11,
    NOT_SUPPORTED = 3000
};

/* Kinds of descriptors. */
enum {
    POINTWISE = 0,
    CONVOLUTION = 1,
    ENGINE = 2,
    CONFIG = 3,
    HEURISTIC = 4,
    PLAN = 5,
    FORWARD = 10,
    FILTER = 11,
    DATA = 12,
    DO_POINTWISE = 13,
    GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
    MATMUL = 18,
    DO_MATMUL = 19,
    REDUCTION = 21,
    DO_REDUCTION = 22,
    DO_RESHAPE = 31
};

/* A descriptor, with the values of its attributes as bytes. */
struct thing {
    int kind, engine; /* engine: of a configuration or an engine */
    bool finished;
    std::map<int, std::string> values;
    const thing *graph; /* of a configuration */
};

extern std::set<thing *> descriptors; /* those that are there */

static inline void
forbid(bool wrong, const char *what)
{
    if (wrong) {
        fprintf(stderr, "cudnn: %s\n", what);
        abort();
    }
}

/* Types of attributes. */
enum {
    OF_HANDLE = 0,
    OF_DATA_TYPE = 1,
    OF_BOOLEAN = 2,
    OF_INT64 = 3,
    OF_FLOAT = 4,
    OF_POINTER = 6,
    OF_CONVOLUTION_MODE = 7,
    OF_HEURISTIC_MODE = 8,
    OF_NOTE = 11,
    OF_POINTWISE_MODE = 14,
    OF_THING = 15,
    OF_REDUCTION = 18
};

/* A value of an attribute; of things, one that is there. */
template <typename T>
static inline T
value_of(const thing *t, int name, size_t at = 0)
{
    T value;
    forbid(!descriptors.count(const_cast<thing *>(t)), "a descriptor that is not there is used");
    forbid(!t->values.count(name), "an attribute that is not set");
    memcpy(&value, t->values.at(name).data() + at * sizeof value, sizeof value);
    return value;
}

static inline const thing *
thing_at(const thing *t, int name, int kind)
{
    const thing *other = value_of<thing *>(t, name);
    forbid(!descriptors.count(const_cast<thing *>(other)), "a descriptor has lost another one");
    forbid(other->kind != kind, "a descriptor of another kind");
    forbid(!other->finished && kind != CONFIG, "a descriptor that is not finished");
    return other;
}

static inline int
int_at(const thing *t, int name, size_t at = 0)
{
    return static_cast<int>(value_of<int64_t>(t, name, at));
}

/* graphs.cc: graphs of products, pointwise operations, reductions and reshapes, such as attention. */
bool is_general(const thing *graph);
void check_general(const thing *graph);
bool has_bf16(const thing *graph);
/* What computes the graph with the arrays of a pack. */
std::function<void()> general_work(const thing *graph, const thing *pack);

#endif
