/* The misspelt key that an error about a mapping names: exo_config_suggest. */
#include <criterion/criterion.h>

#include <string.h>

#include "base/config_tree.h"

/* The error `reason` about the mapping, of which the keys up to NULL were asked for. */
static void
expect(const char *text, const char *const *asked, const char *reason, const char *message)
{
    exo_config_doc *doc = NULL;
    exo_config *node = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "job", text, &err), EXO_OK, "%s", err.text);
    for (; *asked; asked++)
        cr_assert_eq(exo_config_ask(exo_config_root(doc), *asked, &node, &err), EXO_OK);
    cr_expect_eq(exo_config_fail(exo_config_root(doc), &err, "%s", reason), EXO_INVAL);
    cr_expect_str_eq(err.text, message);
    exo_config_free(&doc);
}

#define ASKED(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(config_suggest, a_key_that_the_error_mentions_may_have_many_slips)
{
    expect("{rweadr: 1}", ASKED("reward"), "'reward' is missing",
           "job:1:1: 'reward' is missing; is 'rweadr' in line 1 meant to be 'reward'?");
    expect("{rweadr: 1}", ASKED("reward"), "reward", /* at both ends of the text */
           "job:1:1: reward; is 'rweadr' in line 1 meant to be 'reward'?");
    expect("{stpe: 1}", ASKED("step"), "no step",
           "job:1:1: no step; is 'stpe' in line 1 meant to be 'step'?");
}

Test(config_suggest, a_part_of_a_word_does_not_mention)
{
    expect("{rweadr: 1}", ASKED("reward"), "rewards", "job:1:1: rewards");
    expect("{rweadr: 1}", ASKED("reward"), "no_reward", "job:1:1: no_reward");
    expect("{rweadr: 1}", ASKED("reward"), "rewards of a reward",
           "job:1:1: rewards of a reward; is 'rweadr' in line 1 meant to be 'reward'?");
}

Test(config_suggest, elsewhere_one_letter_of_a_long_word_is_a_slip)
{
    expect("{agorithm: 1}", ASKED("algorithm"), "no values",
           "job:1:1: no values; is 'agorithm' in line 1 meant to be 'algorithm'?");
    expect("{agorthm: 1}", ASKED("algorithm"), "no values", "job:1:1: no values");
    expect("{sedd: 1}", ASKED("seed"), "no values", "job:1:1: no values"); /* short */
    expect("{sample: 1}", ASKED("samples"), "no values", "job:1:1: no values");
    expect("{sampless: 1}", ASKED("samples"), "no values", "job:1:1: no values");
}

Test(config_suggest, keys_that_are_there_or_were_read_are_none)
{
    expect("{reward: 1, rewadr: 2}", ASKED("reward"), "reward is 1", "job:1:1: reward is 1");
    expect("{rewadr: 2}", ASKED("reward", "rewadr"), "no reward", "job:1:1: no reward");
    expect("[rewadr]", (const char *const[]){NULL}, "no reward", "job:1:1: no reward");
}
