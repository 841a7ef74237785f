/* Senders: options and versions. The state is in sender.h. Read next: receivers.c, update.c. */
#include "nn/updates/sender.h"

#include <fnmatch.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/units.h>

enum {
    LEAST_CHUNK = 4 << 10,
    MOST_CHUNK = 64 << 20,
    USUAL_CHUNK = 4 << 20,
    BLOCK = 256, /* elements: pieces are multiples of a block of int8 */
};

static const char *const form_names[] = {"whole", "bf16", "int8", "delta", "bf16_delta"};

enum {
    FORMS = sizeof form_names / sizeof *form_names
};

exo_status
exo_update_form_named(const char *name, exo_update_form *out, exo_err *err)
{
    for (size_t i = 0; i < FORMS; i++)
        if (strcmp(name, form_names[i]) == 0) {
            *out = (exo_update_form)i;
            return EXO_OK;
        }
    return exo_fail(err, EXO_INVAL, "expected whole, bf16, int8, delta or bf16_delta, got '%.60s'",
                    name);
}

const char *
exo_update_form_name(exo_update_form form)
{
    return (unsigned)form < FORMS ? form_names[form] : "?";
}

/* --- Making ----------------------------------------------------------------------------------- */

static exo_status
choose_by_names(exo_update_sender *s, const exo_update_sender_opts *opts, exo_err *err)
{
    const exo_param_info *infos = exo_model_infos(s->model);
    size_t count = exo_model_num_infos(s->model);
    for (size_t k = 0; k < opts->num_names; k++) {
        size_t taken = 0;
        for (size_t i = 0; i < count; i++)
            if (fnmatch(opts->names[k], infos[i].name, 0) == 0) {
                s->chosen[i] = true;
                taken++;
            }
        if (taken == 0)
            return exo_fail(err, EXO_INVAL,
                            "updates: no parameter matches '%.80s'; the first one is called %s",
                            opts->names[k], count ? infos[0].name : "nothing");
    }
    return EXO_OK;
}

static exo_status
choose(exo_update_sender *s, const exo_update_sender_opts *opts, exo_err *err)
{
    size_t count = exo_model_num_infos(s->model);
    s->chosen = exo_calloc(count + 1, sizeof *s->chosen);
    if (!s->chosen)
        return exo_fail(err, EXO_NOMEM, "no memory for a sender of updates");
    s->partial = opts->learned || opts->num_names > 0;
    if (opts->learned && opts->num_names > 0)
        return exo_fail(err, EXO_INVAL, "updates: give either `learned` or names");
    if (opts->num_names > 0)
        return choose_by_names(s, opts, err);
    for (size_t i = 0; i < count; i++)
        s->chosen[i] = !opts->learned || !exo_model_infos(s->model)[i].frozen;
    return EXO_OK;
}

static exo_status
check_options(const exo_update_sender_opts *opts, const exo_model *model, exo_err *err)
{
    if ((unsigned)opts->form >= FORMS)
        return exo_fail(err, EXO_INVAL, "updates: unknown form %d", (int)opts->form);
    if (opts->chunk_bytes != 0 &&
        (opts->chunk_bytes < LEAST_CHUNK || opts->chunk_bytes > MOST_CHUNK))
        return exo_fail(err, EXO_INVAL, "updates: chunks of %zu bytes; expected %d to %d",
                        opts->chunk_bytes, LEAST_CHUNK, MOST_CHUNK);
    if (opts->num_canaries > EXO_CANARY_MAX)
        return exo_fail(err, EXO_INVAL, "updates: %zu canaries; the most is %d", opts->num_canaries,
                        EXO_CANARY_MAX);
    if (opts->num_canaries > 0 && !exo_decoder_spec_of(model))
        return exo_fail(err, EXO_INVAL,
                        "updates: a canary needs a decoder, and the model '%s' is none",
                        exo_model_name(model));
    for (size_t i = 0; i < opts->num_canaries; i++)
        if ((unsigned)opts->canaries[i] > EXO_WEIGHTS_INT4)
            return exo_fail(err, EXO_INVAL, "updates: unknown format of weights %d",
                            (int)opts->canaries[i]);
    return EXO_OK;
}

