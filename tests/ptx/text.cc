/* PTX as tokens, and these as statements. Names of inner braces get a number of their own, so that a
 * function has one list of names. No state. Read next: decode.cc. */
#include "ptx/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

namespace ptx {

struct token {
    std::string text;
    uint32_t line;
};

size_t
bytes_of_type(const std::string &type)
{
    if (type == ".pred")
        return 4;
    const size_t bits = type.size() > 2 ? strtoul(type.c_str() + 2, nullptr, 10) : 0;
    return bits / 8;
}

static bool
is_word(char c)
{
    return isalnum(static_cast<unsigned char>(c)) || strchr("_$%.", c);
}

static std::vector<token>
tokens_of(const std::vector<std::string> &lines)
{
    std::vector<token> tokens;
    for (size_t n = 0; n < lines.size(); n++) {
        const std::string &line = lines[n];
        for (size_t at = 0; at < line.size();) {
            size_t end = at + 1;
            if (line.compare(at, 2, "//") == 0)
                break;
            if (line[at] == '"')
                end = line.find('"', at + 1) + 1;
            else if (is_word(line[at]))
                while (end < line.size() && is_word(line[end]))
                    end++;
            if (!isspace(static_cast<unsigned char>(line[at])))
                tokens.push_back({line.substr(at, end - at), static_cast<uint32_t>(n + 1)});
            at = end;
        }
    }
    return tokens;
}

namespace {

struct reader {
    std::vector<token> tokens;
    size_t at = 0;
    unsigned scopes = 0;

    const std::string &look(size_t ahead = 0) const
    {
        static const std::string nothing;
        return at + ahead < tokens.size() ? tokens[at + ahead].text : nothing;
    }
    uint32_t line(void) const
    {
        return at < tokens.size() ? tokens[at].line : 0;
    }
    [[noreturn]] void fail(const std::string &what) const
    {
        throw fault("PTX line " + std::to_string(line()) + ": " + what + " at '" + look() + "'");
    }
    std::string take(void)
    {
        if (at >= tokens.size())
            fail("the text ends early");
        return tokens[at++].text;
    }
    bool accept(const char *text)
    {
        const bool is = look() == text;
        at += is;
        return is;
    }
    void expect(const char *text)
    {
        if (!accept(text))
            fail(std::string("expected '") + text + "'");
    }
};

/* Names that braces have declared: the innermost one counts. */
using scope = std::map<std::string, std::string>;

struct body_reader {
    reader &in;
    function &out;
    std::vector<scope> scopes;

