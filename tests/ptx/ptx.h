/* An interpreter of PTX, the code that nvcc really makes of nn/cuda: kernels run on the host as the PTX ISA
 * says, a warp at a time. It ends a kernel that does what a GPU would not forgive (fault).
 *
 *     text.cc       PTX as tokens, and these as statements
 *     decode.cc     statements as instructions: registers are rows of 32 lanes, calls are inlined
 *     integers.cc, floats.cc, convert.cc    what threads compute
 *     memory.cc     loads, stores, atomics, asynchronous copies
 *     shared.cc     which threads have used which shared bytes
 *     device.cc     the same of device memory, and what of it nobody has written
 *     lanes.cc      what the lanes of a warp do together
 *     run.cc        the turn of lanes, warps and blocks
 *     counts.cc     what a GPU would spend: sectors of global memory, conflicts of shared banks
 *     runtime.cc    the functions of libcudart that what nvcc compiles calls
 *
 * State: none but that of runtime.cc and counts.cc. Read next: run.h. */
#ifndef EXO_TEST_PTX_H
#define EXO_TEST_PTX_H

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

enum {
    LANES = 32,
    ROW_BYTES = 128, /* a row has 4 bytes of each lane; two have 8 */
    MOST_ROWS = 16   /* operands of an instruction */
};

static const uint32_t ALL_LANES = 0xFFFFFFFFu;
static const uint32_t NO_ROW = 0xFFFFFFFFu;

/* What a kernel must not do, or what this interpreter does not know: with the kernel, the line, the block
 * and the threads. */
struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct warp;
struct instruction;
/* Computes for the lanes of `on`. */
using handler = void (*)(warp &w, const instruction &i, uint32_t on);

enum class kind : uint8_t {
    plain,
    branch,
    meet,    /* lanes do it together: those of a mask, or the whole warp */
    barrier, /* all threads of the block */
    end
};

enum class space : uint8_t {
    none,
    generic,
    global,
    shared,
    local,
    param
};

struct instruction {
    handler run = nullptr;
    kind does = kind::plain;
    space where = space::none;
    bool negated = false; /* the guard */
    bool lenient = false; /* its sources may be undefined, and then its results are */
    bool accesses = false, writes = false;       /* memory */
    bool wide_data = false, wide_address = true; /* their lanes have 8 bytes */
    uint8_t results = 0, rows = 0;
    uint8_t vector = 1, bytes = 0; /* of memory: numbers, and bytes of each */
    uint32_t row[MOST_ROWS] = {};  /* results first */
    uint32_t guard = NO_ROW;
    uint32_t mask = NO_ROW; /* of lanes that meet; NO_ROW: all of the warp */
    uint32_t target = 0;
    int64_t offset = 0;
    uint32_t line = 0;
};

struct parameter {
    std::string name;
    size_t offset, bytes;
};

/* The value that every lane finds in a row from the beginning. */
struct constant {
    uint32_t row;
    bool wide;
    uint64_t value;
};

/* A special register: 'x' to 'z' of %tid, and so on. */
struct special {
    uint32_t row;
    std::string name;
};

struct kernel {
    std::string name;
    std::shared_ptr<const std::vector<std::string>> lines; /* of its module */
    std::vector<instruction> code;
    std::vector<parameter> parameters;
    std::vector<constant> constants;
    std::vector<special> specials;
    size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
    size_t granule = 16;        /* the smallest access to shared memory */
    size_t global_granule = 16; /* and to device memory */
    uint32_t rows = 0;
    uint32_t most_threads = 0; /* .maxntid; 0: it says none */
};

/* Memory that kernels reach beside that of the host. */
struct module {
    std::map<std::string, kernel> kernels;
    std::vector<std::unique_ptr<std::vector<unsigned char>>> variables;
};

/* Throws a fault if the text has what is not known here. */
std::unique_ptr<module> parse(const char *text);

} // namespace ptx

#endif
