/* Chat templates by name, for models whose files bring none. */
#include "runtime.h"

#include <string.h>

/* Of the first message, where it is a system's: its text, for templates without such a role. */
#define FOLD_SYSTEM                                                                                \
    "{% set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}"    \
    "{% set turns = messages[1:] if system else messages %}"

static const struct {
    const char *name, *text;
} rows[] = {
    {"chatml", "{% for m in messages %}"
               "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3", "{{ bos_token }}{% for m in messages %}"
               "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
               "{{ m.content + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"mistral", FOLD_SYSTEM "{{ bos_token }}{% for m in turns %}{% if m.role == 'assistant' %}"
                            "{{ ' ' + m.content + eos_token }}{% else %}"
                            "{{ '[INST] ' + (system if loop.first else '') + m.content }}"
                            "{{ ' [/INST]' }}{% endif %}{% endfor %}"},
    {"gemma",
     FOLD_SYSTEM "{{ bos_token }}{% for m in turns %}"
                 "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
                 "{{ (system if loop.first else '') + m.content + '<end_of_turn>\\n' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"phi3", "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"zephyr", "{% for m in messages %}"
               "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"vicuna", FOLD_SYSTEM "{{ bos_token + system }}{% for m in turns %}"
                           "{% if m.role == 'assistant' %}"
                           "{{ 'ASSISTANT: ' + m.content + eos_token + '\\n' }}{% else %}"
                           "{{ 'USER: ' + m.content + '\\n' }}{% endif %}{% endfor %}"
                           "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"},
};

const char *cli_template_text(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) return rows[i].text;
    }
    return NULL;
}

int cli_read_template(const char *name_or_file, cli_bytes *out)
{
    const char *text = cli_template_text(name_or_file);
    if (!text) return cli_read_file(name_or_file, out);
    out->n = strlen(text);
    out->data = cli_alloc(out->n + 1, 1);
    memcpy(out->data, text, out->n + 1);
    return CLI_DONE;
}
