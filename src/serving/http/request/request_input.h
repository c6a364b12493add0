/* A generating request's input: prompts, fields, tools, and the form that its answer has to
 * have. */
#ifndef SKV_SERVER_REQUEST_INPUT_H
#define SKV_SERVER_REQUEST_INPUT_H

#include "limits/json_body.h"

/* ---- prompt_input.c: from a request's text to token ids ---- */

typedef struct api_prompt {
    int32_t *ids; /* owned, [n_ids] */
    size_t n_ids;
    char *text; /* owned; NULL: it was given as ids */
    size_t n_text;
    bool add_special;      /* how the text was encoded, */
    skv_text_marks data;   /* owned: and where it is the client's; of the chat template's text */
    bool continues;        /* the answer goes on with its last message */
    bool is_cut;           /* it has more ids than the context holds, and n_ids is one more */
    skv_prompt_text known; /* the result of prompts_recall */
    skv_pin pins[SKV_JOB_PINS]; /* [n_pins]: the parts of the text that stay in the prefix cache */
    size_t n_pins;
} api_prompt;

typedef struct prompt_list {
    api_prompt *at; /* owned, [n] */
    size_t n;
} prompt_list;

/** The field `name` of a request: a text, token ids, or an array of either. parse_special: special
 * tokens in a text become their ids, as in a whole prompt. */
bool prompts_read(const exchange *ex, const json_t *body, const char *name, bool parse_special,
                  prompt_list *out, api_error *error);
void prompts_release(prompt_list *list);
/** Room for n prompts, none of which is there yet. */
bool prompts_create(const exchange *ex, size_t n, prompt_list *out, api_error *error);
/** Texts that continue an answer of ours get the ids of that answer back. */
void prompts_recall(const exchange *ex, prompt_list *list, skv_job_params *job);

/** The chat template's text for "messages" and the other fields that it reads. The text is to be
 * released by rendered_release in any case. */
bool messages_render(const exchange *ex, const json_t *body, rendered_text *out, api_error *error);
void rendered_release(rendered_text *rendered);
/** The same as a prompt, which is not read further than the context can hold. */
bool messages_read(const exchange *ex, const json_t *body, prompt_list *out, api_error *error);
/** The same, but for the text after the last place of `mark`, with the mark. */
bool messages_read_front(const exchange *ex, const json_t *body, const char *mark, prompt_list *out,
                         api_error *error);
/** The same, read to its end: to count it. */
bool messages_read_whole(const exchange *ex, const json_t *body, prompt_list *out,
                         api_error *error);

/** The first of a template's variables that only the server sets; NULL: none is there. */
const char *template_own_var(const json_t *vars);

typedef struct encode_flags {
    bool add_special, parse_special;
    size_t max_ids;             /* the text is read to so many; 0: to its end */
    const skv_text_marks *data; /* borrowed: as in skv_encode_options */
} encode_flags;

/** Ids of a text, which count in the request's budget until text_ids_free. */
bool text_encode(const exchange *ex, const char *text, size_t n, encode_flags flags, int32_t **ids,
                 size_t *n_ids, api_error *error);
void text_ids_free(const exchange *ex, int32_t *ids, size_t n_ids);

/* ---- system_fold.c: templates that know no system message, or none after others ---- */

/** *shown: the prompt has the text of every system message from messages[from] on; some templates
 * leave them out without a word. */
bool system_is_shown(const exchange *ex, const json_t *messages, size_t from, const skv_buf *prompt,
                     bool *shown, api_error *error);
/** Makes the system messages at the beginning one. *any: there were several. */
bool system_join(const exchange *ex, json_t *messages, bool *any, api_error *error);
/** Makes the text of system messages a part of the user's around them. *any: there were some, and
 * messages of the user. */
bool system_fold(const exchange *ex, json_t *messages, bool *any, api_error *error);
/** Puts a turn of the user in front of calls or results that a history begins with: its beginning
 * was cut off. */
bool turns_begin(const exchange *ex, json_t *messages, api_error *error);
/** Joins turns in a row that are of one side, and puts a turn of the user in front of the first one
 * of the assistant. *any: there were such. */
bool turns_join(const exchange *ex, json_t *messages, bool *any, api_error *error);

/*
 * ---- request_params.c: a request's fields beside its prompt ----
 *
 * One table of fields with their types and ranges. A value outside is refused by name and value; a
 * field that is not in the table is ignored.
 */

typedef enum param_api {
    PARAM_COMPLETIONS = 1,
    PARAM_CHAT = 2,
    PARAM_EMBEDDINGS = 4,
} param_api;

