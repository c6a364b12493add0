/* From JSON values to the library's renderer. */
#include "template_text.h"

#include <stdlib.h>
#include <string.h>

int cli_render(const cli_bytes *template_text, const json_t *vars, const skv_vocab *vocab,
               cli_bytes *out)
{
    char *json = json_dumps(vars, JSON_COMPACT);
    if (json == NULL) return cli_fail("variables of the template: not valid UTF-8");
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_render(template_text->data, template_text->n, json, strlen(json),
                                         vocab, &text, &n, &err);
    free(json);
    if (status != SKV_OK) return cli_check(status, &err);
    out->data = cli_alloc(n + 1, 1);
    memcpy(out->data, text, n);
    out->n = n;
    skv_text_free(text);
    return CLI_DONE;
}
