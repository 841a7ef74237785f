/* What handlers say of themselves: see decode.cc. */
#ifndef EXO_TEST_PTX_DECODE_H
#define EXO_TEST_PTX_DECODE_H

#include "ptx/ptx.h"
#include "ptx/text.h"

namespace ptx {

/* An instruction whose operands are all rows. */
struct operation {
    handler run;
    kind does;
    uint8_t results;
    std::vector<uint8_t> bytes; /* of a lane of each operand, results first: 4 or 8 */
    bool lenient;
};

/* By opcode: every operation of a file. */
using operations = std::map<std::string, operation>;
void add_integers(operations *all);
void add_floats(operations *all);
void add_conversions(operations *all);
void add_lanes(operations *all);

/* The parts of an opcode between points. */
std::vector<std::string> parts_of(const std::string &opcode);
/* A load, a store, an atomic or an asynchronous copy, but for its operands; run NULL: it is none. */
instruction memory_instruction(const std::string &opcode);

} // namespace ptx

#endif
