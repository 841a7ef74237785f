/* The scheduling of lanes, warps and blocks. Those lanes of a warp whose next instruction is first in the
 * text run together, as a GPU with independent thread scheduling may run them; diverged lanes reconverge
 * where their paths meet. Warps run one after the other, from barrier to barrier, in a drawn order; blocks
 * run one after the other. With grid.drawn lanes, warps and blocks interleave, as a GPU may let them. State: a
 * grid's. Read next: lift.h. */
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

/* The lanes that run, the first instruction of others that could, and the most instructions. */
struct turn {
    uint32_t on, pc, other, steps;
};

enum {
    STEPS_BITS = 7, /* a turn that is drawn has up to 64 instructions */
    RESIDENT = 4    /* blocks that interleave */
};

} // namespace

/* The lanes that stand at the first instruction; on is 0: none can run. */
static turn
choose(const warp &w, uint32_t ready)
{
    turn t = {0, UINT32_MAX, UINT32_MAX, UINT32_MAX};
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

/* Some of the lanes that could run, also such as others would have to wait for, for some instructions: PTX
 * promises no order among lanes, and none of a warp's lanes has to run with another. */
static turn
draw_turn(const warp &w, uint32_t ready)
{
    block &b = *w.in;
    turn t = choose(w, ready);
    t.steps = 1u << b.draw(STEPS_BITS);
    if (b.draw(4) > 0)
        return t;
    uint32_t skipped = b.draw(static_cast<size_t>(__builtin_popcount(ready))), left = ready;
    for (; skipped > 0; skipped--)
        left &= left - 1;
    t.pc = w.pc[first_lane(left)];
    t.other = UINT32_MAX;
    t.on = 0;
    for (uint32_t l = ready; l; l &= l - 1)
        if (w.pc[first_lane(l)] == t.pc)
            t.on |= l & (~l + 1);
    if (b.draw(2) == 0)
        t.on = (t.on & b.draw(UINT32_MAX)) | (left & (~left + 1));
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
    for (; t.pc < t.other && t.steps > 0; t.steps--) {
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

/* Whether it stands at a barrier, or has ended. */
static bool
is_done(const warp &w)
{
    return w.at_barrier || !(w.lanes & ~w.ended);
}

/* To the next barrier, or to the end, or for so many turns. */
static void
run_warp(warp &w, uint32_t turns)
{
    for (; !is_done(w) && turns > 0; turns--) {
        const uint32_t ready = w.lanes & ~w.ended & ~w.waiting;
        if (ready) {
            run_turn(w, w.in->of->drawn ? draw_turn(w, ready) : choose(w, ready));
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
    if (b->of->watched)
        w->local_written.resize(w->local.size());
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
    w->at_barrier = false;
    w->copies.clear();
    std::fill(w->pc, w->pc + LANES, 0);
    std::fill(w->local.begin(), w->local.end(), static_cast<unsigned char>(0xFF));
    w->local_written.assign(w->local_written.size(), false);
    for (const constant &c : k.constants)
        w->written[c.row] = ALL_LANES;
    for (const special &s : k.specials) {
        w->written[s.row] = ALL_LANES;
        for (uint32_t l = 0; l < LANES; l++)
            w->row<uint32_t>(s.row)[l] = special_value(*w->in, s.name, w->number * LANES + l);
    }
}

/* Whether any warp has more to do after the interval, which begins anew then. */
static bool
end_interval(block *b)
{
    device_memory *const watched = b->of->watched;
    const warp *stands = nullptr;
    for (warp &w : b->warps) {
        const uint32_t left = w.lanes & ~w.ended;
        if (left && stands &&
            w.pc[first_lane(left)] != stands->pc[first_lane(stands->lanes & ~stands->ended)])
            w.fail(left, "a barrier, while other warps wait at another one");
        stands = left ? &w : stands;
        w.at_barrier = false;
    }
    b->shared.barrier();
    if (watched && stands)
        b->interval = watched->begin_interval(b->number);
    return stands != nullptr;
}

static void
begin_block(block *b, uint32_t number)
{
    const dim all = b->of->blocks;
    b->number = number;
    b->index = {number % all.x, number / all.x % all.y, number / all.x / all.y};
    b->shared.begin_block();
    for (warp &w : b->warps)
        begin_warp(&w);
    if (b->of->watched)
        b->interval = b->of->watched->begin_interval(number);
}

static void
run_interval(block *b)
{
    for (size_t n = b->order.size(); n > 1; n--)
        std::swap(b->order[n - 1], b->order[b->draw(n)]);
    for (const uint32_t n : b->order)
        run_warp(b->warps[n], UINT32_MAX);
}

/* A while of a warp that is drawn. False: all stand at a barrier, or have ended. */
static bool
run_some(block *b)
{
    std::vector<warp *> left;
    for (warp &w : b->warps)
        if (!is_done(w))
            left.push_back(&w);
    if (!left.empty())
        run_warp(*left[b->draw(left.size())], 1 + b->draw(4));
    return !left.empty();
}

static void
make_block(block *b, const grid &g, uint64_t seed)
{
    const kernel &k = *g.what;
    const uint32_t threads = g.threads.x * g.threads.y * g.threads.z;
    b->of = &g;
    b->random = seed;
    b->shared.resize(k.shared_bytes + g.launch_bytes, k.granule);
    b->warps.resize((threads + LANES - 1) / LANES);
    for (uint32_t n = 0; n < b->warps.size(); n++) {
        make_warp(b, &b->warps[n], n, threads);
        b->order.push_back(n);
    }
}

/* Some blocks at a time, which interleave, in a drawn order. */
static void
run_mixed(const grid &g, uint32_t count)
{
    std::vector<block> blocks(std::min<uint32_t>(count, RESIDENT));
    std::vector<block *> left;
    std::vector<uint32_t> order(count);
    for (size_t n = 0; n < blocks.size(); n++)
        make_block(&blocks[n], g, g.seed + n);
    for (uint32_t n = 0; n < count; n++) {
        order[n] = n;
        std::swap(order[n], order[blocks[0].draw(n + 1)]);
    }
    for (block &b : blocks) {
        begin_block(&b, order.back());
        order.pop_back();
        left.push_back(&b);
    }
    while (!left.empty()) {
        const size_t n = blocks[0].draw(left.size());
        if (run_some(left[n]) || end_interval(left[n]))
            continue;
        if (order.empty()) {
            left.erase(left.begin() + static_cast<ptrdiff_t>(n));
        } else {
            begin_block(left[n], order.back());
            order.pop_back();
        }
    }
}

void
run_grid(const grid &g)
{
    const kernel &k = *g.what;
    const uint32_t threads = g.threads.x * g.threads.y * g.threads.z,
                   count = g.blocks.x * g.blocks.y * g.blocks.z;
    if (k.most_threads > 0 && threads > k.most_threads)
        throw fault(readable(k.name) + ": a block of " + std::to_string(threads) +
                    " threads, and it is compiled for " + std::to_string(k.most_threads));
    if (counting)
        count_launch(g);
    if (g.watched)
        g.watched->begin_grid(k.global_granule);
    if (g.drawn) {
        run_mixed(g, count);
        return;
    }
    block b;
    make_block(&b, g, g.seed);
    for (uint32_t n = 0; n < count; n++) {
        begin_block(&b, n);
        do
            run_interval(&b);
        while (end_interval(&b));
    }
}

} // namespace ptx