    std::string rename(const std::string &name) const;
    void declare_registers(void);
    void declare_variable(void);
    operand read_operand(void);
    void read_instruction(void);
    void read_body(void);
};

} // namespace

/* A number of PTX as bits: also 0fHEX of a float, 0dHEX of a double. */
static uint64_t
number_of(const std::string &text)
{
    const bool is_float = text.size() > 2 && text[0] == '0' && strchr("fFdD", text[1]);
    return is_float ? strtoull(text.c_str() + 2, nullptr, 16) : strtoull(text.c_str(), nullptr, 0);
}

static int64_t
read_signed(reader &in)
{
    const bool negative = in.accept("-");
    const int64_t value = static_cast<int64_t>(number_of(in.take()));
    return negative ? -value : value;
}

/* Behind the state space: [.align N] .type [.ptr ...] name[count] [= {values}] */
static variable
read_variable(reader &in, const std::string &where)
{
    variable v;
    v.where = where;
    if (in.accept(".align"))
        v.align = static_cast<size_t>(read_signed(in));
    const size_t each = bytes_of_type(in.take());
    if (in.accept(".ptr")) { /* a parameter that is an address: what is said of its target */
        if (!in.accept(".global"))
            (void)in.accept(".shared");
        if (in.accept(".align"))
            (void)read_signed(in);
    }
    v.align = v.align > each ? v.align : each;
    v.name = in.take();
    v.bytes = each;
    if (each == 0)
        in.fail("a variable of a type that is not known");
    while (in.accept("[")) {
        v.unsized = in.look() == "]";
        v.bytes = v.unsized ? 0 : v.bytes * static_cast<size_t>(read_signed(in));
        in.expect("]");
    }
    if (in.accept("=")) {
        in.expect("{");
        if (each != 1)
            in.fail("values that are no bytes");
        do
            v.values.push_back(static_cast<unsigned char>(read_signed(in)));
        while (in.accept(","));
        in.expect("}");
    }
    return v;
}

std::string
body_reader::rename(const std::string &name) const
{
    for (size_t s = scopes.size(); s-- > 0;) {
        const auto found = scopes[s].find(name);
        if (found != scopes[s].end())
            return found->second;
    }
    return name;
}

/* .reg .type name, name<count>, ... */
void
body_reader::declare_registers(void)
{
    const std::string type = in.take();
    const register_type is = {bytes_of_type(type) == 8, type == ".pred"};
    do {
        const std::string name = in.take();
        if (in.accept("<")) {
            (void)in.take();
            in.expect(">");
            out.registers[name + "<"] = is;
            continue;
        }
        std::string own = name;
        if (scopes.size() > 1)
            own += "@" + std::to_string(++in.scopes);
        scopes.back()[name] = own;
        out.registers[own] = is;
    } while (in.accept(","));
    in.expect(";");
}

void
body_reader::declare_variable(void)
{
    variable v = read_variable(in, in.take());
    const std::string name = v.name;
    if (scopes.size() > 1)
        v.name += "@" + std::to_string(++in.scopes);
    scopes.back()[name] = v.name;
    out.variables.push_back(v);
    in.expect(";");
}

operand
body_reader::read_operand(void)
{
    operand o;
    if (in.accept("{") || in.accept("(")) {
        o.is_list = true;
        do
            o.list.push_back(read_operand());
        while (in.accept(","));
        if (!in.accept("}"))
            in.expect(")");
        return o;
    }
    const bool address = in.accept("[");
    const bool negative = in.accept("-");
    const std::string text = in.take();
    if (isdigit(static_cast<unsigned char>(text[0])))
        o.number = negative ? ~number_of(text) + 1 : number_of(text);
    else
        o.name = rename(text);
    if (in.accept("+"))
        o.offset = read_signed(in);
    if (in.accept("|")) /* a second result */
        o.list.push_back(read_operand());
    if (address)
        in.expect("]");
    return o;
}

void
body_reader::read_instruction(void)
{
    statement s;
    s.line = in.line();
    if (in.accept("@")) {
        s.negated = in.accept("!");
        s.guard = rename(in.take());
    }
    s.opcode = in.take();
    while (!in.accept(";")) {
        s.operands.push_back(read_operand());
        in.accept(",");
    }
    out.body.push_back(s);
}

/* Behind the first brace. */
void
body_reader::read_body(void)
{
    scopes.emplace_back();
    while (!scopes.empty()) {
        if (in.accept("{")) {
            scopes.emplace_back();
        } else if (in.accept("}")) {
            scopes.pop_back();
        } else if (in.accept(".reg")) {
            declare_registers();
        } else if (in.look() == ".local" || in.look() == ".shared" || in.look() == ".param") {
            declare_variable();
        } else if (in.accept(".pragma")) {
            (void)in.take();
            in.expect(";");
        } else if (in.look(1) == ":") {
            statement s;
            s.line = in.line();
            s.label = in.take();
            in.expect(":");
            out.body.push_back(s);
        } else {
            read_instruction();
        }
    }
}

static std::vector<variable>
read_parameters(reader &in)
{
    std::vector<variable> all;
    in.expect("(");
    while (!in.accept(")")) {
        in.expect(".param");
        all.push_back(read_variable(in, ".param"));
        in.accept(",");
    }
    return all;
}

/* Behind .entry or .func. False: it is declared only. */
static bool
read_function(reader &in, function *f)
{
    if (in.look() == "(")
        f->returns = read_parameters(in);
    f->name = in.take();
    if (in.look() == "(")
        f->parameters = read_parameters(in);
    while (in.look()[0] == '.') {
        const std::string what = in.take();
        uint32_t threads = 1;
        while (isdigit(static_cast<unsigned char>(in.look()[0])) || in.look() == ",")
            if (!in.accept(","))
                threads *= static_cast<uint32_t>(read_signed(in));
        if (what == ".maxntid" || what == ".reqntid")
            f->most_threads = threads;
    }
    if (in.accept(";"))
        return false;
    in.expect("{");
    body_reader{in, *f, {}}.read_body();
    return true;
}

static std::vector<std::string>
lines_of(const char *text)
{
    std::vector<std::string> lines;
    for (const char *end = text; *end; text = end + 1) {
        end = strchrnul(text, '\n');
        lines.emplace_back(text, end);
        if (!*end)
            break;
    }
    return lines;
}

program
read_text(const char *text)
{
    program p;
    reader in;
    p.lines = lines_of(text);
    in.tokens = tokens_of(p.lines);
    while (in.at < in.tokens.size()) {
        const uint32_t line = in.line();
        const std::string what = in.take();
        if (what == ".entry" || what == ".func") {
            function f;
            f.entry = what == ".entry";
            if (read_function(in, &f))
                p.functions.push_back(f);
        } else if (what == ".global" || what == ".const" || what == ".shared") {
            p.variables.push_back(read_variable(in, what));
            in.expect(";");
        } else if (what == ".version" || what == ".target" || what == ".address_size") {
            while (in.at < in.tokens.size() && in.line() == line)
                in.at++;
        } else if (what != ".visible" && what != ".extern" && what != ".weak") {
            in.at--;
            in.fail("a directive that is not known");
        }
    }
    return p;
}

} // namespace ptx
