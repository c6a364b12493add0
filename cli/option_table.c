/* Every option of every command, once. */
#include "option_table.h"

#include "options.h"

#define ON(command) (UINT32_C(1) << CLI_##command)
/* Those that run a model. */
#define RUNS                                                                                       \
    (ON(SIMILARITY) | ON(GENERATE) | ON(CHAT) | ON(SCORE) | ON(BENCH) | ON(EVAL) | ON(SERVE) |     \
     ON(COMPARE))
#define INPUTS (ON(GENERATE) | ON(SCORE) | ON(TOKENIZE))
#define DOCUMENTS (ON(DOCUMENTS) | ON(VOCAB))
#define SAMPLES (ON(GENERATE) | ON(CHAT))
#define LEARNS (ON(DISTILL) | ON(TRAIN))
#define ALL (ON(COMMAND_COUNT) - 1)
#define FIELD(name) offsetof(cli_options, name)

enum { TOKENS_MAX = 1 << 28, THREADS_MAX = 1024 };

static const cli_option rows[] = {
    /* Input. */
    {"-p", "TEXT", INPUTS | ON(COMPARE), CLI_OPTION_TEXT, FIELD(prompt), .help = "the text"},
    {"--file", "F", INPUTS | ON(COMPARE), CLI_OPTION_TEXT, FIELD(file),
     .help = "a file with the text, '-' for standard input"},
    {"--ids-file", "F", INPUTS, CLI_OPTION_TEXT, FIELD(ids_file),
     .help = "a JSON array of token ids, taken as they are"},
    {"--decode", NULL, ON(TOKENIZE), CLI_OPTION_FLAG, FIELD(decode),
     .help = "the text of the ids in --ids-file"},
    {"--add-special", NULL, ON(TOKENIZE), CLI_OPTION_FLAG, FIELD(add_special),
     .help = "add what the tokenizer adds by itself, usually BOS"},
    {"--parse-special", NULL, ON(TOKENIZE) | ON(GENERATE), CLI_OPTION_FLAG, FIELD(parse_special),
     .help = "special tokens written in the text become their ids"},
    {"--text", "FILE", ON(SIMILARITY), CLI_OPTION_TEXT, FIELD(text_file),
     .help = "the text to measure on"},
    {"--text", "FILE", ON(TRANSFORM), CLI_OPTION_TEXTS, FIELD(data),
     .help = "ridge: text, .jsonl, or token ids (.u16, .u32, .json); may come again"},
    {"--messages", "F", ON(RENDER), CLI_OPTION_TEXT, FIELD(messages_file),
     .help = "JSON messages of the conversation"},
    {"--tools", "F", ON(RENDER), CLI_OPTION_TEXT, FIELD(tools_file), .help = "a JSON array"},
    {"--vars", "F", ON(RENDER), CLI_OPTION_TEXT, FIELD(vars_file),
     .help = "a JSON object of further variables"},
    {"--add-generation-prompt", NULL, ON(RENDER), CLI_OPTION_FLAG, FIELD(add_generation_prompt),
     .help = "end with what begins the assistant's answer"},
    {"--system", "TEXT", ON(CHAT), CLI_OPTION_TEXT, FIELD(system), .help = "the system prompt"},
    {"--template", "FILE", ON(CHAT) | ON(SERVE), CLI_OPTION_TEXT, FIELD(template_file),
     .help = "a chat template instead of the model's own"},
    {"--raw", NULL, ON(CHAT), CLI_OPTION_FLAG, FIELD(raw),
     .help = "no chat template: the model continues the bare text"},

    /* Generation. */
    {"-n", "N", SAMPLES, CLI_OPTION_SIZE, FIELD(n_tokens), 1, TOKENS_MAX,
     .help = "most tokens to generate (generate: 128)"},
    {"--temp", "T", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.temperature), 0, 1000,
     .help = "temperature; 0: the most likely token (0)"},
    {"--top-k", "K", SAMPLES, CLI_OPTION_SIZE, FIELD(sampling.top_k), 0, TOKENS_MAX,
     .help = "sample from the K most likely tokens; 0: all (0)"},
    {"--top-p", "P", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.top_p), 0, 1, .open_min = true,
     .help = "from the fewest tokens with probability P together (1)"},
    {"--min-p", "P", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.min_p), 0, 1, .open_max = true,
     .help = "from tokens with this share of the best one's probability (0)"},
    {"--repeat-penalty", "X", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.repetition_penalty), 0,
     1000, .open_min = true, .help = "divides the logits of tokens seen before (1)"},
    {"--presence-penalty", "X", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.presence_penalty), -1000,
     1000, .help = "subtracted once from tokens generated before (0)"},
    {"--frequency-penalty", "X", SAMPLES, CLI_OPTION_NUMBER, FIELD(sampling.frequency_penalty),
     -1000, 1000, .help = "subtracted for each time a token was generated (0)"},
    {"--seed", "S", SAMPLES | DOCUMENTS, CLI_OPTION_SEED, FIELD(sampling.seed),
     .help = "of what is drawn; same seed and threads, same tokens (0)"},
    {"--stop", "TEXT", SAMPLES, CLI_OPTION_TEXTS, FIELD(stops),
     .help = "end before this text; may be given again"},
    {"--ignore-eos", NULL, ON(GENERATE), CLI_OPTION_FLAG, FIELD(ignore_eos),
     .help = "go on after tokens that end a text"},
    {"--json-object", NULL, ON(GENERATE), CLI_OPTION_FLAG, FIELD(json_object),
     .help = "the answer is a JSON object"},
    {"--json-schema", "FILE", ON(GENERATE), CLI_OPTION_TEXT, FIELD(schema_file),
     .help = "the answer is JSON that follows this schema"},
    {"--regex", "R", ON(GENERATE), CLI_OPTION_TEXT, FIELD(regex),
     .help = "the answer matches this regular expression as a whole"},
    {"--grammar", "FILE", ON(GENERATE), CLI_OPTION_TEXT, FIELD(grammar_file),
     .help = "the answer follows these rules (GBNF)"},

    /* SwiftKV's form. */
    {"--kv-layers", "L", ON(INFO) | ON(TRANSFORM) | ON(BENCH), CLI_OPTION_SIZE, FIELD(kv_layers), 1,
     1 << 16, .help = "SwiftKV: layers from L on take keys and values from layer L - 1's output"},
    {"--group", "G", ON(INFO) | ON(TRANSFORM) | ON(BENCH), CLI_OPTION_SIZE, FIELD(group), 1,
     1 << 16, .help = "AcrossKV: G layers share their keys and values (1)"},
    {"--init", "copy|ridge", ON(TRANSFORM), CLI_OPTION_CHOICE, FIELD(init),
     .help = "new k and v projections: copied, or fitted to a text (copy)"},
    {"--tokens", "N", ON(TRANSFORM), CLI_OPTION_SIZE, FIELD(text_tokens), 1, TOKENS_MAX,
     .help = "ridge: read at most N tokens (32 times the width, 2^15 to 2^17)"},
    {"--ridge", "X", ON(TRANSFORM), CLI_OPTION_NUMBER, FIELD(ridge), 0, 1e6,
     .help = "ridge: weight of the penalty, of the mean square of the input (0.1, more for a short "
             "text)"},
    {"--ridge-to", "copy|zero", ON(TRANSFORM), CLI_OPTION_CHOICE, FIELD(ridge_to),
     .help = "ridge: what the penalty pulls towards (copy)"},
    {"--context", "N", ON(INFO), CLI_OPTION_SIZE, FIELD(cost_context), 1, TOKENS_MAX,
     .help = "tokens of context to count the attention for (the model's)"},
    {"--as-papers", NULL, ON(INFO), CLI_OPTION_FLAG, FIELD(as_papers),
     .help = "count as the papers' tables: vocabulary twice, attention in 2^30"},

    /* Measuring. */
    {"--preset", "NAME", ON(BENCH), CLI_OPTION_TEXT, FIELD(preset),
     .help = "a published shape with random weights"},
    {"--prompt", "N,...", ON(BENCH), CLI_OPTION_SIZES, FIELD(prompt_lengths), 1, TOKENS_MAX,
     .help = "prompt lengths in tokens (512)"},
    {"--gen", "N", ON(BENCH), CLI_OPTION_SIZE, FIELD(gen_tokens), 1, TOKENS_MAX,
     .help = "tokens to generate (64)"},
    {"--batch", "N", ON(BENCH), CLI_OPTION_SIZE, FIELD(batch), 1, 1024,
     .help = "sequences at once (1)"},
    {"--repeat", "R", ON(BENCH), CLI_OPTION_SIZE, FIELD(repeat), 1, 1000,
     .help = "runs to take the median of (3)"},
    {"--compare", NULL, ON(BENCH), CLI_OPTION_FLAG, FIELD(compare),
     .help = "the unmodified model and SwiftKV side by side"},
    {"--peak", NULL, ON(BENCH), CLI_OPTION_FLAG, FIELD(peak),
     .help = "measure the machine's limits"},

    /* Training. */
    {"--recipe", "F", LEARNS, CLI_OPTION_TEXT, FIELD(recipe),
     .help = "a YAML file with any of the keys below; options go before it"},
    {"--data", "FILE", LEARNS, CLI_OPTION_TEXTS, FIELD(data),
     .help = "text, .jsonl, token ids (.u16, .u32, .json), generate:TASKS, or a source as recipes "
             "have it, '{file: F, weight: 2}'; may come again"},
    {"--stages", "LIST", LEARNS, CLI_OPTION_TEXT, FIELD(stages),
     .help = "stages of the run as recipes have them, '[{steps: 10, seq: 64}, {steps: 20}]'"},
    {"--seq", "T", ON(TRANSFORM), CLI_OPTION_SIZE, FIELD(text_seq), 16, 1 << 20,
     .help = "ridge: longest sequence of the text (the model's context, at most 1024)"},
    {"--from-scratch", NULL, ON(TRAIN), CLI_OPTION_FLAG, FIELD(from_scratch),
     .help = "random weights of the shape in MODEL/config.json: --task scratch"},
    {"--resume", NULL, LEARNS, CLI_OPTION_FLAG, FIELD(resume),
     .help = "go on from the last good checkpoint in OUT"},
    {"--log", "F", LEARNS, CLI_OPTION_TEXT, FIELD(log_file),
     .help = "append one JSON object a step to this file (OUT/log.jsonl)"},
    {"--dry-run", NULL, LEARNS, CLI_OPTION_FLAG, FIELD(dry_run),
     .help = "print parameters, memory and arithmetic of a step, and take none"},

    /* Evaluation. */
    {"--task", "NAME|FILE,...", ON(EVAL), CLI_OPTION_TEXT, FIELD(tasks),
     .help = "tasks of our own (all: every one), .jsonl, .json or .csv files, texts"},
    {"--lengths", "N,...", ON(EVAL), CLI_OPTION_SIZES, FIELD(lengths), 32, 1 << 20,
     .help = "tokens of our own documents (128,512,2048)"},
    {"--count", "N", ON(EVAL), CLI_OPTION_SIZE, FIELD(count), 1, 1 << 24,
     .help = "examples of a file (all), or of each length of ours (100)"},
    {"--depths", "N", ON(EVAL), CLI_OPTION_SIZE, FIELD(depths), 1, 100,
     .help = "columns of the grids, by where the answer stands (10)"},
    {"-n", "N", ON(EVAL) | ON(COMPARE), CLI_OPTION_SIZE, FIELD(n_tokens), 1, TOKENS_MAX,
     .help = "most tokens of an answer (as the task needs)"},
    {"--seed", "S", ON(EVAL) | ON(COMPARE), CLI_OPTION_SEED, FIELD(sampling.seed),
     .help = "of our own documents (0)"},
    {"--prose", "FILE", ON(EVAL) | ON(COMPARE), CLI_OPTION_TEXT, FIELD(prose),
     .help = "text whose sentences surround needles (made-up sentences)"},
    {"--primer", "F", ON(EVAL), CLI_OPTION_TEXT, FIELD(primer),
     .help = "a file whose text stands before every prompt, examples for instance"},
    {"--no-template", NULL, ON(EVAL), CLI_OPTION_FLAG, FIELD(no_template),
     .help = "ask without the model's chat template"},
    {"--reference", "MODEL|teacher", ON(EVAL), CLI_OPTION_TEXT, FIELD(reference),
     .help = "measure the agreement with this model, or with the file's own teacher"},
    {"--log", "F", ON(EVAL), CLI_OPTION_TEXT, FIELD(log_file),
     .help = "append one JSON object an example to this file"},
    {"--resume", NULL, ON(EVAL), CLI_OPTION_FLAG, FIELD(resume),
     .help = "do not ask again what the log tells already"},

    /* Comparison. */
    {"--task", "NAME=W,...", ON(COMPARE), CLI_OPTION_TEXT, FIELD(tasks),
     .help = "tasks of the generated documents, as swiftkv documents has them (report)"},
    {"--lengths", "N", ON(COMPARE), CLI_OPTION_SIZES, FIELD(lengths), 48, 1 << 20,
     .help = "tokens of a document (2048)"},
    {"--count", "N", ON(COMPARE), CLI_OPTION_SIZE, FIELD(count), 1, 1 << 24,
     .help = "documents (5)"},

    /* Generated documents and vocabularies. */
    {"--count", "N", DOCUMENTS, CLI_OPTION_SIZE, FIELD(count), 0, 1e15,
     .help = "documents (documents: 10, vocab: 2000)"},
    {"--first", "I", ON(DOCUMENTS), CLI_OPTION_SEED, FIELD(first),
     .help = "index of the first document (0)"},
    {"--tasks", "NAME=W,...", DOCUMENTS, CLI_OPTION_TEXT, FIELD(tasks),
     .help = "tasks with weights, or stage:copy, stage:lookup, stage:all (stage:all)"},
    {"--tokens-min", "N", DOCUMENTS, CLI_OPTION_SIZE, FIELD(tokens_min), 32, 1 << 20,
     .help = "shortest document (128)"},
    {"--tokens-max", "N", DOCUMENTS, CLI_OPTION_SIZE, FIELD(tokens_max), 32, 1 << 20,
     .help = "longest document (1024)"},
    {"--questions", "N", ON(DOCUMENTS), CLI_OPTION_SIZE, FIELD(questions_max), 1, 4096,
     .help = "most questions of a document (24)"},
    {"--evaluation", NULL, ON(DOCUMENTS), CLI_OPTION_FLAG, FIELD(evaluation),
     .help = "prompt and answer of one question a document, with held-out keys and values"},
    {"--held-out", NULL, ON(DOCUMENTS), CLI_OPTION_FLAG, FIELD(held_out),
     .help = "held-out keys and values in whole documents"},
    {"--vocab", "MODEL", ON(DOCUMENTS), CLI_OPTION_TEXT, FIELD(vocab),
     .help = "count tokens with this model's tokenizer (an estimate)"},
    {"--prose", "FILE", DOCUMENTS, CLI_OPTION_TEXT, FIELD(prose),
     .help = "text whose sentences surround needles (made-up sentences)"},
    {"--size", "N", ON(VOCAB), CLI_OPTION_SIZE, FIELD(vocab_size), 261, 1 << 16,
     .help = "entries of the vocabulary (3072)"},
    {"--data", "FILE", ON(VOCAB), CLI_OPTION_TEXTS, FIELD(data),
     .help = "a text to learn from; may be given again"},

    /* Serving. */
    {"--host", "ADDRESS", ON(SERVE), CLI_OPTION_TEXT, FIELD(host),
     .help = "where to listen (127.0.0.1); elsewhere than on loopback keys are needed"},
    {"--port", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(port), 0, 65535,
     .help = "port; 0: any, it is printed (8080)"},
    {"--api-key-file", "FILE", ON(SERVE), CLI_OPTION_TEXT, FIELD(key_file),
     .help = "API keys, one a line; everything but /health needs one"},
    {"--insecure", NULL, ON(SERVE), CLI_OPTION_FLAG, FIELD(insecure),
     .help = "listen anywhere without keys"},
    {"--name", "NAME", ON(SERVE), CLI_OPTION_TEXT, FIELD(served_name),
     .help = "the model's name for clients (the last part of its path)"},
    {"--kv-tokens", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(kv_tokens), 1, TOKENS_MAX,
     .help = "tokens of KV memory for all requests together (4 contexts)"},
    {"--step-ms", "MS", ON(SERVE), CLI_OPTION_NUMBER, FIELD(step_ms), 1, 60000,
     .help = "about the longest that prompts may delay the next token of an answer (100)"},
    {"--max-running", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(max_running), 1, 1024,
     .help = "answers computed together (32)"},
    {"--max-queue", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(max_queued), 1, 1 << 20,
     .help = "requests that may wait; then 429 (64)"},
    {"--max-queue-tokens", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(max_queued_tokens), 1, TOKENS_MAX,
     .help = "prompt tokens that may wait; then 429 (16 contexts)"},
    {"--queue-timeout", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(queue_seconds), 0, 1e6,
     .open_min = true, .help = "seconds that a request may wait; then 503 (600)"},
    {"--no-prefix-cache", NULL, ON(SERVE), CLI_OPTION_FLAG, FIELD(no_prefix_cache),
     .help = "compute every prompt from its first token"},
    {"--no-text-match", NULL, ON(SERVE), CLI_OPTION_FLAG, FIELD(no_text_match),
     .help = "tokenize answers that come back as text again"},
    {"--no-teacher", NULL, ON(SERVE), CLI_OPTION_FLAG, FIELD(no_teacher),
     .help = "do not load the teacher's weights of a SwiftKV model"},
    {"--connections", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(connections), 1, 1 << 16,
     .help = "connections at once (256)"},
    {"--connections-per-ip", "N", ON(SERVE), CLI_OPTION_SIZE, FIELD(connections_per_ip), 1, 1 << 16,
     .help = "of one address (64)"},
    {"--max-body", "MIB", ON(SERVE), CLI_OPTION_SIZE, FIELD(body_mib), 1, 1024,
     .help = "largest body of a request in MiB; then 413 (32)"},
    {"--header-timeout", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(header_seconds), 0, 1e6,
     .open_min = true, .help = "seconds for a request's header (10)"},
    {"--body-timeout", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(body_seconds), 0, 1e6,
     .open_min = true, .help = "seconds for its body (60)"},
    {"--stall-timeout", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(stall_seconds), 0, 1e6,
     .open_min = true, .help = "seconds that a client may take nothing (30)"},
    {"--ping-interval", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(ping_seconds), 0, 1e6,
     .open_min = true, .help = "seconds between signs of life of a stream without tokens (15)"},
    {"--shutdown-timeout", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(shutdown_seconds), 0, 1e6,
     .help = "seconds for requests in flight once told to end (30)"},
    {"--watchdog", "S", ON(SERVE), CLI_OPTION_NUMBER, FIELD(watchdog_seconds), 0, 1e6,
     .open_min = true, .help = "seconds without a step after which /health fails (30)"},

    /* How a model runs. */
    {"--threads", "N", RUNS | ON(TRANSFORM), CLI_OPTION_SIZE, FIELD(threads), 1, THREADS_MAX,
     .help = "threads (one for each processor)"},
    {"--weights", "auto|bf16|int8|f32", RUNS | ON(TRANSFORM), CLI_OPTION_WEIGHTS, FIELD(weights),
     .help = "how weights are held; auto: f32 for f32 files, else bf16"},
    {"--kv", "auto|bf16|f32|int8|fp8", RUNS | ON(INFO), CLI_OPTION_KV, FIELD(kv),
     .help = "how keys and values are held; auto: f32 with f32 weights "
             "or heads shorter than 32, else bf16"},
    {"--prefill", "auto|full|swiftkv|swiftkv-full|teacher", RUNS, CLI_OPTION_PREFILL,
     FIELD(prefill), .help = "how prompts are read; auto: swiftkv where the model has it"},
    {"--ctx", "N", RUNS, CLI_OPTION_SIZE, FIELD(context), 1, TOKENS_MAX,
     .help = "tokens that a sequence may have"},
    {"--cpu", "best|ref|avx2|avx512|neon", RUNS | ON(TRANSFORM), CLI_OPTION_CHOICE, FIELD(cpu),
     .help = "the instructions to use"},
    {"--chunk", "N", RUNS, CLI_OPTION_SIZE, FIELD(step_tokens), 1, 1 << 20,
     .help = "most tokens of a step (512)"},
    {"--snapkv", "C,w,k", RUNS, CLI_OPTION_LATER, FIELD(snapkv), .help = NULL},

    /* Output. */
    {"--svg", "OUT", ON(SIMILARITY), CLI_OPTION_TEXT, FIELD(svg_file), .help = "write a chart"},
    {"--svg", "FOLDER", ON(EVAL), CLI_OPTION_TEXT, FIELD(svg_file),
     .help = "write grids of length and depth, and curves over the length"},
    {"--json", NULL,
     ON(INFO) | ON(SIMILARITY) | ON(GENERATE) | ON(SCORE) | ON(TOKENIZE) | ON(BENCH) | ON(EVAL) |
         ON(COMPARE),
     CLI_OPTION_FLAG, FIELD(json), .help = "print JSON"},
    {"--list", NULL, ON(HELP), CLI_OPTION_FLAG, FIELD(list_options),
     .help = "every command with its options, for scripts"},
    {"--help", NULL, ALL, CLI_OPTION_FLAG, FIELD(help), .help = "these options"},
    {"-h", NULL, ALL, CLI_OPTION_FLAG, FIELD(help), .help = NULL},
};

const cli_option *cli_option_at(size_t i)
{
    return i < sizeof rows / sizeof rows[0] ? &rows[i] : NULL;
}

bool cli_option_is_common(const cli_option *option)
{
    return (option->commands & RUNS) == RUNS && option->commands != ALL;
}
