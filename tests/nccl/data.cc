/* The data of the NCCL of the tests: what each member sends is written to a file of its own, and each
 * member computes its result from those of all, with numbers of NCCL's types. It computes with what was
 * written, so nothing but the room is shared. No state. Read next: calls.cc. */
#include "nccl/state.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/fp16.h"

/* --- Numbers ---------------------------------------------------------------------------------- */

static size_t
size_of(int type)
{
    return type <= 1 ? 1 : type == 6 || type == 9 ? 2 : type == 4 ? 8 : 4;
}

static double
get(int type, const char *at)
{
    int32_t i32;
    int64_t i64;
    uint16_t half;
    float f32;
    switch (type) {
    case 0:
        return static_cast<int8_t>(*at);
    case 2:
        memcpy(&i32, at, 4);
        return i32;
    case 4:
        memcpy(&i64, at, 8);
        return static_cast<double>(i64);
    case 6:
        memcpy(&half, at, 2);
        return static_cast<double>(exo_from_fp16(half));
    case 9:
        memcpy(&half, at, 2);
        return static_cast<double>(exo_from_bf16(half));
    case 7:
        memcpy(&f32, at, 4);
        return static_cast<double>(f32);
    default:
        forbid(true, "a sum of this type");
        return 0;
    }
}

/* The bits of a number that fp16 holds exactly, and that is normal or zero. */
static uint16_t
to_fp16(double value)
{
    int exponent = 0;
    const double m = frexp(fabs(value), &exponent);
    if (value == 0)
        return 0;
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                                 (static_cast<int>(m * 2048) & 0x3FF));
}

static void
put(int type, char *at, double value)
{
    const int8_t i8 = static_cast<int8_t>(static_cast<int64_t>(value));
    const int32_t i32 = static_cast<int32_t>(static_cast<int64_t>(value));
    const int64_t i64 = static_cast<int64_t>(value);
    const float f32 = static_cast<float>(value);
    const uint16_t half = type == 6 ? to_fp16(value) : exo_to_bf16(f32);
    const void *from = type == 0   ? static_cast<const void *>(&i8)
                       : type == 2 ? static_cast<const void *>(&i32)
                       : type == 4 ? static_cast<const void *>(&i64)
                       : type == 7 ? static_cast<const void *>(&f32)
                                   : static_cast<const void *>(&half);
    memcpy(at, from, size_of(type));
}

/* --- Members ---------------------------------------------------------------------------------- */

/* What a member has sent: its parts, and the bytes of each. */
struct sent {
    std::vector<part> parts;
    std::vector<std::string> bytes;
};

/* The bytes that a member sends in a part. */
static size_t
bytes_of(const part &p, size_t members)
{
    const size_t size = size_of(p.type);
    return p.what == RECV ? 0 : p.count * size * (p.what == REDUCE_SCATTER ? members : 1);
}

void
nccl_emulated::give(const comm *c, const call *mine)
{
    std::string text;
    const size_t number = mine->parts.size();
    text.append(reinterpret_cast<const char *>(&number), sizeof number);
    for (const part &p : mine->parts)
        text.append(reinterpret_cast<const char *>(&p), sizeof p);
    for (const part &p : mine->parts)
        if (bytes_of(p, c->in->size) > 0)
            text.append(p.from, bytes_of(p, c->in->size));
    FILE *file = fopen(c->in->data(c->rank).c_str(), "we");
    forbid(!file || fwrite(text.data(), 1, text.size(), file) != text.size() || fclose(file) != 0,
           "no room for data: see EXO_NCCL_ROOMS");
}

static void
get_bytes(FILE *file, void *to, size_t bytes)
{
    forbid(bytes > 0 && fread(to, 1, bytes, file) != bytes, "a member has written too little");
}

static sent
take(const comm *c, size_t rank)
{
    sent out;
    size_t number = 0;
    FILE *file = fopen(c->in->data(rank).c_str(), "re");
    forbid(!file, "the data of a member is not there");
    get_bytes(file, &number, sizeof number);
    out.parts.resize(number);
    get_bytes(file, out.parts.data(), number * sizeof(part));
    for (const part &p : out.parts) {
        out.bytes.emplace_back(bytes_of(p, c->in->size), '\0');
        get_bytes(file, &out.bytes.back()[0], out.bytes.back().size());
    }
    fclose(file);
    return out;
}

static std::string
sum(const std::vector<sent> &all, size_t k, const part &p, size_t first)
{
    const size_t size = size_of(p.type);
    std::string out(p.count * size, '\0');
    for (size_t i = 0; i < p.count; i++) {
        double value = 0;
        for (size_t r = all.size(); r-- > 0;) /* from the last: in another order than exogym's */
            value += get(p.type, all[r].bytes[k].data() + (first + i) * size);
        put(p.type, &out[i * size], p.op == 4 ? value / static_cast<double>(all.size()) : value);
    }
    return out;
}

static void
write_to(const std::string &bytes, char *to)
{
    memcpy(to, bytes.data(), bytes.size());
}

/* The k-th part, which is the same operation on all members. */
static void
do_part(const comm *c, const call *mine, const std::vector<sent> &all, size_t k)
{
    const part &p = mine->parts[k];
    std::string gathered;
    for (const sent &each : all) {
        forbid(each.parts.size() <= k, "members disagree");
        const part &q = each.parts[k];
        forbid(q.what != p.what || q.count != p.count || q.type != p.type || q.op != p.op ||
                   ((p.what == REDUCE || p.what == BROADCAST) && q.peer != p.peer),
               "members disagree");
        gathered += each.bytes[k];
    }
    if (p.what == ALL_REDUCE || (p.what == REDUCE && static_cast<size_t>(p.peer) == c->rank))
        write_to(sum(all, k, p, 0), p.to);
    else if (p.what == REDUCE_SCATTER)
        write_to(sum(all, k, p, c->rank * p.count), p.to);
    else if (p.what == ALL_GATHER)
        write_to(gathered, p.to);
    else if (p.what == BROADCAST)
        write_to(all[static_cast<size_t>(p.peer)].bytes[k], p.to);
}

/* What is sent meets what is received, in their order between two members. */
static void
do_exchange(const comm *c, const call *mine, std::vector<sent> &all)
{
    for (const part &in : mine->parts) {
        bool found = false;
        sent &from = all[static_cast<size_t>(in.peer)];
        for (size_t k = 0; in.what == RECV && !found && k < from.parts.size(); k++) {
            part &out = from.parts[k];
            if (out.what != SEND || out.done || static_cast<size_t>(out.peer) != c->rank)
                continue;
            forbid(out.count != in.count || out.type != in.type, "members disagree");
            write_to(from.bytes[k], in.to);
            out.done = found = true;
        }
        forbid(in.what == RECV && !found, "nothing is sent for a receive");
    }
}

void
nccl_emulated::take_all(const comm *c, const call *mine)
{
    std::vector<sent> all;
    for (size_t r = 0; r < c->in->size; r++)
        all.push_back(take(c, r));
    if (mine->parts[0].what == SEND || mine->parts[0].what == RECV)
        do_exchange(c, mine, all);
    else
        for (size_t k = 0; k < mine->parts.size(); k++)
            do_part(c, mine, all, k);
}
