/*
 * libFuzzer target: template bytes, rendered with one fixed set of variables under small limits.
 * Whatever the bytes, parsing and rendering end soon, with a text or one line of error.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
    " {\"role\": \"user\", \"content\": \"2 < 3 & \\u00e4\\ud83d\\ude42?\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c1\", \"function\":"
    " {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2.5}}}]},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"3.5\"}]}],"
    " \"tools\": [{\"function\": {\"name\": \"add\", \"parameters\": {\"required\": [\"a\"]}}}],"
    " \"documents\": null, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
    " \"add_generation_prompt\": true, \"s\": \"some text\\nin lines\", \"i\": -7, \"f\": 1e300}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const skv_limits limits = {.work = 1000000, .bytes = 8 << 20, .depth = 64};
    skv_budget budget;
    skv_budget_init(&budget, &limits);
    skv_buf out, marks;
    const skv_template_options options = {
        .budget = &budget, .now = 1753272000, .own_mark = {"te", 2}, .marks = &marks};
    skv_template *t = NULL;
    skv_error err = {SKV_OK, ""};
    skv_buf_init(&out, 1 << 20);
    skv_buf_init(&marks, 1 << 26);
    skv_status status =
        skv_template_parse((const char *)data, size, "chat template", &budget, &t, &err);
    if (status == SKV_OK)
        status = skv_template_render(t, variables, strlen(variables), &options, &out, &err);
    if (status != err.status) abort();
    const size_t n = status == SKV_OK ? marks.size / sizeof(size_t) : 0;
    for (size_t i = 0, at, before = 0; i < n; i++, before = at) {
        memcpy(&at, marks.data + i * sizeof at, sizeof at);
        if (at > out.size || (i > 0 && at <= before) || n % 2 != 0) abort();
    }
    skv_buf_release(&marks);
    skv_template_free(t);
    skv_buf_release(&out);
    return 0;
}
