/* The registry of classes by name: order, search, duplicates, suggestions, and its bound. Each test
 * is a process of its own and uses `things`. Read next: runtime/base/registry.h. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/registry.h"

typedef struct thing {
    const char *name;
} thing;

static exo_registry things = EXO_REGISTRY("thing");

static exo_status
add(const thing *t)
{
    return exo_registry_add(&things, t, NULL);
}

Test(registry, names_are_sorted_and_found)
{
    static const thing pear = {"pear"}, apple = {"apple"}, fig = {"fig"};
    cr_expect_null(exo_registry_at(&things, 0));
    cr_expect_null(exo_registry_find(&things, "apple"));
    cr_expect_eq(add(&pear), EXO_OK);
    cr_expect_eq(add(&apple), EXO_OK);
    cr_expect_eq(add(&fig), EXO_OK);
    cr_expect_eq(exo_registry_at(&things, 0), &apple);
    cr_expect_eq(exo_registry_at(&things, 1), &fig);
    cr_expect_eq(exo_registry_at(&things, 2), &pear);
    cr_expect_null(exo_registry_at(&things, 3));
    cr_expect_eq(exo_registry_find(&things, "fig"), &fig);
    cr_expect_null(exo_registry_find(&things, "figs"));
}

Test(registry, a_name_is_given_once)
{
    static const thing first = {"fig"}, again = {"fig"}, nameless = {NULL}, empty = {""};
    exo_err err = {0};
    cr_expect_eq(add(&first), EXO_OK);
    cr_expect_eq(exo_registry_add(&things, &again, &err), EXO_EXISTS);
    cr_expect_str_eq(err.text, "there is already a thing 'fig'");
    cr_expect_eq(exo_registry_find(&things, "fig"), &first);
    cr_expect_eq(add(&nameless), EXO_INVAL);
    cr_expect_eq(add(&empty), EXO_INVAL);
    cr_expect_null(exo_registry_at(&things, 1));
}

Test(registry, of_an_unknown_name_the_nearest_is_said_or_all)
{
    static const thing pear = {"pear"}, apple = {"apple"};
    exo_err err = {0};
    cr_expect_eq(exo_registry_unknown(&things, "pear", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(err.text, "there is no thing 'pear'; known are: none");
    add(&pear);
    add(&apple);
    cr_expect_eq(exo_registry_unknown(&things, "paer", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(err.text, "there is no thing 'paer'; did you mean 'pear'?");
    cr_expect_eq(exo_registry_unknown(&things, "quince", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(err.text, "there is no thing 'quince'; known are: apple, pear");
}

Test(registry, is_bounded)
{
    static char names[EXO_REGISTRY_MAX + 1][16];
    static thing many[EXO_REGISTRY_MAX + 1];
    exo_err err = {0};
    for (int i = 0; i <= EXO_REGISTRY_MAX; i++) {
        snprintf(names[i], sizeof names[i], "thing_%d", (i * 7919) % (EXO_REGISTRY_MAX + 1));
        many[i].name = names[i];
        cr_expect_eq(exo_registry_add(&things, &many[i], &err),
                     i < EXO_REGISTRY_MAX ? EXO_OK : EXO_FULL);
    }
    for (size_t i = 1; i < EXO_REGISTRY_MAX; i++) {
        const thing *before = exo_registry_at(&things, i - 1), *after = exo_registry_at(&things, i);
        cr_assert_lt(strcmp(before->name, after->name), 0);
    }
    /* A list that is too long is cut, and the message with it. */
    cr_expect_eq(exo_registry_unknown(&things, "quince", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "known are: thing_0, thing_1, "), "%s", err.text);
}
