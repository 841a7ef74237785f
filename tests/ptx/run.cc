/* The scheduling of lanes, warps and blocks. Those lanes of a warp whose next instruction is first in the
 * text run together, as a GPU with independent thread scheduling may run them; diverged lanes reconverge
 * where their paths meet. Warps run one after the other, from barrier to barrier, in a drawn order; blocks
 * run one after the other. State: a grid's. Read next: lift.h. */
#include "ptx/run.h"

#include <cxxabi.h>
#include <stdlib.h>

#include <algorithm>

#include "ptx/counts.h"

namespace ptx {

std::string
readable(const std::string &name)
{
    char *const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
    const std::string out = text ? text : name;
    free(text);
    return out;
}

static std::string
text_of(dim d)
{
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) +
           ")";
}

void
warp::fail(uint32_t on, const std::string &what) const
{
    const grid &g = *in->of;
    const uint32_t line = g.what->code[now].line;
    std::string threads;
    for (uint32_t left = on; left && threads.size() < 40; left &= left - 1)
        threads += " " + std::to_string(number * LANES + first_lane(left));
    const std::string text = line > 0 ? g.what->lines->at(line - 1) : "";
    throw fault(readable(g.what->name) + ": " + what + ", PTX line " + std::to_string(line) + " '" +
                text + "', block " + text_of(in->index) + " of " + text_of(g.blocks) + ", thread" +
                threads);
}

/* --- A warp ------------------------------------------------------------------------------------- */

namespace {

/* The lanes that run, and the first instruction of others that could. */
struct turn {
    uint32_t on, pc, other;
};

} // namespace

/* The lanes that stand at the first instruction; on is 0: none can run. */
static turn
choose(const warp &w, uint32_t ready)
{
    turn t = {0, 0, UINT32_MAX};
    t.pc = UINT32_MAX;
    for (uint32_t left = ready; left; left &= left - 1)
        t.pc = std::min(t.pc, w.pc[first_lane(left)]);
    for (uint32_t left = ready; left; left &= left - 1) {
        const unsigned lane = first_lane(left);
        if (w.pc[lane] == t.pc)
            t.on |= 1u << lane;
        else
            t.other = std::min(t.other, w.pc[lane]);
    }
    return t;
}

static void
move_to(warp &w, uint32_t lanes, uint32_t pc)
{
    for (uint32_t left = lanes; left; left &= left - 1)
        w.pc[first_lane(left)] = pc;
}

static void
expect_defined(const warp &w, uint32_t row, uint32_t on)
{
    if ((w.written[row] & on) != on)
        w.fail(on & ~w.written[row], "reads a register that nobody has written");
}

static void
execute(warp &w, const instruction &i, uint32_t on)
{
    uint32_t defined = on;
    for (unsigned n = i.results; n < i.rows; n++)
        if (i.lenient)
            defined &= w.written[i.row[n]];
        else
            expect_defined(w, i.row[n], on);
    if (counting)
        count(w, i, on);
    i.run(w, i, on);
    for (unsigned n = 0; n < i.results; n++)
        w.written[i.row[n]] = (w.written[i.row[n]] & ~on) | defined;
}

/* The lanes that have to come to this instruction together. */
static uint32_t
wanted_lanes(const warp &w, const instruction &i, uint32_t on)
{
    if (i.does == kind::barrier)
        return w.lanes & ~w.ended;
    if (i.mask == NO_ROW)
        return ALL_LANES;
    const uint32_t *const masks = const_cast<warp &>(w).row<uint32_t>(i.mask);
    const uint32_t mask = masks[first_lane(on)];
    for (uint32_t left = on; left; left &= left - 1)
        if (masks[first_lane(left)] != mask || !(mask >> first_lane(left) & 1))
            w.fail(on, "lanes that meet with different masks");
    return mask;
}

/* Lanes come to an instruction that they do together. It is done when the last one comes. */
static void
meet(warp &w, const instruction &i, uint32_t on, uint32_t pc)
{
    const uint32_t wanted = wanted_lanes(w, i, on);
    uint32_t here = on;
    for (uint32_t left = w.waiting; left; left &= left - 1)
        if (w.pc[first_lane(left)] == pc)
            here |= left & (~left + 1);
    if (wanted & (w.ended | ~w.lanes))
        w.fail(wanted & (w.ended | ~w.lanes),
               "lanes that have ended, or that there are not, are to meet others");
    if ((here & wanted) != wanted) {
        w.waiting |= on;
        return;
    }
    w.waiting &= ~here;
    if (i.does == kind::barrier) {
        w.at_barrier = true;
        if (counting)
            count(w, i, here);
    } else {
        execute(w, i, wanted);
    }
    move_to(w, here, pc + 1);
}

static void
end_lanes(warp &w, uint32_t on)
{
    w.ended |= on;
    for (const copy_group &g : w.copies)
        if ((on >> g.lane & 1) && !g.copies.empty())
            w.fail(1u << g.lane, "ends while a copy is on its way");
}

/* Runs lanes to where others come first, or they wait or end. */
static void
run_turn(warp &w, turn t)
{
    const std::vector<instruction> &code = w.in->of->what->code;
    while (t.pc < t.other) {
        const instruction &i = code[t.pc];
        uint32_t on = t.on;
        w.now = t.pc;
        if (i.guard != NO_ROW) {
            expect_defined(w, i.guard, on);
            const uint32_t set = lanes_of(w, i.guard);
            on &= i.negated ? ~set : set;
        }
        if (i.does == kind::plain) {
            if (on)
                execute(w, i, on);
        } else if (i.does == kind::branch && (on == t.on || on == 0)) {
            if (counting)
                count(w, i, t.on);
            t.pc = on ? i.target - 1 : t.pc;
        } else if (on) {
            move_to(w, t.on & ~on, t.pc + 1);
            move_to(w, on, i.does == kind::branch ? i.target : t.pc);
            if (i.does == kind::end)
                end_lanes(w, on);
            else if (i.does != kind::branch)
                meet(w, i, on, t.pc);
            return;
        }
        t.pc++;
    }
    move_to(w, t.on, t.pc);
}

