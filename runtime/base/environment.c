/* Checks the environment. No state. Read next: log.c and parallel.c, which use it. */
#include "base/environment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/part_of_memory.h"
#include "base/size_unit.h"

#define PREFIX "EXOGYM_"

extern char **environ;

/* Parses a number in a range, without sign, blanks or other characters. */
static bool
is_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    if (!*text || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *out >= min && *out <= max;
}

static bool
is_threads(const char *text)
{
    uint64_t number = 0;
    return is_number(text, 1, EXO_MAX_THREADS, &number);
}

/* Parses a size: a number of bytes, or one with a unit, such as 2GiB. */
static bool
read_size(const char *text, uint64_t *out)
{
    char digits[24];
    size_t length = strspn(text, "0123456789");
    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    double unit = text[length] ? exo_size_unit(text + length) : 1;
    if (!is_number(digits, 1, INT64_MAX, out) || unit < 1 || (double)*out > 0x1p62 / unit)
        return false;
    *out *= (uint64_t)unit;
    return true;
}

static bool
is_size(const char *text)
{
    uint64_t bytes = 0;
    return read_size(text, &bytes);
}

static bool
is_level(const char *text)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcmp(text, levels[i]) == 0)
            return true;
    return false;
}

static bool
is_address(const char *text)
{
    return strncmp(text, "tcp://", strlen("tcp://")) == 0 ||
           strncmp(text, "ipc://", strlen("ipc://")) == 0;
}

static bool
is_one(const char *text)
{
    return strcmp(text, "1") == 0;
}

static bool
is_cudnn(const char *text)
{
    return strcmp(text, "off") == 0 || strcmp(text, "on") == 0 || strcmp(text, "tf32") == 0;
}

static bool
is_switch(const char *text)
{
    return strcmp(text, "off") == 0 || strcmp(text, "on") == 0;
}

static bool
is_part(const char *text)
{
    uint64_t bytes = 0;
    return exo_part_of_memory(text, UINT64_C(1) << 40, &bytes);
}

static bool
is_anything(const char *text)
{
    (void)text;
    return true;
}

static const struct {
    const char *name, *expected;
    bool (*is_right)(const char *text);
} variables[] = {
    {PREFIX "THREADS", "a number from 1 to 1024", is_threads},
    {PREFIX "LOG", "error, warn, info or debug", is_level},
    {PREFIX "DATA", "a folder", is_anything},
    {PREFIX "HEAD", "tcp://HOST:PORT or ipc://PATH", is_address},
    {PREFIX "HEAD_KEY", "a public key or the path of a NAME.key", is_anything},
    {PREFIX "HOST_ID", "any text", is_anything},
    {PREFIX "STORE", "a number of bytes or a size, as 2GiB", is_size},
    {PREFIX "DUMPABLE", "1", is_one},
    {PREFIX "CUDNN", "off, on or tf32", is_cudnn},
    {PREFIX "CUDA_EPILOGUES", "off or on", is_switch},
    {PREFIX "CUDA_GRAPHS", "off or on", is_switch},
    {PREFIX "CUDA_MEMORY", EXO_PART_EXPECTED, is_part},
    {PREFIX "CUDA_TF32", "off or on", is_switch},
};

enum {
    NUM_VARIABLES = sizeof variables / sizeof *variables
};

const char *
exo_environment(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

unsigned
exo_environment_threads(void)
{
    const char *text = exo_environment(PREFIX "THREADS");
    uint64_t number = 0;
    return text && is_number(text, 1, EXO_MAX_THREADS, &number) ? (unsigned)number : 0;
}

uint64_t
exo_environment_store(void)
{
    const char *text = exo_environment(PREFIX "STORE");
    uint64_t bytes = 0;
    return text && read_size(text, &bytes) ? bytes : 0;
}

/* Refuses a name that is similar to one of the variables. Other names may belong to another
 * program. */
static exo_status
check_name(const char *entry, exo_err *err)
{
    char name[64];
    size_t length = strcspn(entry, "=");
    if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || length >= sizeof name)
        return EXO_OK;
    memcpy(name, entry, length);
    name[length] = '\0';
    exo_nearest nearest = {.word = name + strlen(PREFIX)};
    for (size_t i = 0; i < NUM_VARIABLES; i++) {
        if (strcmp(variables[i].name, name) == 0)
            return EXO_OK;
        exo_nearest_try(&nearest, variables[i].name + strlen(PREFIX));
    }
    const char *meant = exo_nearest_name(&nearest);
    return meant ? exo_fail(err, EXO_INVAL,
                            "the environment has %s, which is not read; did you mean " PREFIX "%s?",
                            name, meant)
                 : EXO_OK;
}

exo_status
exo_environment_check(exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < NUM_VARIABLES; i++) {
        const char *text = exo_environment(variables[i].name);
        if (text && !variables[i].is_right(text))
            st = exo_fail(err, EXO_INVAL, "%s: expected %s, got '%.60s'", variables[i].name,
                          variables[i].expected, text);
    }
    for (char **entry = environ; st == EXO_OK && entry && *entry; entry++)
        st = check_name(*entry, err);
    return st;
}