typedef struct request_params {
    skv_sampling sampling;
    int64_t max_tokens; /* -1: not given */
    int64_t min_tokens, n, best_of, logprobs, top_logprobs;
    bool seed_given;
    bool stream, include_usage, continuous_usage, return_progress, timings_per_token, echo,
        ignore_eos;
    bool keep_thoughts;  /* thoughts are part of the text */
    bool special_text;   /* special tokens have text too */
    bool wants_logprobs; /* with `n_top` of the most likely */
    size_t n_top;
    const int32_t *top_ids;   /* borrowed, [n_top]: these instead; NULL */
    int64_t dimensions;       /* -1: not given */
    int i_method, i_encoding; /* of "auto|full|teacher", "float|base64" */
    int i_pooling;            /* of "last|mean" */
    int i_reasoning;          /* of "auto|deepseek|none" */
    skv_prefill prefill;
    skv_adapter_use adapters[SKV_ADAPTERS_TOGETHER]; /* as in skv_job_params */
    size_t n_adapters;
    skv_eviction eviction; /* where eviction_given */
    bool eviction_given;
    skv_speculation speculation; /* where speculation_given */
    bool speculation_given;
    double pin_seconds; /* as in skv_job_params */
    uint64_t pin_key;
    skv_pooling pooling;                   /* of an embedding */
    bool stores;                           /* it is read for others */
    skv_text_piece stops[PARAM_STOPS_MAX]; /* they point into the JSON */
    size_t n_stops;
    int32_t *stop_ids; /* owned, [n_stop_ids] */
    size_t n_stop_ids;
    skv_logit_bias *biases; /* owned, [n_biases] */
    size_t n_biases;
} request_params;

/** Reads the members of `body`, which must outlive `out`. */
bool request_params_read(const exchange *ex, const json_t *body, param_api api, request_params *out,
                         api_error *error);
/** The i-th field that request_params_read refuses by name; NULL after the last. */
const char *request_refused_field(size_t i);
/** Whether an answer of at most max_tokens can have the min_tokens that were asked for. */
bool request_check_min(int64_t min_tokens, int64_t max_tokens, api_error *error);
/** Adds a JSON schema for each field of the table to an object, with the server's defaults; false:
 * no memory. */
bool request_params_describe(const skv_sampling *sampling, param_api api, json_t *properties);
void request_params_release(request_params *params);
/** The body as an object; release it with json_decref, whatever is returned. Where there are
 * several models the request takes the one that it names, and waits until it is loaded. */
bool request_body_read(exchange *ex, json_t **out, api_error *error);
/** "model", where a request names one, has to be a name of the one that is served. */
bool request_check_model(const exchange *ex, const json_t *body, api_error *error);
/** As a job has them, but for its prompt and max_tokens. */
skv_job_params request_params_job(const exchange *ex, const request_params *params);

/*
 * ---- tool_request.c ----
 *
 * "tools" and "tool_choice" of a chat, the parts that a template and a grammar need of them, and
 * the calls of earlier turns.
 */

typedef enum tool_choice {
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_NONE,
    TOOL_CHOICE_REQUIRED,
    TOOL_CHOICE_NAMED
} tool_choice;

/* The kind of a function in the request. */
typedef struct tool_origin {
    bool custom;        /* a custom tool: its only argument is a text (custom_input.h) */
    size_t n_namespace; /* length of the namespace before "__" in the name; 0: none */
} tool_origin;

typedef struct tool_request {
    json_t *tools;        /* owned: as templates want them; NULL: none */
    const char **names;   /* owned, [n]: they point into `tools` */
    tool_origin *origins; /* owned, [n] */
    /* Owned: for each tool an object with the types of its parameters; NULL: calls tell them. */
    json_t *types;
    size_t n;
    tool_choice choice;
    size_t i_named; /* of NAMED */
    bool parallel;  /* several calls in one answer */
    bool strict;    /* some function's arguments have to follow its schema */
} tool_request;

/** Reads "tools", "tool_choice" and "parallel_tool_calls" of a chat's body. */
bool tool_request_read(const exchange *ex, const json_t *body, tool_request *out, api_error *error);
/** The parts of their schemas that reading calls of these tools needs; counts in the request's
 * budget. */
bool tool_request_read_types(const exchange *ex, tool_request *out, api_error *error);
void tool_request_release(tool_request *request);

/** Finds where a function of this name comes from; NULL: there is none. */
const tool_origin *tool_request_origin(const tool_request *request, const char *name, size_t n);

