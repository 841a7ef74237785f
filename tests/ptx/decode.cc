/* Statements as instructions. Registers, numbers and special registers are rows of 32 lanes; functions that
 * a kernel calls are inlined, so that a kernel is one list. No state. Read next: run.cc. */
#include "ptx/decode.h"

#include <algorithm>

#include "ptx/run.h"

namespace ptx {

namespace {

/* What a name stands for that is no register. */
struct symbol {
    space where;
    uint64_t address;
};

struct builder {
    const program &from;
    const std::map<std::string, symbol> &globals;
    const operations &known;
    kernel *k;
    std::map<std::string, symbol> symbols;
    std::map<std::string, uint32_t> rows, labels;
    std::map<std::pair<bool, uint64_t>, uint32_t> numbers;
    std::vector<std::pair<size_t, std::string>> jumps; /* instructions, and their labels */
    unsigned calls = 0;

    [[noreturn]] void fail(const statement &s, const std::string &what) const;
    uint32_t new_row(bool wide);
    uint32_t number_row(bool wide, uint64_t value);
    uint32_t register_row(const statement &s, const function &f, const std::string &prefix,
                          const std::string &name, bool wide);
    uint32_t row_of(const statement &s, const function &f, const std::string &prefix,
                    const operand &o, bool wide);
    const symbol *symbol_of(const std::string &prefix, const std::string &name) const;
    void place_shared(const function &f);
    void place_locals(const function &f, const std::string &prefix);
    void add_jump(const statement &s, const function &f, const std::string &prefix,
                  const std::string &label);
    void add_call(const statement &s, const function &f, const std::string &prefix);
    void add_memory(const statement &s, const function &f, const std::string &prefix);
    void add_operation(const statement &s, const function &f, const std::string &prefix);
    void add_statement(const statement &s, const function &f, const std::string &prefix);
    void add_body(const function &f, const std::string &prefix);
    void finish(void);
};

} // namespace

std::vector<std::string>
parts_of(const std::string &opcode)
{
    std::vector<std::string> parts;
    for (size_t at = 0, end; at <= opcode.size(); at = end + 1) {
        end = opcode.find('.', at);
        end = end == std::string::npos ? opcode.size() : end;
        parts.push_back(opcode.substr(at, end - at));
    }
    return parts;
}

static size_t
round_up(size_t bytes, size_t align)
{
    return (bytes + align - 1) / align * align;
}

void
builder::fail(const statement &s, const std::string &what) const
{
    throw fault(k->name + ", PTX line " + std::to_string(s.line) + ": " + what + ": " +
                from.lines[s.line - 1]);
}

uint32_t
builder::new_row(bool wide)
{
    const uint32_t row = k->rows;
    k->rows += wide ? 2 : 1;
    return row;
}

uint32_t
builder::number_row(bool wide, uint64_t value)
{
    const auto key = std::make_pair(wide, wide ? value : value & 0xFFFFFFFFu);
    const auto found = numbers.find(key);
    if (found != numbers.end())
        return found->second;
    const uint32_t row = new_row(wide);
    k->constants.push_back({row, wide, key.second});
    return numbers[key] = row;
}

static std::map<std::string, register_type>::const_iterator
find_register(const function &f, const std::string &name)
{
    const auto found = f.registers.find(name);
    return found != f.registers.end()
               ? found
               : f.registers.find(name.substr(0, name.find_last_not_of("0123456789") + 1) + "<");
}

/* Whether a register has 8 bytes; otherwise: of what is none. */
static bool
is_wide(const function &f, const std::string &name, bool otherwise)
{
    const auto found = find_register(f, name);
    return found != f.registers.end() ? found->second.wide : otherwise;
}

/* A register of the function, or a special one. */
uint32_t
builder::register_row(const statement &s, const function &f, const std::string &prefix,
                      const std::string &name, bool wide)
{
    const bool is_special = name.find('.') != std::string::npos || name == "%laneid";
    const std::string own = is_special ? name : prefix + name;
    const auto found = rows.find(own);
    const auto type = find_register(f, name);
    if (!is_special && (type == f.registers.end() || type->second.wide != wide))
        fail(s, "'" + name + "' is no register of this size");
    if (found != rows.end())
        return found->second;
    const uint32_t row = new_row(wide);
    if (is_special)
        k->specials.push_back({row, name});
    return rows[own] = row;
}

const symbol *
builder::symbol_of(const std::string &prefix, const std::string &name) const
{
    auto found = symbols.find(prefix + name);
    if (found != symbols.end())
        return &found->second;
    found = globals.find(name);
    return found != globals.end() ? &found->second : nullptr;
}

uint32_t
builder::row_of(const statement &s, const function &f, const std::string &prefix, const operand &o,
                bool wide)
{
    if (o.name == "_")
        return new_row(wide);
    if (o.name[0] == '%' || find_register(f, o.name) != f.registers.end())
        return register_row(s, f, prefix, o.name, wide);
    if (o.name.empty())
        return number_row(wide, o.number);
    const symbol *const is = symbol_of(prefix, o.name);
    if (!is)
        fail(s, "'" + o.name + "' is not known");
    return number_row(wide, is->address + static_cast<uint64_t>(o.offset));
}

/* --- Places of variables ------------------------------------------------------------------------ */

static bool
uses(const std::vector<operand> &operands, const std::string &name)
{
    for (const operand &o : operands)
        if (o.name == name || uses(o.list, name))
            return true;
    return false;
}

/* The shared variables of the module and of the function that it uses, and behind them the bytes of the
 * launch. */
void
builder::place_shared(const function &f)
{
    std::vector<const variable *> behind;
    for (const auto *list : {&from.variables, &f.variables})
        for (const variable &v : *list) {
            bool used = false;
            for (const statement &s : f.body)
                used = used || uses(s.operands, v.name);
            if (v.where != ".shared" || !used)
                continue;
            if (v.unsized) {
                behind.push_back(&v);
                continue;
            }
            k->shared_bytes = round_up(k->shared_bytes, v.align);
            symbols[v.name] = {space::shared, SHARED_BASE + k->shared_bytes};
            k->shared_bytes += v.bytes;
        }
    for (const variable *v : behind) {
        k->shared_bytes = round_up(k->shared_bytes, v->align);
        symbols[v->name] = {space::shared, SHARED_BASE + k->shared_bytes};
    }
}

/* A thread's own memory, with what it passes to functions. */
void
builder::place_locals(const function &f, const std::string &prefix)
{
    for (const variable &v : f.variables)
        if (v.where != ".shared") {
            k->local_bytes = round_up(k->local_bytes, v.align);
            symbols[prefix + v.name] = {space::local, k->local_bytes};
            k->local_bytes += v.bytes;
        }
}

/* --- Statements --------------------------------------------------------------------------------- */

void
builder::add_jump(const statement &s, const function &f, const std::string &prefix,
                  const std::string &label)
{
    instruction i;
    i.does = kind::branch;
    i.line = s.line;
    i.negated = s.negated;
    if (!s.guard.empty())
        i.guard = register_row(s, f, prefix, s.guard, false);
    jumps.emplace_back(k->code.size(), prefix + label);
    k->code.push_back(i);
}

/* call (results), function, (parameters): its parameters are the caller's variables. */
void
builder::add_call(const statement &s, const function &f, const std::string &prefix)
{
    const bool returns = s.operands.size() > 0 && s.operands[0].is_list;
    const std::string name = s.operands.at(returns).name;
    const function *called = nullptr;
    for (const function &g : from.functions)
        called = g.name == name ? &g : called;
    if (!called || !s.guard.empty())
        fail(s, "a call that cannot be inlined");
    const std::string inner = std::to_string(++calls) + "/";
    const auto pass = [&](const std::vector<variable> &theirs, const std::vector<operand> &own) {
        for (size_t n = 0; n < theirs.size(); n++) {
            const symbol *const is = symbol_of(prefix, own.at(n).name);
            if (!is)
                fail(s, "'" + own[n].name + "' is not known");
            symbols[inner + theirs[n].name] = *is;
        }
    };
    if (returns)
        pass(called->returns, s.operands[0].list);
    if (s.operands.size() > returns + 1u)
        pass(called->parameters, s.operands[returns + 1u].list);
    (void)f;
    add_body(*called, inner);
    labels[inner + "<end>"] = static_cast<uint32_t>(k->code.size());
}

/* Results, the address, and what is stored. */
void
builder::add_memory(const statement &s, const function &f, const std::string &prefix)
{
    instruction i = memory_instruction(s.opcode);
    if (!i.run)
        fail(s, "an access that is not known");
    i.line = s.line;
    if (!s.guard.empty())
        i.guard = register_row(s, f, prefix, s.guard, false);
    i.negated = s.negated;
    const bool stores = i.results == 0, copies = s.opcode.compare(0, 8, "cp.async") == 0;
    const operand &at = s.operands.at(stores ? 0 : 1);
    const symbol *const is = symbol_of(prefix, at.name);
    if (is && i.where == space::param)
        i.where = is->where;
    i.offset = is ? 0 : at.offset;
    const auto add_data = [&](const operand &o) {
        for (const operand &part : o.is_list ? o.list : std::vector<operand>{o}) {
            i.wide_data = is_wide(f, part.name, i.bytes == 8);
            i.row[i.rows++] = row_of(s, f, prefix, part, i.wide_data);
        }
    };
    if (!stores)
        add_data(s.operands[0]);
    i.results = i.rows;
    i.wide_address = is_wide(f, at.name, true);
    i.row[i.rows++] = row_of(s, f, prefix, at, i.wide_address);
    for (size_t n = stores ? 1 : 2; n < s.operands.size(); n++)
        if (copies) /* the source, and numbers of bytes */
            i.row[i.rows++] = row_of(s, f, prefix, s.operands[n], n == 1);
        else
            add_data(s.operands[n]);
    if (copies && s.operands[1].offset != 0)
        fail(s, "an offset that is not known here");
    if (i.where == space::shared || i.where == space::generic)
        k->granule = std::min(k->granule, static_cast<size_t>(i.vector) * i.bytes);
    if (i.where == space::global || i.where == space::generic)
        k->global_granule = std::min(k->global_granule, static_cast<size_t>(i.vector) * i.bytes);
    k->code.push_back(i);
}

/* All operands, without braces. `a|b` are two. */
static void
flatten(const std::vector<operand> &operands, std::vector<operand> *out)
{
    for (const operand &o : operands) {
        if (!o.is_list)
            out->push_back(o);
        flatten(o.list, out);
    }
}

void
builder::add_operation(const statement &s, const function &f, const std::string &prefix)
{
    std::vector<operand> operands;
    std::string key = s.opcode;
    if (key.compare(0, 4, "mov.") == 0 && s.operands.size() == 2)
        key += s.operands[0].is_list ? "<" : s.operands[1].is_list ? ">" : "";
    flatten(s.operands, &operands);
    const auto found = known.find(key);
    if (found == known.end())
        fail(s, "an instruction that is not known");
    const operation &o = found->second;
    operand unused;
    unused.name = "_";
    if (key.compare(0, 5, "shfl.") == 0 && operands.size() + 1 == o.bytes.size())
        operands.insert(operands.begin() + 1, unused); /* a predicate that nobody wants */
    if (operands.size() != o.bytes.size())
        fail(s, "another number of operands than expected");
    instruction i;
    i.run = o.run;
    i.does = o.does;
    i.lenient = o.lenient;
    i.results = o.results;
    i.line = s.line;
    i.negated = s.negated;
    if (!s.guard.empty())
        i.guard = register_row(s, f, prefix, s.guard, false);
    for (size_t n = 0; n < operands.size(); n++) {
        i.row[i.rows++] = row_of(s, f, prefix, operands[n], o.bytes[n] == 8);
        if (key.compare(0, 8, "ldmatrix") == 0)
            i.offset += operands[n].offset;
    }
    if (o.does == kind::meet && key.find(".aligned") == std::string::npos)
        i.mask = i.row[i.rows - 1];
    k->code.push_back(i);
}

void
builder::add_statement(const statement &s, const function &f, const std::string &prefix)
{
    const std::vector<std::string> parts = parts_of(s.opcode);
    if (!s.label.empty()) {
        labels[prefix + s.label] = static_cast<uint32_t>(k->code.size());
    } else if (parts[0] == "bra") {
        add_jump(s, f, prefix, s.operands.at(0).name);
    } else if (parts[0] == "ret" && !f.entry) {
        add_jump(s, f, prefix, "<end>");
    } else if (parts[0] == "ret" || parts[0] == "exit") {
        add_jump(s, f, prefix, "");
        k->code.back().does = kind::end;
        jumps.pop_back();
    } else if (parts[0] == "call") {
        add_call(s, f, prefix);
    } else if (s.opcode == "bar.sync" || s.opcode == "barrier.sync.aligned") {
        if (s.operands.size() != 1 || !s.operands[0].name.empty() || s.operands[0].number != 0)
            fail(s, "a barrier of other threads than all");
        add_jump(s, f, prefix, "");
        k->code.back().does = kind::barrier;
        jumps.pop_back();
    } else if (parts[0] == "ld" || parts[0] == "st" || parts[0] == "atom" || parts[0] == "red" ||
               s.opcode.compare(0, 12, "cp.async.cg.") == 0 ||
               s.opcode.compare(0, 12, "cp.async.ca.") == 0) {
        add_memory(s, f, prefix);
    } else {
        add_operation(s, f, prefix);
    }
}

void
builder::add_body(const function &f, const std::string &prefix)
{
    place_locals(f, prefix);
    for (const statement &s : f.body)
        add_statement(s, f, prefix);
}

void
builder::finish(void)
{
    instruction end; /* behind a function that is inlined last, and for who falls out */
    end.does = kind::end;
    k->code.push_back(end);
    for (const auto &jump : jumps) {
        const auto found = labels.find(jump.second);
        if (found == labels.end())
            throw fault(k->name + ": no label '" + jump.second + "'");
        k->code[jump.first].target = found->second;
    }
}

static void
add_kernel(const program &from, const function &f, const std::map<std::string, symbol> &globals,
           const operations &known, kernel *k)
{
    builder b = {from, globals, known, k, {}, {}, {}, {}, {}};
    k->name = f.name;
    k->most_threads = f.most_threads;
    for (const variable &v : f.parameters) {
        const size_t at = round_up(k->parameter_bytes, v.align);
        k->parameters.push_back({v.name, at, v.bytes});
        b.symbols[v.name] = {space::param, at};
        k->parameter_bytes = at + v.bytes;
    }
    b.place_shared(f);
    b.add_body(f, "");
    b.finish();
}

std::unique_ptr<module>
parse(const char *text)
{
    const program p = read_text(text);
    std::unique_ptr<module> m(new module);
    std::map<std::string, symbol> globals;
    operations known;
    add_integers(&known);
    add_floats(&known);
    add_conversions(&known);
    add_lanes(&known);
    for (const variable &v : p.variables)
        if (v.where != ".shared") {
            m->variables.emplace_back(new std::vector<unsigned char>(v.values));
            m->variables.back()->resize(v.bytes);
            globals[v.name] = {space::global,
                               reinterpret_cast<uint64_t>(m->variables.back()->data())};
        }
    const auto lines = std::make_shared<const std::vector<std::string>>(p.lines);
    for (const function &f : p.functions)
        if (f.entry) {
            kernel *const k = &m->kernels[f.name];
            k->lines = lines;
            add_kernel(p, f, globals, known, k);
        }
    return m;
}

} // namespace ptx