/* To the next barrier, or to the end. */
static void
run_warp(warp &w)
{
    w.at_barrier = false;
    while (!w.at_barrier && (w.lanes & ~w.ended)) {
        const uint32_t ready = w.lanes & ~w.ended & ~w.waiting;
        if (ready) {
            run_turn(w, choose(w, ready));
            continue;
        }
        /* those that a barrier waits for may have ended */
        const turn t = choose(w, w.waiting);
        const instruction &i = w.in->of->what->code[t.pc];
        w.now = t.pc;
        if (i.does != kind::barrier || t.on != w.waiting) {
            const uint32_t others = w.waiting & ~t.on;
            const uint32_t line = others ? w.in->of->what->code[w.pc[first_lane(others)]].line : 0;
            w.fail(t.on, "waits for lanes that wait elsewhere (line " + std::to_string(line) + ")");
        }
        w.waiting = 0;
        w.at_barrier = true;
        move_to(w, t.on, t.pc + 1);
    }
}

/* --- Blocks ------------------------------------------------------------------------------------- */

static uint32_t
special_value(const block &b, const std::string &name, uint32_t thread)
{
    const grid &g = *b.of;
    const char axis = name.back();
    const auto part = [axis](dim d) { return axis == 'x' ? d.x : axis == 'y' ? d.y : d.z; };
    const dim own = {thread % g.threads.x, thread / g.threads.x % g.threads.y,
                     thread / g.threads.x / g.threads.y};
    if (name.compare(0, 5, "%tid.") == 0)
        return part(own);
    if (name.compare(0, 6, "%ntid.") == 0)
        return part(g.threads);
    if (name.compare(0, 7, "%ctaid.") == 0)
        return part(b.index);
    if (name.compare(0, 8, "%nctaid.") == 0)
        return part(g.blocks);
    if (name == "%laneid")
        return thread % LANES;
    throw fault(g.what->name + ": '" + name + "' is not known");
}

/* What all blocks have. */
static void
make_warp(block *b, warp *w, uint32_t number, uint32_t threads)
{
    const kernel &k = *b->of->what;
    w->in = b;
    w->number = number;
    const uint32_t left = threads - number * LANES;
    w->lanes = left >= LANES ? ALL_LANES : (1u << left) - 1;
    w->file.assign(static_cast<size_t>(k.rows) * ROW_BYTES, 0xFF);
    w->local.resize(k.local_bytes * LANES);
    for (const constant &c : k.constants)
        for (size_t l = 0; l < LANES; l++)
            if (c.wide)
                w->row<uint64_t>(c.row)[l] = c.value;
            else
                w->row<uint32_t>(c.row)[l] = static_cast<uint32_t>(c.value);
}

static void
begin_warp(warp *w)
{
    const kernel &k = *w->in->of->what;
    w->written.assign(k.rows, 0);
    w->ended = w->waiting = 0;
    w->copies.clear();
    std::fill(w->pc, w->pc + LANES, 0);
    std::fill(w->local.begin(), w->local.end(), static_cast<unsigned char>(0xFF));
    for (const constant &c : k.constants)
        w->written[c.row] = ALL_LANES;
    for (const special &s : k.specials) {
        w->written[s.row] = ALL_LANES;
        for (uint32_t l = 0; l < LANES; l++)
            w->row<uint32_t>(s.row)[l] = special_value(*w->in, s.name, w->number * LANES + l);
    }
}

static void
run_block(block *b, std::vector<uint32_t> *order)
{
    b->shared.begin_block();
    for (warp &w : b->warps)
        begin_warp(&w);
    for (bool left = true; left; b->shared.barrier()) {
        left = false;
        for (size_t n = order->size(); n > 1; n--) {
            b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            std::swap((*order)[n - 1], (*order)[(b->random >> 33) % n]);
        }
        for (const uint32_t n : *order) {
            run_warp(b->warps[n]);
            left = left || (b->warps[n].lanes & ~b->warps[n].ended);
        }
    }
}

void
run_grid(const grid &g)
{
    const kernel &k = *g.what;
    const uint32_t threads = g.threads.x * g.threads.y * g.threads.z;
    if (k.most_threads > 0 && threads > k.most_threads)
        throw fault(readable(k.name) + ": a block of " + std::to_string(threads) +
                    " threads, and it is compiled for " + std::to_string(k.most_threads));
    block b;
    std::vector<uint32_t> order;
    b.of = &g;
    b.random = g.seed;
    b.shared.resize(k.shared_bytes + g.launch_bytes, k.granule);
    b.warps.resize((threads + LANES - 1) / LANES);
    for (uint32_t n = 0; n < b.warps.size(); n++) {
        make_warp(&b, &b.warps[n], n, threads);
        order.push_back(n);
    }
    if (counting)
        count_launch(g);
    for (uint32_t z = 0; z < g.blocks.z; z++)
        for (uint32_t y = 0; y < g.blocks.y; y++)
            for (uint32_t x = 0; x < g.blocks.x; x++) {
                b.index = {x, y, z};
                run_block(&b, &order);
            }
}

} // namespace ptx
