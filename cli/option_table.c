/* Every option of every command, once. */
#include "options.h"

#include "common/sampling_fields.h"
#include "skv/ranks.h"
#include "skv/serve.h"

#define ON(command) (UINT32_C(1) << CLI_##command)
/* Those that run a model. */
#define RUNS                                                                                       \
    (ON(SIMILARITY) | ON(GENERATE) | ON(CHAT) | ON(SCORE) | ON(BENCH) | ON(EVAL) | ON(SERVE) |     \
     ON(COMPARE))
/* Those that generate. */
#define DRAFTS (ON(GENERATE) | ON(CHAT) | ON(BENCH) | ON(COMPARE) | ON(EVAL) | ON(SERVE))
#define INPUTS (ON(GENERATE) | ON(SCORE) | ON(TOKENIZE))
#define DOCUMENTS (ON(DOCUMENTS) | ON(VOCAB))
#define SAMPLES (ON(GENERATE) | ON(CHAT))
/* Those that take a model's name. */
#define NAMES                                                                                      \
    (RUNS | ON(INFO) | ON(DOCTOR) | ON(TRANSFORM) | ON(QUANTIZE) | ON(TOKENIZE) | ON(RENDER) |     \
     ON(CACHE) | ON(TUNE) | ON(DISTILL) | ON(TRAIN))
#define LEARNS (ON(DISTILL) | ON(TRAIN))
#define ALL (ON(COMMAND_COUNT) - 1)
#define FIELD(name) offsetof(cli_options, name)
#define OPTION(commands, name, argument, kind, member, ...)                                        \
    {                                                                                              \
        commands,                                                                                  \
        {                                                                                          \
            name, argument, SKV_FIELD_##kind, FIELD(member), __VA_ARGS__                           \
        }                                                                                          \
    }

enum { TOKENS_MAX = 1 << 28, THREADS_MAX = 1024 };

