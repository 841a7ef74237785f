/* What the lanes of a warp do together, after the tables of the PTX ISA: shuffles, votes, products of
 * matrices and their operands; and the groups of asynchronous copies. run.cc makes the lanes
 * meet first. No state. Read next: run.cc. */
#include "ptx/decode.h"
#include "ptx/run.h"

namespace ptx {

/* shfl.sync: d|p, a, b, c, mask. 9.7.9.6: c has the last lane in bits 0 to 4, and in bits 8 to 12 those
 * that the lanes of a segment have in common. */
template <char MODE>
static void
run_shuffle(warp &w, const instruction &i, uint32_t on)
{
    uint32_t value[LANES], there[LANES];
    const uint32_t *const a = w.row<uint32_t>(i.row[2]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t b = w.row<uint32_t>(i.row[3])[lane] & 31,
                       c = w.row<uint32_t>(i.row[4])[lane];
        const uint32_t common = c >> 8 & 31, first = lane & common,
                       last = first | (c & 31 & ~common);
        uint32_t from = MODE == 'u'   ? lane - b
                        : MODE == 'd' ? lane + b
                        : MODE == 'b' ? lane ^ b
                                      : first | (b & ~common);
        const bool in =
            MODE == 'u' ? static_cast<int32_t>(from) >= static_cast<int32_t>(last) : from <= last;
        from = in ? from : lane;
        if ((on >> lane & 1) && !(on >> from & 1))
            w.fail(1u << lane,
                   "a shuffle from lane " + std::to_string(from) + ", which is not in it");
        value[lane] = a[from];
        there[lane] = in;
    }
    put_lanes(w, i.row[0], value, on);
    put_lanes(w, i.row[1], there, on);
}

/* vote.sync: d, predicate, mask. */
template <char MODE>
static void
run_vote(warp &w, const instruction &i, uint32_t on)
{
    uint32_t out[LANES];
    const uint32_t set = lanes_of(w, i.row[1]) & on;
    for (uint32_t &o : out)
        o = MODE == 'b' ? set : MODE == 'a' ? set == on : set != 0;
    put_lanes(w, i.row[0], out, on);
}

static void
run_active_mask(warp &w, const instruction &i, uint32_t on)
{
    uint32_t out[LANES];
    for (uint32_t &o : out)
        o = on;
    put_lanes(w, i.row[0], out, on);
}

static void
run_nothing(warp &, const instruction &, uint32_t)
{
}

/* --- Matrices ----------------------------------------------------------------------------------- */

static float
half_of(uint32_t word, unsigned which)
{
    const uint32_t bits = which ? word & 0xFFFF0000u : word << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* mma.sync.m16n8k16 of bf16: 9.7.14.5.8 of the ISA. With group = lane / 4 and t = lane % 4, element
 * j of a lane is
 *     A: row group, for j in {2, 3, 6, 7} group + 8;    column 2 t + j % 2, from j = 4 on 8 more
 *     B: row 2 t + j % 2, from j = 2 on 8 more;         column group
 *     C: row group, from j = 2 on group + 8;            column 2 t + j % 2
 * A GPU's sums have an order of their own; these are of fp64, rounded once. */
static void
run_product(warp &w, const instruction &i, uint32_t on)
{
    float a[16][16], b[16][8], out[4][LANES];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned group = lane / 4, t = lane % 4;
        for (unsigned j = 0; j < 8; j++)
            a[group + (j % 4 >= 2 ? 8 : 0)][2 * t + j % 2 + (j >= 4 ? 8 : 0)] =
                half_of(w.row<uint32_t>(i.row[4 + j / 2])[lane], j % 2);
        for (unsigned j = 0; j < 4; j++)
            b[2 * t + j % 2 + (j >= 2 ? 8 : 0)][group] =
                half_of(w.row<uint32_t>(i.row[8 + j / 2])[lane], j % 2);
    }
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned j = 0; j < 4; j++) {
            const unsigned row = lane / 4 + (j >= 2 ? 8 : 0), column = lane % 4 * 2 + j % 2;
            double sum = static_cast<double>(w.row<float>(i.row[10 + j])[lane]);
            for (unsigned k = 0; k < 16; k++)
                sum += static_cast<double>(a[row][k]) * static_cast<double>(b[k][column]);
            out[j][lane] = static_cast<float>(sum);
        }
    for (unsigned j = 0; j < 4; j++)
        put_lanes(w, i.row[j], out[j], on);
}

/* ldmatrix.x4: lane 8 m + r has the address of row r of matrix m, 16 bytes. Word m of a lane is
 * row lane / 4, elements 2 (lane % 4) and the next; transposed, rows and columns are exchanged. */