/** The type of a part or a tool, if it is a plain word, as fits into a header and a text. */
const char *part_type(const json_t *part);
/* The text that the model reads instead of a part of a tool's result that is no text: its type. */
#define PART_LEFT_OUT "[%.40s: left out, this model reads text only]"

/** Adds `tools` to a template's variables, unless the answer shall call none. */
bool tool_request_vars(const exchange *ex, const json_t *body, json_t *vars, api_error *error);
/** Gives a message the form that templates expect: arguments of calls as objects, content as a
 * text. */
bool tool_message_tidy(const exchange *ex, json_t *message, size_t i, api_error *error);

/** Whether a template renders nothing of the tools that it is given, or fails over them. */
bool tool_template_ignores(const skv_vocab *vocab, const char *text, size_t n);
/** The form of its calls: `signs`, which its text suggests, unless another form's reader leaves
 * less of its calls as text. */
skv_call_syntax tool_template_calls(const skv_vocab *vocab, const char *text, size_t n,
                                    skv_call_syntax signs);
enum { EFFORTS_ALL = 0x3f };

/** The words that it takes for how much the model shall think, as bits. */
unsigned tool_template_efforts(const skv_vocab *vocab, const char *text, size_t n);
/** Gives variables the names and words that the template takes: those for whether and how much the
 * model shall think. */
bool tool_template_name_vars(const exchange *ex, json_t *vars, api_error *error);
/** The marks around the thoughts that it writes; NONE: it writes none, or with other marks. */
skv_thought_marks tool_template_thoughts(const skv_vocab *vocab, const char *text, size_t n);
/** The text that it puts around an answer. */
answer_frame tool_template_frame(const skv_vocab *vocab, const char *text, size_t n,
                                 skv_thought_marks thinks);
void answer_frame_release(answer_frame *frame);
/** Whether it writes messages of the role developer, after a system message too. Its text alone
 * does not tell: some only have a mark of that name. */
bool tool_template_knows_developer(const skv_vocab *vocab, const char *text, size_t n);
/** Its way with the calls of earlier turns. */
tool_habits tool_template_habits(const skv_vocab *vocab, const char *text, size_t n);
/** Splits a message of several calls into one for each, followed by its result (tool_turns.c). */
bool tool_turns_split(const exchange *ex, json_t *messages, api_error *error);
/** Gives parameters of functions without a description an empty one; false: all have one, or no
 * memory. */
bool tool_turns_describe(const exchange *ex, json_t *tools);
/** Gives calls and results ids of nine letters and digits (tool_ids.c). */
bool tool_ids_shorten(const exchange *ex, json_t *messages, api_error *error);
/** Puts calls and results into texts that the template leaves out. */
bool tool_generic_history(const exchange *ex, json_t *messages, api_error *error);
/** Puts all calls into texts, and results if that is wanted; false: there are none, or no memory.
 */
bool tool_generic_plain(const exchange *ex, json_t *messages, bool results, api_error *error);
/** Puts tools, calls and results into texts, where the template knows no calls (tool_generic.c). */
bool tool_generic_render(const exchange *ex, const json_t *tools, json_t *messages,
                         api_error *error);
/** A skv_reply_types_fn for a tool_request. */
unsigned tool_request_types(const void *functions, const char *function, size_t n_function,
                            const char *parameter, size_t n_parameter);

/** Whether the answer has to be calls. */
bool tool_request_forces(const tool_request *request);
/** Whether calls have to follow a grammar, forced or not. */
bool tool_request_constrains(const exchange *ex, const tool_request *request);
/** The grammar (SKV_GRAMMAR_PARTS) of such an answer, to be freed with skv_text_free. */
bool tool_request_grammar(const exchange *ex, const tool_request *request, bool in_thought,
                          char **text, size_t *n, api_error *error);

/* ---- constrain.c: constraints on tokens from response_format and similar fields ---- */

/** Fills *out from the request's fields; out->begin stays NULL when there is none. The job that
 * it is given to takes it over; without one generation_release frees it. lead: the text in front
 * of the part that the constraint applies to (skv_grammar_source). */
bool constrain_read(exchange *ex, const json_t *body, skv_text_piece lead, skv_constraint *out,
                    api_error *error);
/** As constrain_read, with the grammar of tool_request_grammar, for an answer that must call
 * functions. `out` is the result of constrain_read; setting a second constraint fails. */
bool constrain_calls(exchange *ex, const char *text, size_t n, skv_constraint *out,
                     api_error *error);

/** Makes the data that all constraints share: the bytes of the model's tokens. Engine and
 * vocabulary must be set. */
bool constrain_start(server_model *model, char *error);
/** Frees it, after the last job has been freed. */
void constrain_stop(server_model *model);

#endif