static const cli_option rows[] = {
    /* Input. */
    OPTION(INPUTS | ON(COMPARE), "-p", "TEXT", TEXT, prompt, .help = "the text"),
    OPTION(INPUTS | ON(COMPARE), "--file", "F", TEXT, file,
           .help = "a file with the text, '-' for standard input"),
    OPTION(INPUTS, "--ids-file", "F", TEXT, ids_file, .help = "a JSON array of token ids"),
    OPTION(ON(TOKENIZE), "--decode", NULL, FLAG, decode,
           .help = "the text of the ids in --ids-file"),
    OPTION(ON(TOKENIZE), "--add-special", NULL, FLAG, add_special,
           .help = "add the tokenizer's own special tokens, usually BOS"),
    OPTION(ON(TOKENIZE) | ON(GENERATE), "--parse-special", NULL, FLAG, parse_special,
           .help = "recognise special tokens in the text"),
    OPTION(ON(SIMILARITY), "--text", "FILE", TEXT, text_file, .help = "the text to measure on"),
    OPTION(ON(TRANSFORM), "--text", "FILE", PARSED, data, .parse = cli_parse_texts,
           .help = "ridge and --exit-words: text, .jsonl, or token ids (.u16, .u32, .json); may be "
                   "repeated"),
    OPTION(ON(RENDER), "--messages", "F", TEXT, messages_file,
           .help = "the conversation as JSON messages"),
    OPTION(ON(RENDER), "--tools", "F", TEXT, tools_file, .help = "a JSON array"),
    OPTION(ON(RENDER), "--vars", "F", TEXT, vars_file, .help = "a JSON object with more variables"),
    OPTION(ON(RENDER), "--add-generation-prompt", NULL, FLAG, add_generation_prompt,
           .help = "end with the beginning of the assistant's answer"),
    OPTION(ON(CHAT), "--system", "TEXT", TEXT, system, .help = "the system prompt"),
    OPTION(ON(CHAT) | ON(SERVE), "--allow-special-text", NULL, FLAG, allow_special_text,
           .help = "special tokens that are written in messages, results and documents become "
                   "their ids, so that a text can end a turn or begin one (they are letters)"),
    OPTION(ON(CHAT) | ON(SERVE) | ON(CACHE), "--template", "FILE|NAME", TEXT, template_file,
           .help =
               "a chat template instead of the model's own: a file, or chatml, llama3, mistral, "
               "gemma, phi3, zephyr, vicuna"),
    OPTION(ON(CHAT), "--raw", NULL, FLAG, raw,
           .help = "use no chat template: continue the plain text"),

    /* Generation. */
    OPTION(SAMPLES, "-n", "N", SIZE, n_tokens, 1, SKV_ANSWER_TOKENS_MAX,
           .help = "most tokens to generate (generate: 128)"),
    {SAMPLES, {.name = NULL}}, /* replaced by the fields of sampling */
    OPTION(DOCUMENTS, "--seed", "S", SEED, sampling.seed, .initial = "0", .help = "random seed"),
    OPTION(SAMPLES, "--stop", "TEXT", PARSED, stops, .parse = cli_parse_texts,
           .help = "end before this text; may be repeated"),
    OPTION(ON(GENERATE), "--ignore-eos", NULL, FLAG, ignore_eos,
           .help = "continue after end-of-sequence tokens"),
    OPTION(ON(GENERATE), "--json-object", NULL, FLAG, json_object,
           .help = "the answer is a JSON object"),
    OPTION(ON(GENERATE), "--json-schema", "FILE", TEXT, schema_file,
           .help = "the answer is JSON that follows this schema"),
    OPTION(ON(GENERATE), "--regex", "R", TEXT, regex,
           .help = "the answer matches this regular expression as a whole"),
    OPTION(ON(GENERATE), "--grammar", "FILE", TEXT, grammar_file,
           .help = "the answer follows these rules (GBNF)"),

    /* SwiftKV's form. */
    OPTION(ON(INFO) | ON(TRANSFORM) | ON(BENCH) | ON(SERVE), "--kv-layers", "L", SIZE, kv_layers, 1,
           1 << 16,
           .help = "SwiftKV: layers from L on take keys and values from layer L - 1's output"),
    OPTION(ON(INFO) | ON(TRANSFORM) | ON(BENCH) | ON(SERVE), "--group", "G", SIZE, group, 1,
           1 << 16, .help = "AcrossKV: G layers share their keys and values (1)"),
    OPTION(ON(TRANSFORM), "--keep-layers", "I,...|lp-0.25|lp-0.50|lp-0.75", TEXT, keep_layers,
           .help = "write an ordinary model with only these layers instead"),
    OPTION(ON(TRANSFORM), "--exit-words", "N", SIZE, exit_words, 1, 1 << 24,
           .help = "cut the exit head of a SwiftKV model to N tokens, those most frequent in "
                   "--text, so that drafting reads less of it"),
    OPTION(ON(BENCH), "--exit-words", "N", SIZE, exit_words, 1, 1 << 24,
           .help = "presets: an exit head of N tokens for --speculate self (all)"),
    OPTION(ON(TRANSFORM), "--init", "copy|ridge", WORD, init,
           .help = "new k and v projections: copied, or fitted to a text (copy)"),
    OPTION(ON(TRANSFORM), "--tokens", "N", SIZE, text_tokens, 1, TOKENS_MAX,
           .help = "ridge: read at most N tokens (32 times the width, 2^15 to 2^17)"),
    OPTION(ON(TRANSFORM), "--ridge", "X", NUMBER, ridge, 0, 1e6,
           .help = "ridge: weight of the penalty, of the mean square of the input (0.1, more for a "
                   "short text)"),
    OPTION(ON(TRANSFORM), "--ridge-to", "copy|zero", WORD, ridge_to,
           .help = "ridge: penalise the distance to these weights (copy)"),
    OPTION(ON(QUANTIZE), "--weights", "int4|int8", PARSED, weights, .parse = cli_parse_weights,
           .help = "bits of a weight"),
    OPTION(ON(QUANTIZE), "--group", "32|128", SIZE, group, 1, 1 << 16,
           .help = "weights of a row that share a scale (32)"),
    OPTION(ON(QUANTIZE), "--text", "FILE", PARSED, data, .parse = cli_parse_texts,
           .help = "quantise by the model's activations on this text (round to nearest); may be "
                   "repeated"),
    OPTION(ON(QUANTIZE), "--method", "gptq|awq|both", CHOICE, quantize_method, .initial = "gptq",
           .help = "with a text: columns make up for each other's errors, columns are scaled by "
                   "their inputs, or both"),
    OPTION(ON(INFO), "--context", "N", SIZE, cost_context, 1, TOKENS_MAX,
           .help = "context length for the cost of attention (the model's) and for memory "
                   "(the model's, at most " SKV_TEXT_OF(SKV_CONTEXT_DEFAULT) ")"),
    OPTION(ON(DOCTOR), "--context", "N", SIZE, cost_context, 1, TOKENS_MAX,
           .help = "context length for memory "
                   "(the model's, at most " SKV_TEXT_OF(SKV_CONTEXT_DEFAULT) ")"),
    OPTION(ON(INFO) | ON(DOCTOR), "--available", "BYTES", SIZE, available, 1, 1e15,
           .help = "plan memory for another machine: bytes that are free there, like 30Gi (what "
                   "this one has)"),
    OPTION(ON(INFO) | ON(DOCTOR), "--threads", "N", SIZE, threads, 1, THREADS_MAX,
           .help = "plan memory for so many threads (one for each processor allowed)"),
    OPTION(ON(DOCTOR), "--report", NULL, FLAG, report,
           .help = "print instead what to send with a report of a problem (no user, host or file "
                   "is named; takes a minute)"),
    OPTION(ON(DOCTOR), "--quick", NULL, FLAG, quick,
           .help = "--report: measure a small shape and not what the machine can do, in seconds"),
    OPTION(ON(INFO), "--as-papers", NULL, FLAG, as_papers,
           .help = "count as the papers do: vocabulary twice, attention in units of 2^30"),

    /* Measuring. */
    OPTION(ON(BENCH), "--preset", "NAME", TEXT, preset,
           .help = "a published shape with random weights; list: their names"),
    OPTION(ON(BENCH), "--prompt", "N,...", PARSED, prompt_lengths, 1, TOKENS_MAX, .initial = "512",
           .parse = cli_parse_sizes, .help = "prompt lengths in tokens"),
    OPTION(ON(BENCH), "--gen", "N", SIZE, gen_tokens, 0, TOKENS_MAX, .initial = "64",
           .help = "tokens to generate; 0: prompts alone"),
    OPTION(ON(BENCH), "--batch", "N", SIZE, batch, 1, 1024, .initial = "1",
           .help = "sequences at once"),
    OPTION(ON(BENCH), "--repeat", "R", SIZE, repeat, 1, 1000, .initial = "3",
           .help = "runs to take the median of"),
    OPTION(ON(BENCH), "--compare", NULL, FLAG, compare,
           .help = "the unmodified model and SwiftKV side by side"),
    OPTION(ON(BENCH), "--peak", NULL, FLAG, peak, .help = "measure the machine's limits"),
    OPTION(ON(BENCH), "--costs", NULL, FLAG, costs,
           .help = "print the durations of steps as JSON, for tools/simulate.py; --prompt N: the "
                   "context of the "
                   "longer ones"),
    OPTION(ON(BENCH), "--replay", "F", TEXT, replay,
           .help = "drafts of recorded lengths, as right as those were: F holds the \"drafts\" of "
                   "generate --json, for shapes without weights of their own"),

    /* Training. */
    OPTION(LEARNS, "--recipe", "F", TEXT, recipe,
           .help = "a YAML file with any of the keys below; options go before it"),
    OPTION(LEARNS, "--data", "FILE", PARSED, data, .parse = cli_parse_texts,
           .help = "text, .jsonl, token ids (.u16, .u32, .json), generate:TASKS, or a source as "
                   "in recipes, '{file: F, weight: 2}'; may be repeated"),
    OPTION(LEARNS, "--stages", "LIST", TEXT, stages,
           .help = "stages of the run as in recipes, '[{steps: 10, seq: 64}, {steps: 20}]'"),
    OPTION(ON(TRANSFORM), "--seq", "T", SIZE, text_seq, 16, 1 << 20,
           .help = "ridge: longest sequence of the text (the model's context, at most 1024)"),
    OPTION(ON(TRAIN), "--from-scratch", NULL, FLAG, from_scratch,
           .help = "start from random weights in the shape of MODEL/config.json: --task scratch"),
    OPTION(LEARNS, "--resume", NULL, FLAG, resume,
           .help = "continue from the last good checkpoint in OUT"),
    OPTION(LEARNS, "--log", "F", TEXT, log_file,
           .help = "append one JSON object per step to this file (OUT/log.jsonl)"),
    OPTION(LEARNS, "--dry-run", NULL, FLAG, dry_run,
           .help = "print parameters, memory and arithmetic of a step, then exit"),

    /* Evaluation. */
    OPTION(ON(EVAL) | ON(TUNE), "--task", "NAME|FILE,...", TEXT, tasks,
           .help = "built-in tasks (all: every one), .jsonl, .json or .csv files, texts"),
    OPTION(ON(EVAL) | ON(TUNE), "--lengths", "N,...", PARSED, lengths, 32, 1 << 20,
           .parse = cli_parse_sizes, .help = "lengths of built-in tasks in tokens (128,512,2048)"),
    OPTION(ON(EVAL) | ON(TUNE), "--count", "N", SIZE, count, 1, 1 << 24,
           .help = "examples per file (all), or per length of a built-in task (100)"),
    OPTION(ON(EVAL), "--depths", "N", SIZE, depths, 1, 100,
           .help = "columns of the depth grids (10)"),
    OPTION(ON(EVAL) | ON(TUNE), "--scored", "N", SIZE, scored, 1, 1 << 20,
           .help =
               "texts: score the last N tokens of each window; those before are a prompt (all)"),
    OPTION(ON(EVAL) | ON(TUNE) | ON(COMPARE), "-n", "N", SIZE, n_tokens, 1, TOKENS_MAX,
           .help = "most tokens of an answer (depends on the task)"),
    OPTION(ON(EVAL) | ON(TUNE) | ON(COMPARE), "--seed", "S", SEED, sampling.seed, .initial = "0",
           .help = "seed of the generated documents"),
    OPTION(ON(EVAL) | ON(TUNE) | ON(COMPARE), "--prose", "FILE", TEXT, prose,
           .help = "text to hide needles in (generated sentences)"),
    OPTION(ON(EVAL) | ON(TUNE), "--primer", "F", TEXT, primer,
           .help = "a file whose text precedes every prompt, for example with examples"),
    OPTION(ON(EVAL) | ON(TUNE), "--no-template", NULL, FLAG, no_template,
           .help = "do not use the model's chat template"),
    OPTION(ON(EVAL), "--reference", "MODEL|teacher", TEXT, reference,
           .help = "measure the agreement with this model, or with the file's own teacher"),
    OPTION(ON(EVAL) | ON(TUNE), "--log", "F", TEXT, log_file,
           .help = "append one JSON object per example to this file"),
    OPTION(ON(EVAL) | ON(TUNE), "--resume", NULL, FLAG, resume,
           .help = "skip examples that are in the log"),

    /* Tuning. */
    OPTION(ON(TUNE), "--floor", "X", NUMBER, floor, 0, 1e6, .open_min = true,
           .help = "share of the unmodified model's score to keep, for example 0.99"),
    OPTION(ON(TUNE), "--text", "F", TEXT, text_file,
           .help = "a text: windows of 1024 tokens (--ctx), of which the last quarter is scored, "
                   "at most 256 tokens (--scored)"),
    OPTION(ON(TUNE), "--cost", "total|ttft|kv-bytes", WORD, cost,
           .help = "what to minimise: the time of prompt and answer, the time to first token, or "
                   "memory (total)"),
    OPTION(ON(TUNE), "--also", "DIR", PARSED, also, .parse = cli_parse_texts,
           .help = "another form of the model, distilled or with KV Prediction; may be repeated"),
    OPTION(ON(TUNE), "--work", "DIR", TEXT, work,
           .help =
               "try SwiftKV forms of an ordinary model, written to this folder as by transform"),
    OPTION(ON(TUNE), "--prompt", "N", SIZE, timed_prompt, 1, TOKENS_MAX,
           .help = "tokens of the timed prompt (that of the examples)"),
    OPTION(ON(TUNE), "--gen", "N", SIZE, gen_tokens, 1, TOKENS_MAX, .initial = "64",
           .help = "tokens of the timed answer"),
    OPTION(ON(TUNE), "--repeat", "R", SIZE, repeat, 1, 1000, .initial = "3",
           .help = "repetitions to take the median of"),

    /* Comparison. */
    OPTION(ON(COMPARE), "--task", "NAME=W,...", TEXT, tasks,
           .help = "tasks of the generated documents, see swiftkv documents (report)"),
    OPTION(ON(COMPARE), "--lengths", "N", PARSED, lengths, 48, 1 << 20, .parse = cli_parse_sizes,
           .help = "tokens of a document (2048)"),
    OPTION(ON(COMPARE), "--count", "N", SIZE, count, 1, 1 << 24, .help = "documents (5)"),

    /* Generated documents and vocabularies. */
    OPTION(DOCUMENTS, "--count", "N", SIZE, count, 0, 1e15,
           .help = "documents (documents: 10, vocab: 2000)"),
    OPTION(ON(DOCUMENTS), "--first", "I", SEED, first, .initial = "0",
           .help = "index of the first document"),
    OPTION(DOCUMENTS, "--tasks", "NAME=W,...", TEXT, tasks,
           .help = "tasks with weights, or stage:copy, stage:lookup, stage:all (stage:all)"),
    OPTION(DOCUMENTS, "--tokens-min", "N", SIZE, tokens_min, 32, 1 << 20,
           .help = "shortest document (128)"),
    OPTION(DOCUMENTS, "--tokens-max", "N", SIZE, tokens_max, 32, 1 << 20,
           .help = "longest document (1024)"),
    OPTION(ON(DOCUMENTS), "--questions", "N", SIZE, questions_max, 1, 4096,
           .help = "most questions of a document (24)"),
    OPTION(
        ON(DOCUMENTS), "--evaluation", NULL, FLAG, evaluation,
        .help =
            "print prompt and answer of one question per document, with held-out keys and values"),
    OPTION(ON(DOCUMENTS), "--held-out", NULL, FLAG, held_out,
           .help = "whole documents with held-out keys and values"),
    OPTION(ON(DOCUMENTS), "--vocab", "MODEL", TEXT, vocab,
           .help = "count tokens with this model's tokenizer (an estimate)"),
    OPTION(DOCUMENTS, "--prose", "FILE", TEXT, prose,
           .help = "text to hide needles in (generated sentences)"),
    OPTION(ON(VOCAB), "--size", "N", SIZE, vocab_size, 261, 1 << 16,
           .help = "entries of the vocabulary (3072)"),
    OPTION(ON(VOCAB), "--data", "FILE", PARSED, data, .parse = cli_parse_texts,
           .help = "a text to train on; may be repeated"),

    /* Serving. */
    OPTION(ON(SERVE), "--host", "ADDRESS", TEXT, host, .initial = "127.0.0.1",
           .help = "address to listen on; any but loopback needs API keys"),
    OPTION(ON(SERVE), "--port", "N", SIZE, port, 0, 65535, .initial = "8080",
           .help = "port; 0: any free port, which is printed"),
    OPTION(ON(SERVE), "--api-key-file", "FILE", TEXT, key_file,
           .help = "API keys, one per line; every path except / and /health needs one"),
    OPTION(ON(SERVE), "--rpm", "N", NUMBER, requests_a_minute, 0, 1e12, .initial = "0",
           .help =
               "requests per minute of a key without its own limit, 0: unlimited; above it 429"),
    OPTION(ON(SERVE), "--tpm", "N", NUMBER, tokens_a_minute, 0, 1e12, .initial = "0",
           .help = "prompt and answer tokens per minute of such a key, 0: unlimited; above it 429"),
    OPTION(ON(SERVE), "--request-log", "FILE", TEXT, request_log,
           .help = "write one line of JSON per request; -: standard error; none: no lines on a "
                   "terminal either"),
    OPTION(ON(SERVE), "--log-probes", NULL, FLAG, log_probes,
           .help = "log requests for /health and /metrics too"),
    OPTION(ON(SERVE), "--log-prompt-text", NULL, FLAG, log_prompt_text,
           .help = "let --request-log show up to 80 bytes of a client's text, and of its earlier "
                   "prompt, where the two part"),
    OPTION(ON(SERVE), "--max-loaded", "N", SIZE, max_loaded, 1, 64, .initial = "1",
           .help = "models in memory at a time; others are loaded when a request names them"),
    OPTION(ON(SERVE), "--models-memory", "MIB", SIZE, models_mib, 1, (size_t)1 << 40,
           .help = "weights, KV memory and workspaces of the models in memory (what the machine "
                   "has)"),
    OPTION(ON(SERVE), "--metrics-compat", NULL, FLAG, metrics_compat,
           .help = "metrics under llama-server's and vLLM's names too"),
    OPTION(ON(SERVE), "--insecure", NULL, FLAG, insecure,
           .help = "allow other addresses without API keys"),
    OPTION(ON(SERVE), "--name", "NAME[,NAME...]", TEXT, served_name,
           .help = "the model's names in the API, responses carry the first; *: any other name too "
                   "(the last part of its path). The same as NAME=MODEL"),
    {ON(SERVE), {.name = NULL}}, /* the same, as defaults of requests */
    OPTION(ON(SERVE), "--no-generation-config", NULL, FLAG, no_generation_config,
           .help = "do not draw tokens as the model's generation_config.json says"),
    OPTION(ON(SERVE), "--cors-origin", "ORIGIN[,...]", TEXT, cors_origins,
           .help = "pages of these origins may call the API from a browser (CORS); *: all pages"),
    OPTION(ON(SERVE), "--tool-format", "FORM", TEXT, tool_format, .initial = "auto",
           .help = "how the model writes function calls (the HTTP reference lists the forms); "
                   "auto: detect from its chat template"),
    OPTION(ON(SERVE), "--chat-template-kwargs", "JSON", TEXT, template_vars,
           .help = "variables of the chat template for requests that do not say, such as "
                   "{\"enable_thinking\":false}"),
    OPTION(ON(SERVE), "--reasoning-format", "auto|none|think", WORD, reasoning_format,
           .initial = "auto",
           .help = "whether to separate <think> from answers; auto: if the template has it"),
    OPTION(ON(SERVE) | ON(CACHE), "--prompt-strip", "REGEX", TEXT, prompt_strip,
           .help = "leave out lines of system messages in which REGEX matches, for they differ in "
                   "every request; claude-code: Claude Code's billing line"),
    OPTION(ON(SERVE), "--prompt-sort", "none|tools", WORD, prompt_sort, .initial = "none",
           .help =
               "tools: sort tools by name and the members of their schemas, so that their order "
               "costs no cached prompt"),
    OPTION(ON(SERVE), "--prompt-keep", "none|thoughts", WORD, prompt_keep, .initial = "none",
           .help = "thoughts: the prompt has thoughts of earlier turns that the client sends and "
                   "the template leaves out"),
    OPTION(ON(SERVE), "--idle-read", "SHARE", NUMBER, idle_read, 0, 1, .initial = "0",
           .help = "while nothing waits, read the history of an answered chat as its next request "
                   "will have it, in at most this share of that time"),
    OPTION(ON(SERVE), "--reranker", "auto|yes|no", WORD, reranker, .initial = "auto",
           .help = "whether /rerank asks the model as Qwen3-Reranker is asked; auto: if its name "
                   "contains \"reranker\""),
    OPTION(ON(SERVE), "--kv-tokens", "N", SIZE, kv_tokens, 1, TOKENS_MAX,
           .help = "KV memory for all requests together, in tokens "
                   "(" SKV_TEXT_OF(CLI_SERVE_KV_CONTEXTS) " contexts)"),
    OPTION(ON(GENERATE), "--kv-tokens", "N", SIZE, kv_tokens, 1, TOKENS_MAX,
           .help = "KV memory in tokens (as many as needed); a longer prompt with eviction "
                   "is read layer by layer"),
    OPTION(ON(SERVE), "--step-ms", "MS", NUMBER, step_ms, 1, 60000,
           .initial = SKV_TEXT_OF(SKV_STEP_MS_DEFAULT),
           .help = "target time of a step, which bounds the gap between tokens"),
    OPTION(ON(SERVE), "--mask-seconds", "S", NUMBER, mask_seconds, 0, 600, .open_min = true,
           .initial = SKV_TEXT_OF(SKV_MASK_SECONDS_DEFAULT),
           .help = "seconds that a grammar may take to decide which tokens may come next; above it "
                   "400"),
    OPTION(ON(SERVE), "--max-running", "N", SIZE, max_running, 1, 1024,
           .initial = SKV_TEXT_OF(SKV_RUNNING_DEFAULT), .help = "most answers computed together"),
    OPTION(ON(SERVE), "--max-queue", "N", SIZE, max_queued, 1, 1 << 20,
           .initial = SKV_TEXT_OF(SKV_QUEUED_DEFAULT),
           .help = "most requests that wait; above it 429"),
    OPTION(ON(SERVE), "--max-queue-tokens", "N", SIZE, max_queued_tokens, 1, TOKENS_MAX,
           .help = "most prompt tokens that wait; above it 429 "
                   "(" SKV_TEXT_OF(SKV_QUEUED_CONTEXTS_DEFAULT) " contexts)"),
    OPTION(ON(SERVE), "--queue-timeout", "S", NUMBER, queue_seconds, 0, 1e6, .open_min = true,
           .initial = SKV_TEXT_OF(SKV_QUEUE_SECONDS_DEFAULT),
           .help = "seconds that a request may wait; after that 503"),
    OPTION(ON(SERVE), "--no-prefix-cache", NULL, FLAG, no_prefix_cache,
           .help = "compute every prompt from its first token"),
    OPTION(ON(SERVE), "--state-checkpoints", "N", SIZE, state_checkpoints, 0, 1 << 16,
           .help = "hybrid models: most states that the prefix cache keeps, each as large as that "
                   "of an answer (" SKV_TEXT_OF(CLI_SERVE_CHECKPOINTS) " for each answer at once)"),
    OPTION(ON(SERVE), "--slot-save-path", "DIR", TEXT, slot_save_path,
           .help = "folder that POST /slots/ID?action=save and restore keep files in (none: they "
                   "are refused)"),
    OPTION(ON(SERVE), "--slot-save-bytes", "N", SIZE, slot_save_bytes, 1, 1e15, .initial = "1Gi",
           .help = "most bytes of files in --slot-save-path; more are refused"),
    OPTION(ON(SERVE), "--cache-dir", "DIR", TEXT, cache_dir,
           .help = "folder for cached prompts that leave memory; survives restarts"),
    OPTION(ON(SERVE), "--cache-disk-bytes", "N", SIZE, cache_disk_bytes, 1, 1e15,
           .initial = SKV_TEXT_OF(SKV_CACHE_DISK_GIB_DEFAULT) "Gi",
           .help = "most bytes of files in --cache-dir"),
    OPTION(ON(SERVE), "--cache-disk-form", "kv|rows", WORD, cache_disk_form, .initial = "kv",
           .help =
               "SwiftKV: store all keys and values, or layer l's input for the deep layers: fewer "
               "bytes, slower to load"),
    OPTION(ON(SERVE), "--cache-store", "URL", TEXT, cache_store,
           .help = "Valkey or Redis in which servers share cached prompts: "
                   "redis://HOST:PORT[,HOST:PORT ...], or rediss:// for TLS"),
    OPTION(ON(SERVE), "--cache-key-file", "FILE", TEXT, cache_key_file,
           .help = "a secret that names and seals cached prompts: the same for all servers that "
                   "share them"),
    OPTION(ON(SERVE), "--cache-store-timeout", "S", NUMBER, cache_store_seconds, 0.001, 60,
           .initial = "0.25", .help = "seconds that the store may take to answer"),
    OPTION(ON(SERVE), "--cache-store-auth", "FILE", TEXT, cache_store_auth,
           .help = "file with 'USER PASSWORD' or 'PASSWORD' for the store"),
    OPTION(ON(SERVE), "--cache-store-ca", "FILE", TEXT, cache_store_ca,
           .help = "rediss://: certificates of who may sign the store's (the system's)"),
    OPTION(ON(SERVE), "--cache-store-cert", "FILE", TEXT, cache_store_cert,
           .help = "rediss://: the client's certificate"),
    OPTION(ON(SERVE), "--cache-store-key", "FILE", TEXT, cache_store_key,
           .help = "rediss://: the key of the client's certificate"),
    OPTION(ON(SERVE), "--role", "answer|read", WORD, role, .initial = "answer",
           .help =
               "read: read prompts for other servers into --cache-store, with half of a SwiftKV "
               "model, and answer nothing"),
    OPTION(ON(SERVE), "--prefill-from", "URL", TEXT, prefill_from,
           .help = "http://HOST:PORT of a server with --role read, or of a proxy before several: "
                   "long prompts are read there"),
    OPTION(ON(SERVE), "--prefill-above", "N", SIZE, prefill_above, 64, TOKENS_MAX,
           .initial = "1024", .help = "tokens to compute beyond which a prompt is long"),
    OPTION(ON(SERVE), "--prefill-timeout", "S", NUMBER, prefill_seconds, 0.01, 3600, .initial = "5",
           .help = "seconds without a new block after which a prompt is read here after all"),
    OPTION(ON(SERVE), "--no-text-match", NULL, FLAG, no_text_match,
           .help = "do not match earlier answers by their text"),
    OPTION(ON(SERVE), "--cache-shift", NULL, FLAG, cache_shift,
           .help = "take over 256 tokens and more that an earlier prompt has at another place, "
                   "with keys turned to the new positions: faster, but answers become "
                   "approximate"),
    OPTION(ON(SERVE), "--no-teacher", NULL, FLAG, no_teacher,
           .help = "do not load the teacher's weights of a SwiftKV model"),
    OPTION(ON(SERVE), "--connections", "N", SIZE, connections, 1, 1 << 16, .initial = "256",
           .help = "most connections"),
    OPTION(ON(SERVE), "--connections-per-ip", "N", SIZE, connections_per_ip, 1, 1 << 16,
           .initial = "64", .help = "most connections of one address"),
    OPTION(ON(SERVE), "--max-body", "MIB", SIZE, body_mib, 1, 1024, .initial = "32",
           .help = "largest request body in MiB; above it 413"),
    OPTION(ON(SERVE), "--memory", "MIB", SIZE, memory_mib, 1, 1 << 24, .initial = "1024",
           .help = "memory for all requests besides the KV memory, in MiB; above it requests wait, "
                   "then 503"),
    OPTION(ON(SERVE), "--request-memory", "MIB", SIZE, request_mib, 1, 1 << 24, .initial = "256",
           .help = "most memory for reading one request (JSON, template, grammar), in MiB; then "
                   "400"),
    OPTION(ON(SERVE), "--request-work", "MILLIONS", NUMBER, request_work, 0, 1e9, .open_min = true,
           .initial = "50",
           .help = "most work for reading one request, in millions of units of some 10 ns; then "
                   "400"),
    OPTION(ON(SERVE), "--request-seconds", "S", NUMBER, reading_seconds, 0, 1e6, .open_min = true,
           .initial = "10", .help = "most time for reading one request, in seconds; then 400"),
    OPTION(ON(SERVE), "--connection-stack", "KIB", SIZE, stack_kib, 128, 1 << 16, .initial = "512",
           .help = "stack of a connection's thread in KiB"),
    OPTION(ON(SERVE), "--header-timeout", "S", NUMBER, header_seconds, 0, 1e6, .open_min = true,
           .initial = "10", .help = "seconds to receive a header"),
    OPTION(ON(SERVE), "--body-timeout", "S", NUMBER, body_seconds, 0, 1e6, .open_min = true,
           .initial = "60", .help = "seconds to receive a body"),
    OPTION(ON(SERVE), "--stall-timeout", "S", NUMBER, stall_seconds, 0, 1e6, .open_min = true,
           .initial = "30", .help = "seconds that a client may leave output unread"),
    OPTION(ON(SERVE), "--ping-interval", "S", NUMBER, ping_seconds, 0, 1e6, .open_min = true,
           .initial = "15",
           .help = "seconds between keep-alive comments of a stream without tokens"),
    OPTION(ON(SERVE), "--shutdown-timeout", "S", NUMBER, shutdown_seconds, 0, 1e6, .initial = "30",
           .help = "seconds that requests in flight may take after SIGTERM"),
    OPTION(ON(SERVE), "--watchdog", "S", NUMBER, watchdog_seconds, 0, 1e6, .open_min = true,
           .initial = "30", .help = "seconds without a step after which /health fails"),

    /* Load. */
    OPTION(ON(LOAD), "--chat", NULL, FLAG, chat_api,
           .help = "/v1/chat/completions instead of /v1/completions"),
    OPTION(ON(LOAD), "--model", "NAME", TEXT, served_name,
           .help = "the model to request (the first of /v1/models)"),
    OPTION(ON(LOAD), "--api-key-file", "FILE", TEXT, key_file,
           .help = "a file whose first line is the API key"),
    OPTION(ON(LOAD), "--prompt", "N,...", PARSED, prompt_lengths, 1, TOKENS_MAX, .initial = "512",
           .parse = cli_parse_sizes,
           .help = "prompt lengths in tokens, one drawn for each request"),
    OPTION(ON(LOAD), "--gen", "N", SIZE, gen_tokens, 1, TOKENS_MAX, .initial = "64",
           .help = "most tokens of an answer"),
    OPTION(ON(LOAD), "--ignore-eos", NULL, FLAG, ignore_eos,
           .help = "request answers of full length (vLLM, SGLang, swiftkv)"),
    OPTION(ON(LOAD), "--text", "FILE", TEXT, text_file,
           .help = "prompts are pieces of this text, not random token ids"),
    OPTION(ON(LOAD), "--vocab", "N", SIZE, vocab_size, 1, 1 << 24,
           .help = "random token ids are below N (the server's vocabulary, else 1000)"),
    OPTION(ON(LOAD), "--rate", "R,...", PARSED, rates, 0, 1e6, .open_min = true,
           .parse = cli_parse_numbers,
           .help = "requests per second; several run one after the other"),
    OPTION(ON(LOAD), "--arrivals", "poisson|fixed|trace", WORD, arrivals,
           .help = "times between requests (poisson; with --trace: the trace's)"),
    OPTION(ON(LOAD), "--trace", "FILE", TEXT, trace_file,
           .help = "times and lengths of an Azure CSV or Mooncake JSONL trace; with --rate its "
                   "times are stretched to that rate"),
    OPTION(ON(LOAD), "--time-scale", "X", NUMBER, time_scale, 0, 1e9, .initial = "1",
           .help = "multiplies the trace's times"),
    OPTION(ON(LOAD), "--length-scale", "X", NUMBER, length_scale, 0, 1e3, .open_min = true,
           .initial = "1", .help = "multiplies the trace's lengths"),
    OPTION(ON(LOAD), "--clients", "N", SIZE, clients, 1, 16384,
           .help = "most requests at once (1; with --rate or --trace 1024)"),
    OPTION(ON(LOAD), "--requests", "N", SIZE, count, 1, 1 << 30,
           .help = "requests of a run (100; with --trace all of it)"),
    OPTION(ON(LOAD), "--duration", "S", NUMBER, seconds, 0, 1e7, .open_min = true,
           .help = "start no request after S seconds"),
    OPTION(ON(LOAD), "--warmup", "N", SIZE, n_warmup, 0, 1 << 20, .initial = "0",
           .help = "requests before each run that are not counted"),
    OPTION(ON(LOAD), "--timeout", "S", NUMBER, request_seconds, 0, 1e6, .open_min = true,
           .help = "seconds for a request (600)"),
    OPTION(ON(LOAD), "--cancel", "P", NUMBER, cancel_share, 0, 1, .initial = "0",
           .help = "share of the requests to cancel before the answer ends"),
    OPTION(ON(LOAD), "--cancel-within", "S", NUMBER, cancel_seconds, 0, 1e6, .initial = "1",
           .help = "cancel between 0 and S seconds after the start"),
    OPTION(
        ON(LOAD), "--goodput", "LIST", TEXT, goals,
        .help =
            "count the requests within these milliseconds, for example ttft:500,tpot:50,e2el:5000"),
    OPTION(ON(LOAD), "--methods", "LIST", TEXT, methods,
           .help = "values of the request field `swiftkv`, for example auto,teacher; run one after "
                   "the other"),
    OPTION(ON(LOAD), "--extra-body", "JSON", TEXT, extra_body,
           .help = "an object with more fields for every request"),
    OPTION(ON(LOAD), "--seed", "S", SEED, sampling.seed, .initial = "0",
           .help = "seed of prompts, times and cancellations"),
    OPTION(ON(LOAD), "--log", "F", TEXT, log_file,
           .help = "append one JSON object per request to this file"),
    OPTION(ON(LOAD), "--out", "F", TEXT, out_file,
           .help = "write the results as JSON; an array if there are several runs"),

    /* How a model runs. */
    OPTION(RUNS | ON(TUNE) | ON(TRANSFORM) | ON(QUANTIZE), "--threads", "N", SIZE, threads, 1,
           THREADS_MAX, .help = "threads (one for each processor allowed)"),
    OPTION(
        RUNS |
            ON(TUNE) | ON(TRANSFORM),
        "--weights", "auto|file|bf16|int8|int4|f32|fp8", PARSED, weights,
        .parse = cli_parse_weights,
        .help =
            "type of the weights; file: quantised matrices with the codes of the file; int4: the "
            "same, and all others in 4 bits; fp8: on a GPU alone; auto: file for quantised files, "
            "f32 for f32 "
            "files, else bf16"),
    OPTION(RUNS | ON(TUNE) | ON(INFO) | ON(DOCTOR), "--kv", "auto|bf16|f32|int8|fp8", PARSED, kv,
           .parse = cli_parse_kv,
           .help = "type of keys and values; auto: f32 with f32 weights or heads shorter than "
                   "32, else bf16. Of the two 8-bit types int8 has the smaller error"),
    OPTION(RUNS | ON(TUNE) | ON(INFO), "--state", "f32|bf16", PARSED, state,
           .parse = cli_parse_state,
           .help = "type of the matrices that layers of hybrid models keep: bf16 halves them and "
                   "rounds them at each 16th token (f32)"),
    OPTION(RUNS, "--prefill", "auto|full|swiftkv|swiftkv-full|teacher|kvpred|merged", PARSED,
           prefill, .parse = cli_parse_prefill,
           .help = "how prompts are read; auto: swiftkv or kvpred if the model supports it"),
    OPTION(RUNS, "--prune", "none|random:P|static:P|lazy:P,E", PARSED, pruning,
           .parse = cli_parse_pruning,
           .help = "drop tokens of prompts and keep a share P: random ones, those that "
                   "a quarter of the layers attends to, or fewer per layer, from P to E (none)"),
    OPTION(
        RUNS, "--ffn-skip", "S[,warm[,k[,from,to]]]", PARSED, ffn_skip, .parse = cli_parse_ffn_skip,
        .help = "FFN-SkipLLM: a token skips feed-forward blocks after one whose input and output "
                "have a cosine of S or more (none): docs/reference/comparators.md"),
    OPTION(RUNS, "--early-exit", "P", NUMBER, early_exit, 0, 1, .open_min = true, .open_max = true,
           .help = "take a token from the exit head before layer l if its probability "
                   "is above P (none)"),
    OPTION(RUNS, "--lora", "NAME=PATH,...", TEXT, adapters,
           .help = "LoRA adapters, PEFT folders or GGUF files: the first is used, but serve lets "
                   "requests choose by name; of several models NAME@MODEL=PATH (none)"),
    OPTION(ON(TRANSFORM), "--lora", "NAME=PATH,...", TEXT, adapters,
           .help =
               "add LoRA adapters to the weights; without --kv-layers the model keeps its form"),
    OPTION(RUNS | ON(TUNE), "--ctx", "N", SIZE, context, 1, TOKENS_MAX,
           .help = "most tokens of a sequence "
                   "(the model's context, at most " SKV_TEXT_OF(SKV_CONTEXT_DEFAULT) ")"),
    OPTION(RUNS | ON(TUNE) | ON(INFO) | ON(DOCTOR), "--device", "NAME", TEXT, device,
           .help = "where to compute (cpu): swiftkv devices lists what there is"),
    OPTION(RUNS, "--gpus", "N", SIZE, gpus, 1, SKV_RANKS_THREADS_MAX,
           .help =
               "with --device cuda: GPUs of this machine that hold a part of the model each (1)"),
    OPTION(RUNS | ON(TUNE) | ON(INFO) | ON(DOCTOR), "--gpu-layers", "N", SIZE, gpu_layers, 0,
           1 << 20,
           .help = "with --device cuda: compute only the first N layers there, and the others on "
                   "the processor (all)"),
    OPTION(RUNS, "--sums", "auto|nccl|copies", PARSED, sums, .parse = cli_parse_sums,
           .help = "with --gpus: how the GPUs add up their parts; copies: in the order of GPUs, to "
                   "the bits of the processor's sum; auto: nccl where it is installed"),
    OPTION(RUNS | ON(TUNE) | ON(TRANSFORM), "--cpu",
           "best|ref|avx2|avxvnni|avx512|amx|amx-strided|amx-paired|amx-few|amx-whole|"
           "amx-attention|amx-q|amx-q-once|neon",
           WORD, cpu, .help = "instruction set, and the form of its kernels"),
    OPTION(RUNS | ON(TUNE), "--chunk", "N", SIZE, step_tokens, 1, 1 << 20,
           .help = "most tokens of a step (" SKV_TEXT_OF(SKV_STEP_TOKENS_DEFAULT) ")"),
    OPTION(RUNS, "--evict", "METHOD:C,...", PARSED, eviction, .parse = cli_parse_eviction,
           .help = "how to evict keys and values after a prompt (none): docs/reference/methods.md"),
    OPTION(DRAFTS | ON(TUNE), "--speculate", "none|SOURCE[:K[,P]]", PARSED, speculation,
           .parse = cli_parse_speculation,
           .help = "draft up to K tokens and check them in one step, for the same answer (none): "
                   "auto, text, self, aux, model, mtp, text+self, text+aux, text+model, "
                   "text+mtp; see "
                   "docs/reference/methods.md"),
    OPTION(DRAFTS, "--draft", "MODEL", TEXT, draft,
           .help =
               "a small model with the same vocabulary, which drafts; implies --speculate model; "
               "serve with several models: MODEL=PATH,..."),
    OPTION(RUNS, "--snapkv", "C[,w[,k]]", PARSED, eviction, .parse = cli_parse_snapkv,
           .help = "SnapKV: keep C rows of a prompt per head, the last w and those they attend to"),
    OPTION(ON(GENERATE), "--dump-kept", "F", TEXT, kept_file,
           .help = "write the kept rows as JSON, [layer][kv head][rows]"),

    /* Output. */
    OPTION(ON(SIMILARITY), "--svg", "OUT", TEXT, svg_file, .help = "write a chart"),
    OPTION(ON(EVAL), "--svg", "FOLDER", TEXT, svg_file,
           .help = "write grids of length and depth, and curves over the length"),
    OPTION(ON(LOAD), "--svg", "OUT", TEXT, svg_file, .help = "draw TTFT and TPOT against the rate"),
    OPTION(ON(INFO) | ON(SIMILARITY) | ON(GENERATE) | ON(SCORE) | ON(TOKENIZE) | ON(BENCH) |
               ON(EVAL) | ON(COMPARE) | ON(LOAD) | ON(TUNE) | ON(CACHE) | ON(DEVICES),
           "--json", NULL, FLAG, json, .help = "print JSON"),
    OPTION(ON(HELP), "--list", NULL, FLAG, list_options,
           .help = "every command with its options, for scripts"),
    OPTION(ON(HELP), "--sampling", NULL, FLAG, list_sampling,
           .help = "how tokens are drawn, as the table in docs/reference/http.md"),
    OPTION(ON(HELP), "--methods", NULL, FLAG, list_methods,
           .help = "the methods of --evict, as the table in docs/reference/methods.md"),
    OPTION(ON(HELP), "--combinations", NULL, FLAG, list_combinations,
           .help =
               "the combinations that are supported, as the table in docs/reference/methods.md"),
    OPTION(
        NAMES, "--download", NULL, FLAG, download,
        .help =
            "fetch MODEL, a name, from the hub (HF_ENDPOINT, HF_TOKEN) where the cache lacks it"),
    OPTION(ALL, "--help", NULL, FLAG, help, .help = "these options"),
    OPTION(ALL, "-h", NULL, FLAG, help, .help = NULL),
};

/* A field of skv_sampling as an option. */
static cli_option sampling_option(uint32_t commands, const skv_field *field)
{
    cli_option out = {commands, *field};
    if (commands == ON(SERVE)) out.field.initial = NULL; /* the model's */
    out.field.name = field->option;
    out.field.offset += FIELD(sampling);
    return out;
}

bool cli_option_at(size_t i, cli_option *out)
{
    for (size_t at = 0; at < sizeof rows / sizeof rows[0]; at++) {
        if (rows[at].field.name) {
            *out = rows[at];
            if (i-- == 0) return true;
            continue;
        }
        for (size_t k = 0; skv_sampling_field(k); k++) {
            *out = sampling_option(rows[at].commands, skv_sampling_field(k));
            if (i-- == 0) return true;
        }
    }
    return false;
}

bool cli_option_is_common(const cli_option *option)
{
    return (option->commands & RUNS) == RUNS && option->commands != ALL &&
           option->commands != NAMES;
}
