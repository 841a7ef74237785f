/* A Hugging Face config.json from an untrusted source: an accepted spec must be one whose model can
 * be built. One thread; the input is written to a file in a temporary folder. Read next:
 * include/exogym/decoder.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/decoder.h>

static char folder[64], path[80];

static void
remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void
make_folder(void)
{
    strcpy(folder, "/tmp/exo-fuzz-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    snprintf(path, sizeof path, "%s/config.json", folder);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_decoder_spec spec;
    exo_model *model = NULL;
    exo_err err = {0};
    if (!folder[0])
        make_folder();
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    if (exo_decoder_load_spec(folder, &spec, &err) != EXO_OK) {
        if (!strstr(err.text, path))
            abort();
        return 0;
    }
    if (spec.layers <= 64 && exo_decoder_new(&model, &spec, &err) != EXO_OK)
        abort();
    exo_model_drop(&model);
    return 0;
}