static exo_status
make_rounding(exo_update_sender *s, size_t chunk_bytes, exo_err *err)
{
    exo_rounding *r = &s->rounding;
    r->form = s->form;
    r->piece = (chunk_bytes ? chunk_bytes : USUAL_CHUNK) / sizeof(float) / BLOCK * BLOCK;
    exo_status st = exo_codec_parse(&r->bf16, "bf16", err);
    if (st == EXO_OK)
        st = exo_codec_parse(&r->int8, "{name: int8, block: 256}", err);
    if (st != EXO_OK)
        return st;
    r->room = exo_calloc(1, exo_codec_bound(r->bf16, r->piece));
    return r->room ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a sender of updates");
}

exo_status
exo_update_sender_new(exo_update_sender **out, exo_model *model, const exo_update_sender_opts *opts,
                      exo_err *err)
{
    const exo_update_sender_opts usual = {0};
    opts = opts ? opts : &usual;
    exo_status st = check_options(opts, model, err);
    if (st != EXO_OK)
        return st;
    exo_update_sender *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a sender of updates");
    s->model = exo_model_hold(model);
    s->form = opts->form;
    s->sender = opts->sender;
    s->life = opts->life;
    s->num_canaries = opts->num_canaries;
    for (size_t i = 0; i < opts->num_canaries; i++)
        s->formats[i] = opts->canaries[i];
    st = choose(s, opts, err);
    if (st == EXO_OK)
        st = make_rounding(s, opts->chunk_bytes, err);
    if (st == EXO_OK)
        st = exo_update_fingerprint(exo_model_infos(model), exo_model_num_infos(model),
                                    s->fingerprint, err);
    if (st == EXO_OK)
        *out = s;
    else
        exo_update_sender_free(&s);
    return st;
}

static void
free_generators(exo_update_sender *s)
{
    for (size_t i = 0; i < s->num_canaries; i++)
        exo_generator_free(&s->generators[i]);
}

exo_status
exo_update_sender_canaries(exo_update_sender *s, const exo_weight_format *formats, size_t count,
                           exo_err *err)
{
    const exo_update_sender_opts opts = {
        .form = s->form, .canaries = formats, .num_canaries = count};
    exo_status st = check_options(&opts, s->model, err);
    if (st != EXO_OK)
        return st;
    if (count == s->num_canaries && memcmp(formats, s->formats, count * sizeof *formats) == 0)
        return EXO_OK;
    free_generators(s);
    s->num_canaries = count;
    for (size_t i = 0; i < count; i++)
        s->formats[i] = formats[i];
    return EXO_OK;
}

void
exo_update_sender_free(exo_update_sender **sender)
{
    exo_update_sender *s = *sender;
    if (!s)
        return;
    exo_sender_forget_all(s);
    exo_snapshot_drop(&s->newest);
    free_generators(s);
    exo_codec_free(&s->rounding.bf16);
    exo_codec_free(&s->rounding.int8);
    exo_free(s->rounding.room);
    exo_free(s->chosen);
    exo_model_drop(&s->model);
    exo_free(s);
    *sender = NULL;
}

/* --- Versions --------------------------------------------------------------------------------- */

