/* Items of experience, prompts, rewards, and the list of what was learned: what is refused, and
 * what is kept. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/reward.h>

#include "experience/claims.h"
#include "experience/experience.h"
#include "experience/parameters.h"
#include "experience/prompts.h"
#include "experience/stock.h"
#include "support/good_item.h"
#include "support/temp.h"
#include "support/texts.h"

/* --- Items ------------------------------------------------------------------------------------ */

Test(experience, an_item_keeps_what_it_was_made_of)
{
    exo_experience e, seen;
    exo_err err = {0};
    exo_item *item = good_item(&e);
    e.tokens[6] = 9;
    cr_assert_eq(exo_experience_view(&seen, item, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(seen.id, 40);
    cr_expect_eq(seen.prompt, 3);
    cr_expect_eq(seen.epoch, 8);
    cr_expect_eq(seen.maker, 1);
    cr_expect_eq(seen.temperature, 0.5f);
    cr_expect(seen.filtered);
    cr_expect_eq(seen.answers, ANSWERS);
    cr_expect_eq(seen.tokens[6], 9);
    exo_item_drop(&item);
}

/* Ways to damage an item, and a word of the error. */
static void
damage(int how, exo_experience *e, exo_item *item)
{
    switch (how) {
    case 0:
        e->lengths[0] = 3;
        break;
    case 1:
        e->lengths[1] = 0;
        break;
    case 2:
        e->tokens[4] = -1;
        break;
    case 3:
        e->log_probs[2] = 0.25f;
        break;
    case 4:
        e->plain_log_probs[3] = NAN;
        break;
    case 5:
        e->cache_versions[1] = 5;
        break;
    case 6:
        e->versions[0] = -1;
        break;
    case 7:
        e->scores[1] = INFINITY;
        break;
    case 8:
        e->finish[0] = EXO_FINISH_NONE;
        break;
    case 9:
        e->finish[1] = 77;
        break;
    case 10:
        e->prompt_tokens[0] = -5;
        break;
    case 11:
        item->parts[5].count--;
        break;
    case 12:
        item->parts[6].dtype = EXO_I32;
        break;
    case 13:
        item->num_parts--;
        break;
    case 14:
        *(int64_t *)item->parts[0].data = 2;
        break;
    case 15:
        item->parts[1].count = 0;
        break;
    case 16:
        e->temperature = -1;
        exo_experience_sign(e, item);
        break;
    case 17:
        e->scores[1] = 1e39;
        break;
    case 18:
        ((int64_t *)item->parts[0].data)[2] = -1;
        break;
    case 19:
        ((int64_t *)item->parts[0].data)[5] = -2;
        break;
    default:
        ((int64_t *)item->parts[0].data)[7] = 2;
    }
}

/* Two answers with a reply of two tokens in the second. */
static exo_item *
item_of_turns(exo_experience *e)
{
    exo_item *item = NULL;
    cr_assert_eq(exo_experience_new(&item, e, ANSWERS, PROMPT, TOKENS, true, NULL), EXO_OK);
    exo_experience_sign(e, item);
    e->lengths[0] = 2;
    e->lengths[1] = 5;
    for (int i = 0; i < TOKENS; i++) {
        bool tool = i == 3 || i == 4;
        e->mask[i] = !tool;
        e->log_probs[i] = e->plain_log_probs[i] = tool ? 0 : -1;
        e->versions[i] = e->cache_versions[i] = tool ? -1 : 2;
    }
    e->rewards[2] = 0.5f;
    e->finish[0] = e->finish[1] = EXO_FINISH_STOP;
    return item;
}

static void
damage_turns(int how, exo_experience *e, exo_item *item)
{
    switch (how) {
    case 0:
        e->mask[0] = 0;
        break;
    case 1:
        e->mask[5] = 2;
        break;
    case 2:
        e->versions[3] = 2;
        break;
    case 3:
        e->log_probs[4] = -1;
        break;
    case 4:
        e->rewards[3] = 1;
        break;
    case 5:
        e->rewards[2] = NAN;
        break;
    case 6:
        e->cache_versions[5] = -1;
        break;
    case 7:
        e->mask[2] = 0;
        e->versions[2] = e->cache_versions[2] = -1;
        e->log_probs[2] = e->plain_log_probs[2] = e->rewards[2] = 0;
        break;
    default:
        item->parts[11].count = 0;
    }
}

Test(experience, damaged_turns_are_refused)
{
    for (int how = -1; how < 9; how++) {
        exo_experience e, seen;
        exo_err err = {0};
        exo_item *item = item_of_turns(&e);
        if (how >= 0)
            damage_turns(how, &e, item);
        exo_status st = exo_experience_view(&seen, item, &err);
        cr_expect_eq(st, how < 0 ? EXO_OK : EXO_INVAL, "damage %d: %s", how, err.text);
        if (how < 0)
            cr_expect_eq(exo_experience_actions(&seen, 2, 5), 3);
        exo_item_drop(&item);
    }
}

Test(experience, a_damaged_item_is_refused)
{
    static const char *const damaged[] = {"tokens",
                                          "lengths: answer 1",
                                          "item 40 of maker 1: tokens[4] is -1",
                                          "log_probs[2]",
                                          "plain_log_probs[3] is ",
                                          "cache_versions[1] is 5",
                                          "versions[0] is -1",
                                          "scores",
                                          "finish",
                                          "finish",
                                          "prompt[0]",
                                          "cache_versions",
                                          "log_probs",
                                          "arrays",
                                          "format 2",
                                          "a prompt of 0 tokens",
                                          "header: a temperature",
                                          "scores: that of answer 1 is 1e+39",
                                          "header: prompt is -1",
                                          "header: life is -2",
                                          "header: filtered is 2"};
    for (int how = 0; how < (int)(sizeof damaged / sizeof *damaged); how++) {
        exo_experience e, seen;
        exo_err err = {0};
        exo_item *item = good_item(&e);
        damage(how, &e, item);
        cr_expect_eq(exo_experience_view(&seen, item, &err), EXO_INVAL, "damage %d", how);
        cr_expect_eq(strncmp(err.text, "experience", 10), 0, "damage %d: %s", how, err.text);
        cr_expect_not_null(strstr(err.text, damaged[how]), "damage %d: %s", how, err.text);
        exo_item_drop(&item);
    }
}

Test(experience, a_damaged_item_with_an_update_has_no_chunk)
{
    exo_item *item = NULL;
    const exo_item_part parts[] = {{.dtype = EXO_I64, .count = 16}, {.dtype = EXO_U8, .count = 21}};
    exo_parameters p;
    exo_err err = {0};
    const uint8_t *bytes = NULL;
    size_t at = 0, size = 0;
    bool damaged = false;
    cr_assert_eq(exo_item_new(&item, parts, 2, &err), EXO_OK);
    int64_t *header = item->parts[0].data;
    uint8_t *body = item->parts[1].data;
    header[0] = 8;
    header[1] = 3;
    header[2] = 12;
    header[5] = 1;
    body[0] = 5;
    body[13] = 9;
    cr_assert_eq(exo_parameters_view(&p, item, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(p.version, 3);
    cr_expect_eq(p.quota, 12);
    cr_expect(exo_parameters_chunk(&p, &at, &bytes, &size, &damaged));
    cr_expect_eq(size, 5);
    cr_expect_not(exo_parameters_chunk(&p, &at, &bytes, &size, &damaged));
    cr_expect(damaged);
    body[13] = 0;
    cr_expect(exo_parameters_chunk(&p, &at, &bytes, &size, &damaged));
    cr_expect_eq(size, 0);
    cr_expect_not(exo_parameters_chunk(&p, &at, &bytes, &size, &damaged));
    cr_expect_not(damaged);
    header[0] = 1;
    cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL);
    item->num_parts = 1;
    cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL);
    item->num_parts = 2;
    exo_item_drop(&item);
}

Test(experience, an_item_with_an_update_lists_finished_draws_as_ranges)
{
    exo_item *item = NULL;
    const exo_item_part parts[] = {{.dtype = EXO_I64, .count = 20}, {.dtype = EXO_U8}};
    static const int64_t wrong[][4] = {{6, 1, 8, 1},  {7, 2, 9, 1}, {9, 1, 7, 1},
                                       {-1, 1, 8, 1}, {7, 0, 9, 1}, {7, 1, 9, INT64_MAX / 2}};
    exo_parameters p;
    exo_err err = {0};
    cr_assert_eq(exo_item_new(&item, parts, 2, &err), EXO_OK);
    int64_t *header = item->parts[0].data;
    header[0] = 8;
    header[2] = 24;                                                          /* quota */
    header[5] = 2;                                                           /* trainers */
    header[6] = 7;                                                           /* learned */
    memcpy(header + 16, (const int64_t[]){7, 2, 13, 5}, 4 * sizeof *header); /* 7, 9; 13, 15, ... */
    cr_assert_eq(exo_parameters_view(&p, item, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(p.num_finished, 2);
    cr_expect_eq(p.finished[3], 5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(header + 16, wrong[i], sizeof wrong[i]);
        cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL, "case %zu", i);
    }
    header[10] = EXO_DEALING; /* of four words the last two are a deal */
    header[11] = 1;
    memcpy(header + 16, (const int64_t[]){7, 3, 2, 9}, 4 * sizeof *header);
    cr_assert_eq(exo_parameters_view(&p, item, &err), EXO_OK, "%s", err.text);
    cr_expect(p.num_finished == 1 && p.num_deals == 1 && p.deals[0] == 2 && p.deals[1] == 9);
    header[11] = 3;
    cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL);
    header[11] = 1;
    header[18] = -2;
    cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL);
    exo_item_drop(&item);
}

Test(experience, an_item_with_an_update_names_no_draw_beyond_its_quota)
{
    exo_item *item = NULL;
    const exo_item_part parts[] = {{.dtype = EXO_I64, .count = 20}, {.dtype = EXO_U8}};
    exo_parameters p;
    exo_err err = {0};
    cr_assert_eq(exo_item_new(&item, parts, 2, &err), EXO_OK);
    int64_t *header = item->parts[0].data;
    memcpy(header, (const int64_t[]){8,           0, 22, 0, 1, 2, 7, 0, 0, 0,
                                     EXO_DEALING, 1, 0,  0, 0, 0, 7, 8, 2, 21},
           20 * sizeof *header); /* 7, 9, ... 21 are finished, maker 2 makes 21 */
    cr_assert_eq(exo_parameters_view(&p, item, &err), EXO_OK, "%s", err.text);
    static const struct {
        size_t word;
        int64_t value;
        const char *says;
    } wrong[] = {
        {2, 21,
         "the finished draws (8 of them in steps of 2 from 7 on) are not all from 7 on below "
         "the quota 21"},
        {17, 9, "below the quota 22"},
        {17, INT64_MAX, "below the quota 22"},
        {16, 22, "below the quota 22"},
        {16, INT64_MAX, "below the quota 22"},
        {6, 23, "23 draws are learned from, but the quota is 22"},
        {19, 22,
         "draw 22 is dealt to maker 2, but makers make the draws from 7 on below the quota "
         "22"},
        {19, 6, "draw 6 is dealt to maker 2"},
        {18, INT64_C(1) << 32, "is dealt to maker 4294967296"},
        {4, 2, "this is no item with a weight update"},
        {4, -1, "this is no item with a weight update"},
        {5, 0, "this is no item with a weight update"},
        {12, 2, "this is no item with a weight update"},
        {13, -1, "this is no item with a weight update"},
        {14, -1, "this is no item with a weight update"},
        {15, -1, "this is no item with a weight update"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t right = header[wrong[i].word];
        header[wrong[i].word] = wrong[i].value;
        cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_INVAL, "case %zu", i);
        cr_expect(strstr(err.text, wrong[i].says), "case %zu: %s", i, err.text);
        header[wrong[i].word] = right;
    }
    header[2] = INT64_MAX; /* no sum may overflow */
    header[17] = (INT64_MAX - 7) / 2;
    cr_expect_eq(exo_parameters_view(&p, item, &err), EXO_OK, "%s", err.text);
    exo_item_drop(&item);
}

Test(experience, a_reply_is_read_as_it_was_written)
{
    exo_parameters_reply r = {.maker = "maker_3", .total = 77, .format = EXO_WEIGHTS_INT8}, seen;
    exo_item *item = NULL;
    exo_err err = {0};
    r.reply = (exo_update_reply){.answer = EXO_UPDATE_REFUSED, .version = 4, .code = EXO_DAMAGED};
    r.passed = true;
    snprintf(r.reply.text, sizeof r.reply.text, "chunk 2");
    cr_assert_eq(exo_parameters_reply_new(&item, &r, &err), EXO_OK);
    cr_expect(exo_parameters_is_reply(item));
    cr_assert_eq(exo_parameters_reply_read(&seen, item, &err), EXO_OK, "%s", err.text);
    cr_expect_str_eq(seen.maker, "maker_3");
    cr_expect_eq(seen.format, EXO_WEIGHTS_INT8);
    cr_expect_eq(seen.reply.version, 4);
    cr_expect_str_eq(seen.reply.text, "chunk 2");
    cr_expect_not(seen.sent || exo_parameters_reply_is_last(item));
    cr_expect_eq(seen.total, 77);
    cr_expect(seen.passed);
    int64_t *header = item->parts[0].data;
    for (size_t word = 0; word < item->parts[0].count; word++) { /* each is in a range */
        int64_t right = header[word];
        header[word] = -2;
        cr_expect_eq(exo_parameters_reply_read(&seen, item, &err), EXO_DAMAGED, "word %zu", word);
        header[word] = right;
    }
    ((uint8_t *)item->parts[2].data)[40] ^= 1;
    cr_expect_eq(exo_parameters_reply_read(&seen, item, &err), EXO_DAMAGED);
    exo_item_drop(&item);
}

Test(experience, a_maker_says_that_it_has_sent_all)
{
    exo_parameters_reply r = {.maker = "maker_3", .total = UINT64_MAX, .sent = true}, seen;
    exo_item *item = NULL;
    exo_err err = {0};
    r.reply.answer = EXO_UPDATE_NEED_WHOLE;
    cr_assert_eq(exo_parameters_reply_new(&item, &r, &err), EXO_OK);
    cr_expect(exo_parameters_reply_is_last(item));
    cr_assert_eq(exo_parameters_reply_read(&seen, item, &err), EXO_OK, "%s", err.text);
    cr_expect(seen.sent);
    cr_expect_eq(seen.total, UINT64_MAX);
    exo_item_drop(&item);
}

/* --- Stock ------------------------------------------------------------------------------------ */

static exo_item *
any_item(void)
{
    exo_item *item = NULL;
    cr_assert_eq(exo_item_new(&item, &(exo_item_part){.dtype = EXO_U8, .count = 1}, 1, NULL),
                 EXO_OK);
    return item;
}

/* Trainer 1 of 3 has the draws 1, 4, 7, ... */
Test(experience, a_stock_is_complete_when_all_draws_of_the_run_have_come)
{
    exo_stock s = {.rank = 1, .size = 3};
    exo_err err = {0};
    cr_expect(exo_stock_is_complete(&s, 0) && exo_stock_is_complete(&s, 1));
    cr_expect_not(exo_stock_is_complete(&s, 2));
    cr_assert_eq(exo_stock_put(&s, any_item(), 4, &err), EXO_OK, "%s", err.text);
    cr_expect_not(exo_stock_is_complete(&s, 5));
    cr_assert_eq(exo_stock_put(&s, any_item(), 1, &err), EXO_OK, "%s", err.text);
    cr_expect(exo_stock_is_complete(&s, 5) && exo_stock_is_complete(&s, 7));
    cr_expect_not(exo_stock_is_complete(&s, 8) || exo_stock_is_complete(&s, UINT64_MAX));
    exo_item *taken = exo_stock_take(&s);
    exo_item_drop(&taken);
    cr_expect(exo_stock_is_complete(&s, 7));
    cr_expect_not(exo_stock_is_complete(&s, 8));
    exo_stock_release(&s);
}

Test(experience, a_stock_gives_items_in_the_order_of_their_draws)
{
    exo_stock s = {.rank = 1, .size = 2};
    exo_err err = {0};
    exo_item *items[200];
    for (uint64_t i = 0; i < 200; i++) { /* draws 1, 3, ... in a mixed order */
        uint64_t k = i * 77 % 200;
        items[k] = any_item();
        cr_expect_not(exo_stock_has(&s, 200));
        cr_assert_eq(exo_stock_put(&s, items[k], 2 * k + 1, &err), EXO_OK, "%s", err.text);
    }
    cr_expect(exo_stock_has(&s, 200));
    cr_expect_eq(exo_stock_put(&s, items[7], 15, &err), EXO_EXISTS);
    cr_expect_eq(exo_stock_put(&s, items[7], 16, &err), EXO_INVAL);
    for (uint64_t k = 0; k < 200; k++) {
        exo_item *taken = exo_stock_take(&s);
        cr_expect_eq(taken, items[k]);
        exo_item_drop(&taken);
    }
    cr_expect_null(exo_stock_take(&s));
    cr_expect_eq(exo_stock_put(&s, NULL, 15, &err), EXO_EXISTS);
    exo_item *late = any_item(); /* draw 403: 401 never comes */
    cr_assert_eq(exo_stock_put(&s, late, 403, &err), EXO_OK);
    cr_expect_not(exo_stock_has(&s, 1));
    exo_item *taken = exo_stock_take(&s);
    cr_expect_eq(taken, late);
    exo_item_drop(&taken);
    exo_stock_release(&s);
}

/* Puts new items of draws in, and takes `takes` of them. */
static void
put_and_take(exo_stock *s, const uint64_t *draws, size_t count, size_t takes)
{
    exo_err err = {0};
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_stock_put(s, any_item(), draws[i], &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < takes; i++) {
        exo_item *item = exo_stock_take(s);
        cr_expect_not_null(item);
        exo_item_drop(&item);
    }
}

Test(experience, a_draw_is_overtaken_by_no_more_than_the_slack)
{
    exo_stock s = {.size = 1, .slack = 3}, again = {.size = 1, .slack = 3};
    exo_err err = {0};
    uint64_t finished[64];
    uint8_t bits[8];
    put_and_take(&s, (const uint64_t[]){4, 1, 2}, 3, 0); /* 0 and 3 have not come */
    cr_expect(exo_stock_has(&s, 3));
    cr_expect_not(exo_stock_has(&s, 4));
    put_and_take(&s, NULL, 0, 2); /* 1, 2 */
    cr_expect_eq(s.next, 0);
    cr_expect_eq(exo_stock_put(&s, NULL, 1, &err), EXO_EXISTS);
    cr_expect(exo_stock_has(&s, 1));
    put_and_take(&s, NULL, 0, 1); /* 4: the third that overtakes 0 */
    put_and_take(&s, (const uint64_t[]){5, 7}, 2, 0);
    cr_expect_not(exo_stock_has(&s, 1));
    cr_expect_eq(exo_stock_low(&s), 0);
    cr_expect_eq(exo_stock_finished(&s, finished, 32), 3); /* 1, 2; 4, 5; 7 */
    cr_expect_eq(memcmp(finished, (const uint64_t[]){1, 2, 4, 2, 7, 1}, 6 * sizeof *finished), 0);
    cr_expect_eq(exo_stock_finished(&s, finished, 2), 2);

    exo_stock_save(&s, bits, sizeof bits); /* what is here is not taken */
    again.next = s.next;
    cr_assert_eq(exo_stock_load(&again, bits, sizeof bits, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_stock_finished(&again, finished, 32), 2); /* 1, 2; 4 */
    cr_expect_eq(finished[2], 4);

    put_and_take(&s, (const uint64_t[]){0}, 1, 0);
    cr_expect(exo_stock_has(&s, 3));
    put_and_take(&s, NULL, 0, 3); /* 0, 5, 7 */
    cr_expect_eq(s.next, 3);
    cr_expect_eq(exo_stock_low(&s), 3);
    for (uint64_t i = 8; i < 300; i++) /* 3 and 6 wait: the ring grows */
        cr_assert_eq(exo_stock_put(&s, any_item(), i, &err), EXO_OK, "%s", err.text);
    cr_expect_not(exo_stock_has(&s, 2));
    put_and_take(&s, (const uint64_t[]){3, 6}, 2, 294);
    cr_expect_eq(s.next, 300);
    cr_expect_eq(s.ahead, 0);
    exo_stock_release(&s);
    exo_stock_release(&again);
}

/* --- Prompts ---------------------------------------------------------------------------------- */

static exo_status
read_prompts(exo_prompts **out, exo_config_doc **doc, const char *text, exo_err *err)
{
    cr_assert_eq(exo_config_parse(doc, "test", text, err), EXO_OK, "%s", err->text);
    return exo_prompts_read(out, exo_config_root(*doc), err);
}

Test(experience, every_epoch_draws_each_prompt_once_in_its_own_order)
{
    exo_prompts *p = NULL;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    exo_status st =
        read_prompts(&p, &doc, "{prompts: {lines: [a, bb, ccc, dddd, eeeee, ffffff]}}", &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    cr_expect_eq(exo_prompts_longest(p), 6);
    cr_expect_eq(exo_prompts_vocabulary(p), 256);
    bool differs = false;
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        int times[6] = {0};
        for (uint64_t i = 0; i < 6; i++) {
            exo_prompt first, again;
            cr_assert_eq(exo_prompts_draw(p, 9, i, &first, &err), EXO_OK);
            cr_assert_eq(exo_prompts_draw(p, 9, epoch * 6 + i, &again, &err), EXO_OK);
            cr_expect_eq(again.epoch, epoch);
            cr_expect_eq(again.length, again.index + 1);
            times[again.index]++;
            differs = differs || again.index != first.index;
        }
        for (int i = 0; i < 6; i++)
            cr_expect_eq(times[i], 1);
    }
    cr_expect(differs);
    exo_prompts_free(&p);
    exo_config_free(&doc);
}

/* Reads the prompts of a file *.jsonl. */
static exo_status
read_json(exo_prompts **out, const char *text, exo_err *err)
{
    char folder[64], config[256];
    exo_config_doc *doc = NULL;
    temp_folder(folder, sizeof folder);
    const char *path = texts_write_text(folder, "p.jsonl", text);
    snprintf(config, sizeof config, "{prompts: {path: %s, shuffle: false}}", path);
    exo_status st = read_prompts(out, &doc, config, err);
    exo_config_free(&doc);
    temp_remove(folder);
    return st;
}

Test(experience, prompts_of_json_lines_are_under_the_key_prompt)
{
    static const char *const expected[] = {"a", "two\nlines", "x"};
    exo_prompts *p = NULL;
    exo_err err = {0};
    exo_status st = read_json(&p,
                              "{\"prompt\": \"a\", \"id\": 7}\r\n\n"
                              "{\"answer\": \"b\", \"prompt\": \"two\\nlines\"}\n"
                              "{\"prompt\": \"x\"}",
                              &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    cr_assert_eq(exo_prompts_count(p), 3);
    for (size_t i = 0; i < 3; i++) {
        const exo_prompt prompt = exo_prompts_at(p, i);
        cr_assert_eq(prompt.length, strlen(expected[i]));
        for (size_t k = 0; k < prompt.length; k++)
            cr_expect_eq(prompt.tokens[k], expected[i][k]);
    }
    exo_prompts_free(&p);
}

Test(experience, a_wrong_json_line_of_prompts_is_named)
{
    static const char *const wrong[][2] = {
        {"{\"prompt\": \"a\"}\n{\"Prompt\": \"b\"}", "p.jsonl:2: \"prompt\" is missing"},
        {"{\"prompt\": [{\"role\": \"user\"}]}", "p.jsonl:1: \"prompt\" is missing, or is no text"},
        {"{\"prompt\": \"\"}", "p.jsonl, prompt 1: a prompt without tokens"},
        {"\nWhat is 2 + 2?", "p.jsonl:2:4: no JSON object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        exo_prompts *p = NULL;
        exo_err err = {0};
        cr_expect_eq(read_json(&p, wrong[i][0], &err), EXO_INVAL, "%s", wrong[i][0]);
        cr_expect_not_null(strstr(err.text, wrong[i][1]), "%s", err.text);
    }
}

Test(experience, wrong_prompts_are_refused_with_their_place)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{}", "'prompts' is missing"},
        {"{prompts: {}}", "one of path, lines and tokens"},
        {"{prompts: {lines: [a], tokens: [[1]]}}", "one of path, lines and tokens"},
        {"{prompts: {tokens: [[1, -2]]}}", "must be a number"},
        {"{prompts: {tokens: [[1, x]]}}", "must be a number"},
        {"{prompts: {tokens: [[]]}}", "a list of token numbers"},
        {"{prompts: {tokens: []}}", "0 prompts"},
        {"{prompts: {lines: [[a]]}}", "must be a text"},
        {"{prompts: {path: /nowhere/prompts.txt}}", "/nowhere/prompts.txt"},
        {"{prompts: {lines: [a], shufle: false}}", "shufle"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        exo_prompts *p = NULL;
        exo_config_doc *doc = NULL;
        exo_err err = {0};
        cr_expect_neq(read_prompts(&p, &doc, wrong[i].text, &err), EXO_OK, "%s", wrong[i].text);
        cr_expect_not_null(strstr(err.text, wrong[i].says), "%s: %s", wrong[i].text, err.text);
        cr_expect_null(p);
        exo_config_free(&doc);
    }
}

/* --- Rewards ---------------------------------------------------------------------------------- */

static exo_status
infinite(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    (void)self;
    (void)answer;
    (void)err;
    *out = INFINITY;
    return EXO_OK;
}

static const exo_reward_class infinite_class = {.name = "infinite", .score = infinite};

Test(experience, a_reward_scores_and_must_be_finite)
{
    const int32_t tokens[] = {4, 5, 5, 5};
    const exo_answer answer = {.tokens = tokens, .length = 4};
    exo_config_doc *doc = NULL;
    exo_reward *r = NULL;
    exo_err err = {0};
    double score = 0;
    cr_assert_eq(
        exo_config_parse(&doc, "test",
                         "{reward: {name: share, token: 5}, other: infinite, third: "
                         "shares, fourth: {name: share, token: 5, tocken: 3}, fifth: share}",
                         &err),
        EXO_OK);
    exo_config *root = exo_config_root(doc);
    cr_assert_eq(exo_reward_read(&r, root, "reward", &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_reward_score(r, &answer, &score, &err), EXO_OK);
    cr_expect_eq(score, 0.75);
    cr_expect(!exo_reward_batches(r));
    exo_reward_free(&r);
    cr_assert_eq(exo_reward_class_register(&infinite_class, &err), EXO_OK);
    cr_assert_eq(exo_reward_read(&r, root, "other", &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_reward_score(r, &answer, &score, &err), EXO_FAILED);
    exo_reward_free(&r);
    cr_expect_eq(exo_reward_read(&r, root, "third", &err), EXO_INVAL);
    cr_expect(strstr(err.text, "did you mean 'share'"), "%s", err.text);
    cr_expect_eq(exo_reward_read(&r, root, "fourth", &err), EXO_INVAL);
    cr_expect(strstr(err.text, "tocken"), "%s", err.text);
    cr_expect_eq(exo_reward_read(&r, root, "fifth", &err), EXO_INVAL);
    cr_expect_eq(exo_reward_read(&r, root, "sixth", &err), EXO_INVAL);
    exo_config_free(&doc);
}

/* --- What was learned from -------------------------------------------------------------------- */

Test(experience, an_item_is_claimed_once)
{
    exo_claims c = {0};
    bool is_new = false;
    for (uint64_t i = 0; i < 3000; i += 7) {
        cr_expect_eq(exo_claims_claim(&c, i, &is_new, NULL), EXO_OK);
        cr_expect(is_new);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        cr_expect_eq(exo_claims_claim(&c, i, &is_new, NULL), EXO_OK);
        cr_expect_eq(is_new, i % 7 != 0);
    }
    exo_claims_release(&c);
}

Test(experience, a_number_far_from_the_others_is_no_claim)
{
    exo_err err = {0};
    const uint64_t wrong[] = {UINT64_MAX, 1 << 30, INT32_MAX};
    exo_claims c = {0};
    bool is_new = false;
    cr_expect_eq(exo_claims_claim(&c, 5, &is_new, NULL), EXO_OK);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(exo_claims_claim(&c, wrong[i], &is_new, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "item 2147483647 comes"), "%s", err.text);
    cr_expect_leq(c.bytes, 64);
    exo_claims_release(&c);
    cr_expect_eq(exo_claims_claim(&c, INT32_MAX, &is_new, NULL), EXO_OK, "the first may be any");
    cr_expect_eq(exo_claims_claim(&c, INT32_MAX - 1000, &is_new, NULL), EXO_OK);
    cr_expect(is_new);
    exo_claims_release(&c);
}
