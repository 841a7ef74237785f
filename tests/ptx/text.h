/* PTX as statements: see text.cc. */
#ifndef EXO_TEST_PTX_TEXT_H
#define EXO_TEST_PTX_TEXT_H

#include "ptx/ptx.h"

namespace ptx {

/* A name with an offset, a number, or several of them in braces. */
struct operand {
    std::string name; /* empty: a number, or a list */
    uint64_t number = 0;
    int64_t offset = 0;
    std::vector<operand> list;
    bool is_list = false;
};

struct statement {
    uint32_t line = 0;
    std::string label; /* instead of an instruction */
    std::string opcode;
    std::string guard;
    bool negated = false;
    std::vector<operand> operands;
};

/* .reg: a name, or a prefix of numbered ones. */
struct register_type {
    bool wide, predicate;
};

struct variable {
    std::string name;
    std::string where; /* ".shared", ".local", ".param", ".global", ".const" */
    size_t align = 1, bytes = 0;
    bool unsized = false; /* the bytes of the launch */
    std::vector<unsigned char> values;
};

struct function {
    std::string name;
    bool entry = false;
    uint32_t most_threads = 0;
    std::vector<variable> parameters, returns, variables;
    std::map<std::string, register_type> registers;
    std::vector<statement> body;
};

struct program {
    std::vector<function> functions;
    std::vector<variable> variables;
    std::vector<std::string> lines;
};

program read_text(const char *text);
/* Bytes of a type such as ".b32"; 0: it is none. */
size_t bytes_of_type(const std::string &type);

} // namespace ptx

#endif
