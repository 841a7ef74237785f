/* Functions of all families: see family.h. No state; any thread. */
#include "nn/pretrained/family.h"

#include <string.h>

static const exo_family *const families[] = {
    &exo_family_gpt2,    &exo_family_opt,   &exo_family_bloom, &exo_family_llama,
    &exo_family_mistral, &exo_family_qwen2, &exo_family_qwen3};

const exo_family *
exo_family_find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

exo_status
exo_family_places(const exo_family *family, const exo_decoder_spec *spec, exo_tensor_places *places,
                  exo_err *err)
{
    *places = (exo_tensor_places){0};
    family->places(spec, places);
    if (!spec->tied) {
        exo_tensor_place *head = exo_tensor_places_add(places, "lm_head.weight", "head.weight", 0,
                                                       spec->vocabulary, spec->width);
        if (head)
            head->bare = true;
    }
    return places->status == EXO_OK
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for the names of tensors");
}

exo_status
exo_family_check(const exo_family **out, const exo_decoder_spec *spec, exo_err *err)
{
    const exo_family *family = exo_family_find(spec->family);
    if (!family)
        return exo_fail(err, EXO_UNSUPPORTED, "the family '%s' is none of " EXO_FAMILIES,
                        spec->family);
    const char *reason = family->lacks(spec);
    if (reason)
        return exo_fail(err, EXO_UNSUPPORTED, "transformers' %s cannot express this model: %s",
                        family->architecture, reason);
    *out = family;
    return EXO_OK;
}

/* True: `name` matches the pattern, in which # stands for a number. */
static bool
matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*name++ != *pattern)
                return false;
            continue;
        }
        size_t digits = strspn(name, "0123456789");
        if (digits == 0)
            return false;
        name += digits;
    }
    return *name == '\0';
}

bool
exo_family_is_buffer(const exo_family *family, const char *tensor)
{
    for (size_t i = 0; family->buffers[i]; i++)
        if (matches(family->buffers[i], tensor))
            return true;
    return false;
}
