/* Loads, stores, atomics and asynchronous copies, in every state space. An address must be a multiple of the
 * access's size, and lie within allocated memory. No state. Read next: shared.cc. */
#include "ptx/decode.h"
#include "ptx/run.h"

namespace ptx {

namespace {

/* What a lane wants of memory. */
struct access {
    unsigned lane;
    uint64_t address;
    size_t bytes;
    bool writes, atomic;
};

} // namespace

/* The addresses of all lanes. */
static void
find_addresses(warp &w, const instruction &i, uint64_t at[LANES])
{
    const uint32_t row = i.row[i.results];
    for (size_t l = 0; l < LANES; l++)
        at[l] = static_cast<uint64_t>(i.offset) +
                (i.wide_address ? w.row<uint64_t>(row)[l] : w.row<uint32_t>(row)[l]);
}

[[noreturn]] static void
refuse(const warp &w, const access &a, const std::string &why)
{
    char text[96];
    snprintf(text, sizeof text, " (%zu bytes at 0x%llx)", a.bytes,
             static_cast<unsigned long long>(a.address));
    w.fail(1u << a.lane, why + text);
}

static unsigned char *
shared_place(warp &w, const access &a)
{
    shared_memory &shared = w.in->shared;
    const uint64_t at = a.address - SHARED_BASE;
    if (at > shared.bytes.size() || a.bytes > shared.bytes.size() - at)
        refuse(w, a, "an access outside the block's shared memory");
    const uint16_t thread = static_cast<uint16_t>(w.number * LANES + a.lane);
    const char *const why = a.atomic   ? shared.changed_by_atomic(at, a.bytes)
                            : a.writes ? shared.written_by(at, a.bytes, thread)
                                       : shared.read_by(at, a.bytes, thread);
    if (why)
        refuse(w, a, why);
    return shared.bytes.data() + at;
}

static unsigned char *
global_place(warp &w, const access &a)
{
    const range r = w.in->find(a.address);
    if (a.address - r.first >= r.end - r.first || a.bytes > r.end - a.address)
        refuse(w, a, "an access outside every allocation");
    if (device_memory *const watched = w.in->of->watched) {
        const user who = {w.in->interval, static_cast<uint16_t>(w.number * LANES + a.lane)};
        const char *const why = a.atomic   ? watched->changed_by_atomic(a.address, a.bytes, who)
                                : a.writes ? watched->written_by(a.address, a.bytes, who)
                                           : watched->read_by(a.address, a.bytes, who);
        if (why)
            refuse(w, a, why);
    }
    return reinterpret_cast<unsigned char *>(a.address);
}

static unsigned char *
local_place(warp &w, const access &a)
{
    const size_t bytes = w.in->of->what->local_bytes, at = a.lane * bytes + a.address;
    if (a.address > bytes || a.bytes > bytes - a.address)
        refuse(w, a, "an access outside the thread's own memory");
    for (size_t b = at; b < at + a.bytes && !w.local_written.empty(); b++)
        if (a.writes)
            w.local_written[b] = true;
        else if (!w.local_written[b])
            refuse(w, a, "reads the thread's own memory, which it has not written");
    return w.local.data() + at;
}

static unsigned char *
place(warp &w, space where, access a)
{
    const kernel &k = *w.in->of->what;
    if (a.address & (a.bytes - 1)) /* accesses are powers of two */
        refuse(w, a, "an address that is no multiple of the access");
    if (where == space::generic) {
        const bool is_shared = a.address - SHARED_WINDOW < WINDOW,
                   is_local = a.address - LOCAL_WINDOW < WINDOW;
        where = is_shared ? space::shared : is_local ? space::local : space::global;
        a.address -= is_shared ? SHARED_WINDOW : is_local ? LOCAL_WINDOW : 0;
    }
    switch (where) {
    case space::shared:
        return shared_place(w, a);
    case space::local:
        return local_place(w, a);
    case space::param:
        if (a.writes || a.address > k.parameter_bytes || a.bytes > k.parameter_bytes - a.address)
            refuse(w, a, "an access outside the parameters");
        return const_cast<unsigned char *>(w.in->of->parameters) + a.address;
    default:
        return global_place(w, a);
    }
}

/* Whether all lanes of `on` stay within the allocation that was found last, at multiples of the access: then
 * nobody has to look at each. */
static bool
is_known(warp &w, const instruction &i, const uint64_t at[LANES], size_t bytes, uint32_t on)
{
    const range known = w.in->known;
    uint64_t odd = 0, beyond = 0;
    if (i.where != space::global || on != ALL_LANES || w.in->of->watched ||
        known.end - known.first < bytes)
        return false;
    const uint64_t last = known.end - known.first - bytes;
    for (size_t l = 0; l < LANES; l++) {
        odd |= at[l] & (bytes - 1);
        beyond |= at[l] - known.first > last;
    }
    return !odd && !beyond;
}

/* Where the lanes of `on` find their numbers. */
static void
find_places(warp &w, const instruction &i, uint32_t on, unsigned char *places[LANES])
{
    const size_t bytes = static_cast<size_t>(i.vector) * i.bytes;
    uint64_t at[LANES];
    find_addresses(w, i, at);
    if (is_known(w, i, at, bytes, on)) {
        for (size_t l = 0; l < LANES; l++)
            places[l] = reinterpret_cast<unsigned char *>(at[l]);
        return;
    }
    for (uint32_t left = on; left; left &= left - 1) {
        const unsigned l = first_lane(left);
        places[l] = place(w, i.where, {l, at[l], bytes, i.writes, false});
    }
}

template <typename T>
static void
run_load(warp &w, const instruction &i, uint32_t on)
{
    unsigned char *places[LANES];
    find_places(w, i, on, places);
    for (unsigned v = 0; v < i.vector; v++) {
        uint64_t values[LANES], *const wide = w.row<uint64_t>(i.row[v]);
        uint32_t *const narrow = w.row<uint32_t>(i.row[v]);
        for (uint32_t left = on; left; left &= left - 1) {
            const unsigned l = first_lane(left);
            T value;
            memcpy(&value, places[l] + v * sizeof value, sizeof value);
            values[l] = static_cast<uint64_t>(value);
        }
        for (size_t l = 0; l < LANES; l++)
            if (!(on >> l & 1))
                continue;
            else if (i.wide_data)
                wide[l] = values[l];
            else
                narrow[l] = static_cast<uint32_t>(values[l]);
    }
}

template <typename T>
static void
run_store(warp &w, const instruction &i, uint32_t on)
{
    unsigned char *places[LANES];
    find_places(w, i, on, places);
    for (uint32_t left = on; left; left &= left - 1) {
        const unsigned l = first_lane(left);
        for (unsigned v = 0; v < i.vector; v++) {
            const T value = i.wide_data ? static_cast<T>(w.row<uint64_t>(i.row[v + 1])[l])
                                        : static_cast<T>(w.row<uint32_t>(i.row[v + 1])[l]);
            memcpy(places[l] + v * sizeof value, &value, sizeof value);
        }
    }
}

/* What an atomic leaves of `old`. */
template <typename T> using change = T (*)(T old, T b, T c);

template <typename T, change<T> CHANGE>
static void
run_atomic(warp &w, const instruction &i, uint32_t on)
{
    uint64_t addresses[LANES];
    find_addresses(w, i, addresses);
    for (uint32_t left = on; left; left &= left - 1) {
        const unsigned lane = first_lane(left), last = i.rows - 1u, b = i.results + 1u;
        unsigned char *const at = place(w, i.where, {lane, addresses[lane], sizeof(T), true, true});
        T old;
        memcpy(&old, at, sizeof old);
        const T value = CHANGE(old, get<T>(w.row<void *>(i.row[b]), lane),
                               get<T>(w.row<void *>(i.row[last]), lane));
        memcpy(at, &value, sizeof value);
        if (i.results > 0)
            put<T>(w.row<void *>(i.row[0]), lane, old);
    }
}

/* cp.async [to], [from], bytes, bytes that are copied: the rest is zeros. */
static void
run_copy(warp &w, const instruction &i, uint32_t on)
{
    shared_memory &shared = w.in->shared;
    uint64_t addresses[LANES];
    find_addresses(w, i, addresses);
    for (uint32_t left = on; left; left &= left - 1) {
        const unsigned lane = first_lane(left);
        const uint64_t to = addresses[lane], from = w.row<uint64_t>(i.row[1])[lane];
        const uint32_t bytes = w.row<uint32_t>(i.row[2])[lane];
        const uint32_t copied = i.rows > 3 ? w.row<uint32_t>(i.row[3])[lane] : bytes;
        if (bytes != i.bytes || copied > bytes)
            w.fail(1u << lane, "a copy of a size that is not known");
        (void)place(w, space::shared, {lane, to, bytes, true, false});
        if (from & (bytes - 1))
            refuse(w, {lane, from, bytes, false, false},
                   "an address that is no multiple of the access");
        if (copied > 0)
            (void)global_place(w, {lane, from, copied, false, false});
        shared.arrived_for(to - SHARED_BASE, bytes, shared_memory::ARRIVING);
        copy_group *group = nullptr;
        for (copy_group &g : w.copies)
            group = g.lane == lane && !g.ended ? &g : group;
        if (!group) {
            w.copies.push_back({lane, false, {}});
            group = &w.copies.back();
        }
        group->copies.push_back({static_cast<uint32_t>(to - SHARED_BASE), from, bytes - copied});
    }
}

/* --- Decoding ----------------------------------------------------------------------------------- */

template <typename T>
static T
sum(T old, T b, T)
{
    return static_cast<T>(old + b);
}

template <typename T>
static T
exchanged(T, T b, T)
{
    return b;
}

template <typename T>
static T
swapped_if_equal(T old, T b, T c)
{
    return old == b ? c : old;
}

template <typename T>
static T
lesser(T old, T b, T)
{
    return old < b ? old : b;
}

template <typename T>
static T
greater(T old, T b, T)
{
    return old > b ? old : b;
}

static const struct {
    const char *operation, *type;
    handler run;
} atomics[] = {
    {"add", "u32", run_atomic<uint32_t, sum>},
    {"add", "s32", run_atomic<uint32_t, sum>},
    {"add", "u64", run_atomic<uint64_t, sum>},
    {"exch", "b32", run_atomic<uint32_t, exchanged>},
    {"exch", "b64", run_atomic<uint64_t, exchanged>},
    {"cas", "b32", run_atomic<uint32_t, swapped_if_equal>},
    {"cas", "b64", run_atomic<uint64_t, swapped_if_equal>},
    {"min", "u32", run_atomic<uint32_t, lesser>},
    {"min", "s32", run_atomic<int32_t, lesser>},
    {"max", "u32", run_atomic<uint32_t, greater>},
    {"max", "s32", run_atomic<int32_t, greater>},
    {"max", "u64", run_atomic<uint64_t, greater>},
};

static const struct {
    const char *type;
    uint8_t bytes;
    handler load, store;
} types[] = {
    {"u8", 1, run_load<uint8_t>, run_store<uint8_t>},
    {"b8", 1, run_load<uint8_t>, run_store<uint8_t>},
    {"s8", 1, run_load<int8_t>, run_store<uint8_t>},
    {"u16", 2, run_load<uint16_t>, run_store<uint16_t>},
    {"b16", 2, run_load<uint16_t>, run_store<uint16_t>},
    {"s16", 2, run_load<int16_t>, run_store<uint16_t>},
    {"u32", 4, run_load<uint32_t>, run_store<uint32_t>},
    {"b32", 4, run_load<uint32_t>, run_store<uint32_t>},
    {"f32", 4, run_load<uint32_t>, run_store<uint32_t>},
    {"s32", 4, run_load<int32_t>, run_store<uint32_t>},
    {"u64", 8, run_load<uint64_t>, run_store<uint64_t>},
    {"b64", 8, run_load<uint64_t>, run_store<uint64_t>},
    {"f64", 8, run_load<uint64_t>, run_store<uint64_t>},
    {"s64", 8, run_load<uint64_t>, run_store<uint64_t>},
};

static space
space_of(const std::string &part)
{
    return part == "global" || part == "const" ? space::global
           : part == "shared"                  ? space::shared
           : part == "local"                   ? space::local
           : part == "param"                   ? space::param
                                               : space::none;
}

static void
find_handler(const std::vector<std::string> &parts, instruction *i)
{
    const std::string &type = parts.back();
    for (const auto &t : types)
        if (type == t.type) {
            i->bytes = t.bytes;
            i->run = parts[0] == "ld" ? t.load : parts[0] == "st" ? t.store : nullptr;
        }
    for (const auto &a : atomics)
        if ((parts[0] == "atom" || parts[0] == "red") && type == a.type &&
            parts[parts.size() - 2] == a.operation)
            i->run = a.run;
}

instruction
memory_instruction(const std::string &opcode)
{
    const std::vector<std::string> parts = parts_of(opcode);
    instruction i;
    i.accesses = true;
    i.where = space::generic;
    i.results = parts[0] == "ld" || parts[0] == "atom";
    i.writes = parts[0] != "ld";
    if (parts[0] == "cp") {
        i.where = space::shared;
        i.bytes = 16;
        i.run = run_copy;
        return i;
    }
    for (const std::string &part : parts) {
        if (space_of(part) != space::none)
            i.where = space_of(part);
        if (part == "v2" || part == "v4")
            i.vector = part == "v2" ? 2 : 4;
    }
    find_handler(parts, &i);
    return i;
}

} // namespace ptx