template <bool TRANSPOSED>
static void
run_load_matrices(warp &w, const instruction &i, uint32_t on)
{
    shared_memory &shared = w.in->shared;
    const unsigned char *rows[LANES];
    uint32_t out[LANES];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const uint64_t at =
            w.row<uint32_t>(i.row[4])[lane] + static_cast<uint64_t>(i.offset) - SHARED_BASE;
        if (at % 16 != 0)
            w.fail(1u << lane, "an address that is no multiple of 16 bytes");
        if (at > shared.bytes.size() || 16 > shared.bytes.size() - at)
            w.fail(1u << lane, "an access outside the block's shared memory");
        const char *const why = shared.read_by(at, 16, shared_memory::MANY);
        if (why)
            w.fail(1u << lane, why);
        rows[lane] = shared.bytes.data() + at;
    }
    for (unsigned m = 0; m < 4; m++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            const unsigned g = lane / 4, t = lane % 4;
            uint16_t two[2];
            for (unsigned e = 0; e < 2; e++) {
                const unsigned row = TRANSPOSED ? 2 * t + e : g,
                               column = TRANSPOSED ? g : 2 * t + e;
                memcpy(&two[e], rows[8 * m + row] + 2 * column, 2);
            }
            out[lane] = two[0] | static_cast<uint32_t>(two[1]) << 16;
        }
        put_lanes(w, i.row[m], out, on);
    }
}

/* --- Groups of copies --------------------------------------------------------------------------- */

/* A group that has no copies counts, too. */
static void
run_end_group(warp &w, const instruction &, uint32_t on)
{
    for (uint32_t left = on; left; left &= left - 1) {
        bool open = false;
        for (copy_group &g : w.copies)
            if (g.lane == first_lane(left) && !g.ended)
                open = g.ended = true;
        if (!open)
            w.copies.push_back({first_lane(left), true, {}});
    }
}

static void
arrive(warp &w, const copy_group &g)
{
    shared_memory &shared = w.in->shared;
    for (const copy &c : g.copies) {
        unsigned char *const to = shared.bytes.data() + c.to;
        memcpy(to, reinterpret_cast<const void *>(c.from), 16 - c.zeros);
        memset(to + 16 - c.zeros, 0, c.zeros);
        shared.arrived_for(c.to, 16, static_cast<uint16_t>(w.number * LANES + g.lane));
    }
}

/* cp.async.wait_group: the last N groups of a thread may be on their way. */
static void
run_wait_groups(warp &w, const instruction &i, uint32_t on)
{
    std::vector<copy_group> left;
    for (size_t g = 0; g < w.copies.size(); g++) {
        uint32_t later = 0;
        const copy_group &is = w.copies[g];
        for (size_t h = g + 1; h < w.copies.size(); h++)
            later += w.copies[h].lane == is.lane && w.copies[h].ended;
        if ((on >> is.lane & 1) && is.ended && later >= w.row<uint32_t>(i.row[0])[is.lane])
            arrive(w, is);
        else
            left.push_back(is);
    }
    w.copies = left;
}

void
add_lanes(operations *all)
{
    const std::vector<uint8_t> shuffled = {4, 4, 4, 4, 4, 4};
    const kind plain = kind::plain, meet = kind::meet;
    (*all)["shfl.sync.up.b32"] = {run_shuffle<'u'>, meet, 2, shuffled, false};
    (*all)["shfl.sync.down.b32"] = {run_shuffle<'d'>, meet, 2, shuffled, false};
    (*all)["shfl.sync.bfly.b32"] = {run_shuffle<'b'>, meet, 2, shuffled, false};
    (*all)["shfl.sync.idx.b32"] = {run_shuffle<'i'>, meet, 2, shuffled, false};
    (*all)["vote.sync.ballot.b32"] = {run_vote<'b'>, meet, 1, {4, 4, 4}, false};
    (*all)["vote.sync.any.pred"] = {run_vote<'o'>, meet, 1, {4, 4, 4}, false};
    (*all)["vote.sync.all.pred"] = {run_vote<'a'>, meet, 1, {4, 4, 4}, false};
    (*all)["bar.warp.sync"] = {run_nothing, meet, 0, {4}, false};
    (*all)["activemask.b32"] = {run_active_mask, plain, 1, {4}, false};
    (*all)["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {
        run_product, meet, 4, {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, false};
    (*all)["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {
        run_load_matrices<false>, meet, 4, {4, 4, 4, 4, 4}, false};
    (*all)["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {
        run_load_matrices<true>, meet, 4, {4, 4, 4, 4, 4}, false};
    (*all)["cp.async.commit_group"] = {run_end_group, plain, 0, {}, false};
    (*all)["cp.async.wait_group"] = {run_wait_groups, plain, 0, {4}, false};
}

} // namespace ptx