static bool
is_same(const exo_param_info *a, const exo_param_info *b)
{
    bool same = strcmp(a->name, b->name) == 0 && a->num_dims == b->num_dims;
    for (size_t d = 0; same && d < a->num_dims; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

static exo_status
check_params(const exo_update_sender *s, const exo_params *params, exo_err *err)
{
    size_t count = exo_model_num_infos(s->model);
    const exo_param_info *infos = exo_model_infos(s->model);
    if (exo_params_by_units(params))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "updates: a copy by units cannot be sent: take a "
                        "flat copy");
    for (size_t i = 0; i < count || i < exo_params_count(params); i++) {
        const exo_param_info *info =
            i < exo_params_count(params) ? exo_params_info(params, i) : NULL;
        if (i >= count || !info || !is_same(&infos[i], info))
            return exo_fail(err, EXO_INVAL,
                            "updates: parameter %zu of the model is %s, but that of the given "
                            "parameters is %s, or has another shape",
                            i, i < count ? infos[i].name : "nothing",
                            info ? info->name : "nothing");
    }
    return EXO_OK;
}

static exo_status
copy_values(exo_update_sender *s, exo_snapshot *made, exo_params *params, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < made->count; i++) {
        const exo_param_info *info = exo_params_info(made->params, i);
        st = exo_snapshot_copy(made, params, i, &s->rounding, err);
        if (st != EXO_OK || s->chosen[i] || !s->newest)
            continue;
        if (memcmp(exo_params_at(made->params, i), exo_params_at(s->newest->params, i),
                   info->numel * sizeof(float)) != 0)
            st = exo_fail(err, EXO_INVAL,
                          "parameter '%s' has changed since version %llu, but updates leave it "
                          "out: add it to their names, or freeze it",
                          info->name, (unsigned long long)s->newest->id.version);
    }
    return st;
}

static exo_status
add_canaries(exo_update_sender *s, exo_snapshot *made, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->num_canaries; i++) {
        const exo_decoder_spec *spec = exo_decoder_spec_of(s->model);
        const exo_generator_opts opts = exo_canary_generator(spec, s->formats[i]);
        st = s->generators[i]
                 ? exo_generator_set_weights(s->generators[i], made->params, err)
                 : exo_generator_new(&s->generators[i], spec, made->params, &opts, err);
        if (st == EXO_OK)
            st = exo_canary_compute(&made->canaries[made->num_canaries++], s->generators[i],
                                    s->fingerprint, err);
    }
    return st;
}

/* Whether a known receiver can read memory of the device. */
static bool
has_near(const exo_update_sender *s, const exo_device *device)
{
    const uint64_t place = exo_ipc_place(device);
    bool near = false;
    for (size_t i = 0; place != 0 && i < s->num_receivers; i++)
        near = near || s->receivers[i].place == place;
    return near;
}

exo_status
exo_update_sender_stage(exo_update_sender *s, exo_params *params, uint64_t version, exo_err *err)
{
    exo_snapshot *made = NULL;
    uint64_t last = exo_update_sender_version(s);
    if (version <= last)
        return exo_fail(err, EXO_INVAL,
                        "updates: version %llu does not follow version %llu: versions grow",
                        (unsigned long long)version, (unsigned long long)last);
    exo_status st = check_params(s, params, err);
    if (st == EXO_OK)
        st = exo_snapshot_new(&made, s->model, err);
    if (st == EXO_OK)
        st = copy_values(s, made, params, err);
    if (st == EXO_OK)
        st = exo_snapshot_hash(made, err);
    if (st == EXO_OK) {
        made->id = (exo_state_id){.life = s->life, .version = version};
        st = exo_state_digest(&made->id, s->fingerprint, (const uint8_t(*)[EXO_SHA])made->hashes,
                              made->count, err);
    }
    if (st == EXO_OK)
        st = add_canaries(s, made, err);
    if (st == EXO_OK && has_near(s, exo_params_device(params)))
        st = exo_snapshot_share(made, params, &s->rounding, err);
    if (st != EXO_OK) {
        exo_snapshot_drop(&made);
        return st;
    }
    exo_hash_text(made->id.digest, made->state);
    exo_snapshot_drop(&s->newest);
    s->newest = made;
    exo_sender_trim(s);
    return EXO_OK;
}

uint64_t
exo_update_sender_version(const exo_update_sender *sender)
{
    return sender->newest ? sender->newest->id.version : 0;
}

const char *
exo_update_sender_state(const exo_update_sender *sender)
{
    return sender->newest ? sender->newest->state : "";
}
