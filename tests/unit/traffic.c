/* Traffic: its columns, and its forms in JSON. Read next: runtime/report/traffic_json.h. */
#include <criterion/criterion.h>
#include <string.h>

#include "report/traffic_json.h"

static const exo_traffic one = {.messages = 1,
                                .items = 2,
                                .payload_bytes = 3,
                                .encoded_bytes = 4,
                                .wire_bytes = 5,
                                .drops = 6,
                                .send_blocked = 4250000000,
                                .recv_blocked = 8250000000,
                                .device_bytes = 7};

Test(traffic, each_column_is_a_field)
{
    exo_traffic sum = one;
    exo_traffic_add(&sum, &one);
    cr_expect_eq(sum.messages, 2);
    cr_expect_eq(sum.drops, 12);
    cr_expect_eq(sum.recv_blocked, 16500000000);
    exo_traffic copy = {0};
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        exo_traffic_set(&copy, i, exo_traffic_get(&one, i));
    cr_expect_arr_eq(&copy, &one, sizeof one);
    uint64_t columns[EXO_TRAFFIC_COLUMNS];
    exo_traffic_put(&one, columns);
    copy = exo_traffic_of(columns);
    cr_expect_arr_eq(&copy, &one, sizeof one);
}

Test(traffic, has_one_codec)
{
    static const struct {
        exo_traffic_form form;
        const char *text;
    } forms[] = {
        {EXO_TRAFFIC_SECONDS,
         "{\"messages\": 1, \"items\": 2, \"payload_bytes\": 3, \"encoded_bytes\": 4, "
         "\"wire_bytes\": 5, \"drops\": 6, \"send_blocked_s\": 4.25, \"recv_blocked_s\": 8.25, "
         "\"device_bytes\": 7}"},
        {EXO_TRAFFIC_NUMBERS, "[1, 2, 3, 4, 5, 6, 4250000000, 8250000000, 7]"},
        {EXO_TRAFFIC_CALLS,
         "{\"messages\": 1, \"calls\": 2, \"payload_bytes\": 3, \"encoded_bytes\": 4, "
         "\"wire_bytes\": 5, \"waited_s\": 8.25}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        json_t *json = exo_traffic_json(&one, forms[i].form);
        char text[512] = "";
        cr_assert_lt(json_dumpb(json, text, sizeof text, 0), sizeof text);
        cr_expect_str_eq(text, forms[i].text);
        exo_traffic back = exo_traffic_of_json(json, forms[i].form), want = one;
        if (forms[i].form == EXO_TRAFFIC_CALLS)
            want.drops = 0, want.send_blocked = 0, want.device_bytes = 0;
        cr_expect_arr_eq(&back, &want, sizeof want);
        json_decref(json);
    }
}

Test(traffic, what_is_no_number_is_none)
{
    json_t *json = json_pack("{s:i, s:s, s:f, s:f}", "messages", -5, "items", "many",
                             "send_blocked_s", 1e300, "recv_blocked_s", -1.0);
    exo_traffic none = {0}, read = exo_traffic_of_json(json, EXO_TRAFFIC_SECONDS);
    cr_expect_arr_eq(&read, &none, sizeof none);
    read = exo_traffic_of_json(NULL, EXO_TRAFFIC_NUMBERS);
    cr_expect_arr_eq(&read, &none, sizeof none);
    json_decref(json);
}
