/* The axes and cells of a sweep: see sweep_grid.h. No state. */
#include "programs/sweep_grid.h"

#include <stdbool.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/grow_text.h"

enum {
    LONGEST_VALUE = 32 /* characters of a value in a label */
};

/* The length of the text up to a comma outside brackets, braces and quotes, or the end. */
static size_t
part_length(const char *text)
{
    int depth = 0;
    char quote = 0;
    size_t i = 0;
    for (; text[i] && (text[i] != ',' || depth > 0 || quote); i++) {
        if (quote)
            quote = text[i] == quote ? 0 : quote;
        else if (text[i] == '"' || text[i] == '\'')
            quote = text[i];
        else if (text[i] == '[' || text[i] == '{')
            depth++;
        else if (text[i] == ']' || text[i] == '}')
            depth--;
    }
    return i;
}

static exo_status
read_values(exo_axis *axis, const char *text, exo_err *err)
{
    axis->values = exo_calloc(strlen(text) + 1, sizeof *axis->values);
    if (!axis->values)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (const char *at = text;; at++) {
        const char *end = at + part_length(at), *first = at + strspn(at, " ");
        size_t length = first < end ? (size_t)(end - first) : 0;
        while (length > 0 && first[length - 1] == ' ')
            length--;
        if (length == 0)
            return exo_fail(err, EXO_INVAL, "--grid %.60s: a value is empty", axis->key);
        char *value = exo_text_make(err, "%.*s", (int)length, first);
        if (!value)
            return EXO_NOMEM;
        axis->values[axis->count++] = value;
        for (size_t i = 0; i + 1 < axis->count; i++)
            if (strcmp(axis->values[i], value) == 0)
                return exo_fail(err, EXO_INVAL, "--grid %.60s: %.60s is there twice", axis->key,
                                value);
        at = end;
        if (!*at)
            return EXO_OK;
    }
}

static exo_status
read_axis(exo_grid *grid, const char *word, exo_err *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return exo_fail(err, EXO_INVAL, "--grid %.60s: expected KEY=VALUE,VALUE,...", word);
    exo_axis *axis = &grid->axes[grid->num_axes++];
    axis->key = exo_text_make(err, "%.*s", (int)(equals - word), word);
    if (!axis->key)
        return EXO_NOMEM;
    if (strcmp(axis->key, "name") == 0 || strcmp(axis->key, "train.save_dir") == 0)
        return exo_fail(err, EXO_INVAL,
                        "--grid %s: all runs of a sweep are in one folder, which --name and "
                        "--save-dir give",
                        axis->key);
    for (size_t i = 0; i + 1 < grid->num_axes; i++)
        if (strcmp(grid->axes[i].key, axis->key) == 0)
            return exo_fail(err, EXO_INVAL, "--grid %.60s is there twice: give all values at once",
                            axis->key);
    exo_status st = read_values(axis, equals + 1, err);
    if (st == EXO_OK && axis->count > EXO_SWEEP_CELLS / grid->num_cells)
        st = exo_fail(err, EXO_INVAL, "--grid: more than %d cells", EXO_SWEEP_CELLS);
    grid->num_cells *= axis->count;
    return st;
}

/* Two values such as "1 s" and "1_s" have the same label. */
static exo_status
check_suffixes(const exo_grid *grid, exo_err *err)
{
    exo_status st = EXO_OK;
    char **suffixes = exo_calloc(grid->num_cells, sizeof *suffixes);
    if (!suffixes)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t cell = 0; st == EXO_OK && cell < grid->num_cells; cell++) {
        suffixes[cell] = exo_grid_suffix(grid, cell, err);
        st = suffixes[cell] ? EXO_OK : EXO_NOMEM;
        for (size_t i = 0; st == EXO_OK && i < cell; i++)
            if (strcmp(suffixes[i], suffixes[cell]) == 0)
                st = exo_fail(err, EXO_INVAL, "--grid: two cells would be named '%s'",
                              suffixes[cell] + 1);
    }
    for (size_t cell = 0; cell < grid->num_cells; cell++)
        exo_free(suffixes[cell]);
    exo_free(suffixes);
    return st;
}

exo_status
exo_grid_read(exo_grid *grid, const exo_words *words, exo_err *err)
{
    exo_status st = EXO_OK;
    *grid = (exo_grid){.axes = exo_calloc(words->length + 1, sizeof *grid->axes), .num_cells = 1};
    if (!grid->axes)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < words->length; i++)
        st = read_axis(grid, words->items[i], err);
    return st == EXO_OK ? check_suffixes(grid, err) : st;
}

void
exo_grid_release(exo_grid *grid)
{
    for (size_t a = 0; a < grid->num_axes; a++) {
        for (size_t i = 0; i < grid->axes[a].count; i++)
            exo_free(grid->axes[a].values[i]);
        exo_free(grid->axes[a].values);
        exo_free(grid->axes[a].key);
    }
    exo_free(grid->axes);
    *grid = (exo_grid){0};
}

const char *
exo_grid_value(const exo_grid *grid, size_t cell, size_t axis)
{
    for (size_t a = grid->num_axes; --a > axis;)
        cell /= grid->axes[a].count;
    return grid->axes[axis].values[cell % grid->axes[axis].count];
}

char *
exo_grid_suffix(const exo_grid *grid, size_t cell, exo_err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    exo_text text = {0};
    for (size_t a = 0; a < grid->num_axes; a++) {
        const char *dot = strrchr(grid->axes[a].key, '.');
        exo_text_add(&text, "-%s_%.*s", dot ? dot + 1 : grid->axes[a].key, LONGEST_VALUE,
                     exo_grid_value(grid, cell, a));
    }
    if (text.failed || !text.data) {
        exo_free(text.data);
        exo_fail(err, EXO_NOMEM, "out of memory");
        return NULL;
    }
    for (char *c = text.data; *c; c++)
        *c = strchr(allowed, *c) ? *c : '_';
    return text.data;
}
