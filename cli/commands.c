/* The table of commands. */
#include "commands.h"

#include <string.h>

static const cli_command_row rows[CLI_COMMAND_COUNT] = {
    [CLI_INFO] =
        {"info", "MODEL", 1, 1, cli_run_info, "shape, memory, arithmetic per prompt token",
         "MODEL is a Hugging Face folder, a GGUF file, or preset:NAME. The weights are not "
         "read. With --kv-layers the model is shown in its SwiftKV form too."},
    [CLI_SIMILARITY] = {"similarity", "MODEL", 1, 1, cli_run_similarity,
                        "how alike the inputs of the layers are (SimScore)",
                        "SimScore of layer l is the mean cosine similarity between its input and "
                        "the inputs of all later layers. Where it is high, later layers can take "
                        "their keys and values from layer l."},
    [CLI_TRANSFORM] = {"transform", "MODEL OUT", 2, 2, cli_run_transform,
                       "write a model in SwiftKV form",
                       "OUT is a new folder. The SwiftKV weights are initialised from the model's "
                       "own, as copies or (--init ridge) fitted to a text in closed form; "
                       "distillation then recovers its quality."},
    [CLI_GENERATE] = {"generate", "MODEL (-p TEXT | --file F | --ids-file F)", 1, 1,
                      cli_run_generate, "continue a text",
                      "Prints the generated text, or the ids where the model has no tokenizer. An "
                      "empty prompt is the token that begins a text. Without sampling options the "
                      "most likely token is taken."},
    [CLI_CHAT] = {"chat", "MODEL", 1, 1, cli_run_chat, "a conversation in the terminal",
                  "Ctrl-C stops an answer; at the prompt it ends the program, as does the end of "
                  "input. /reset forgets the conversation, /stats shows its cost, /help lists "
                  "these. Without -n an answer ends when the model ends it."},
    [CLI_SCORE] = {"score", "MODEL (-p TEXT | --file F | --ids-file F)", 1, 1, cli_run_score,
                   "log-probability of every token given those before it",
                   "nll is the mean negative log-probability in nats over the scored tokens, "
                   "perplexity is exp(nll). Input longer than the context (--ctx, else the "
                   "model's) is cut into consecutive windows without overlap, each scored from "
                   "its own first token, which has no score itself. Text is tokenized whole; "
                   "where the tokenizer begins a text with a token (BOS), every window begins "
                   "with it and has one token of text less. JSON: ids are the tokens as scored, "
                   "window by window; logprobs[t] is that of ids[t], null for the first of a "
                   "window; argmax[t] is the most likely token after ids[t]."},
    [CLI_TOKENIZE] = {"tokenize", "MODEL (-p TEXT | --file F | --decode --ids-file F)", 1, 1,
                      cli_run_tokenize, "text to ids and back",
                      "No special tokens are added, and none are read from the text, unless asked "
                      "for."},
    [CLI_RENDER] = {"render", "(MODEL | FILE.jinja) --messages F", 1, 1, cli_run_render,
                    "the chat template's text, to the byte",
                    "The messages file holds a JSON array of messages, or an object with "
                    "\"messages\" and other variables of the template."},
    [CLI_SERVE] = {"serve", "MODEL", 1, 1, cli_run_serve, "an OpenAI-compatible HTTP server",
                   "Prompts are read in chunks beside the answers that are under way, and "
                   "beginnings that come again are kept. It listens on loopback only, unless API "
                   "keys are given. SIGTERM and Ctrl-C finish what is in flight, a second one "
                   "stops; SIGHUP reads the keys again."},
    [CLI_LOAD] = {"load", "URL", 1, 1, cli_run_load,
                  "load on a server of OpenAI's interface, and how it bears it",
                  "Sends streaming requests and measures time to first token (TTFT), time per "
                  "output token (TPOT), inter-token latency (ITL) and end-to-end latency, with the "
                  "names of vLLM's benchmark. Without --rate and --trace every client sends its "
                  "next request when its last one is answered. With several --rate or --methods "
                  "each is run in turn; --svg draws TTFT and TPOT against the rate. Prompts are "
                  "random token ids, or pieces of --text; with --chat without a text, made-up "
                  "sentences. Ctrl-C ends the run early and reports what there is."},
    [CLI_BENCH] = {"bench", "(MODEL | --preset NAME | --peak)", 0, 1, cli_run_bench,
                   "speed, offline",
                   "Each --prompt length is read and continued --repeat times after a warm-up; the "
                   "medians are printed. With --batch N that many prompts are read, and continued "
                   "together, one token each a step; the time to first token is that of the last "
                   "of them. prefill_gflops counts the arithmetic that was done, model_gflops "
                   "that of the unmodified model with every layer, both by the second. --compare "
                   "alternates between the unmodified model and its SwiftKV forms. --peak measures "
                   "the machine; together with a model it adds the shares of the peak."},
    [CLI_COMPARE] = {"compare", "MODEL", 1, 1, cli_run_compare,
                     "the same prompts as SwiftKV and as the teacher",
                     "Both answers, the time to the first token and the memory for keys and "
                     "values. The prompts are generated documents with a question, or the text "
                     "of -p or --file, asked as a message where the model has a chat template. "
                     "The most likely token is always taken."},
    [CLI_EVAL] = {"eval", "MODEL --task NAME|FILE,...", 1, 1, cli_run_eval,
                  "what a model knows and finds, in figures",
                  "Asks the examples of tasks and prints metrics with their 95 % confidence "
                  "intervals. Tasks of our own are generated documents with held-out keys and "
                  "values: copy, edit, lines, kv, needle, variables, hops, table, labels, report, "
                  "log, or all. A file's fields decide how it is asked (docs/eval.md). Examples "
                  "too long for the context are skipped and counted. With --log and --resume a "
                  "run that was stopped goes on."},
    [CLI_TUNE] = {"tune", "MODEL --floor X (--text F | --task NAME|FILE,...)", 1, 1, cli_run_tune,
                  "the cheapest setting that keeps a model's quality",
                  "Tries the methods on your own data: the forms that the model's files hold and "
                  "those of --also, 8-bit weights, 8-bit keys and values, SnapKV. Each is asked "
                  "as eval asks, and timed as bench does. What keeps --floor of the plain model's "
                  "score at the least cost is printed with its command line. --weights and --kv "
                  "given say what is not tried. The times need a machine that does nothing "
                  "else. With --log and --resume a run that was stopped goes on."},
    [CLI_DISTILL] = {"distill", "[MODEL OUT]", 0, 2, cli_run_distill,
                     "recover a SwiftKV model from its own teacher",
                     "MODEL is a SwiftKV model with its teacher's weights, or any other with "
                     "--kv-layers. The student learns the teacher's distribution; only the "
                     "projections that SwiftKV adds are trained, unless --trainable says "
                     "otherwise. OUT is a new folder in the published layout; checkpoints lie in "
                     "OUT/checkpoint, and --resume goes on from the last good one with the same "
                     "losses as a run that was never stopped."},
    [CLI_TRAIN] =
        {"train", "[MODEL OUT]", 0, 2, cli_run_train, "train a model on text, or from scratch",
         "Every weight is trained on the next token. With --from-scratch MODEL is a "
         "folder with config.json and a tokenizer, and the weights begin at random. A recipe "
         "may divide a run into stages, with data and sequences of their own."},
    [CLI_DOCUMENTS] =
        {"documents", "", 0, 0, cli_run_documents, "generated documents to train and evaluate with",
         "Prints JSON lines: conversations over a generated text whose answers can "
         "be checked exactly. Document I is always the same for the same options. "
         "Tasks: tokens, repeat, copy, edit, lines, kv, needle, variables, hops, table, "
         "labels, report, log."},
    [CLI_VOCAB] = {"vocab", "OUT", 1, 1, cli_run_vocab, "learn a tokenizer",
                   "Learns a byte-level BPE from generated documents and texts, digits one by "
                   "one, and writes tokenizer.json and tokenizer_config.json with a chat template "
                   "to the folder OUT."},
    [CLI_HELP] = {"help", "[COMMAND]", 0, 1, cli_run_help, "this list, or a command's options",
                  NULL},
    [CLI_VERSION] = {"version", "", 0, 0, cli_run_version, "the version", NULL},
};

const cli_command_row *cli_command_at(size_t i)
{
    return i < CLI_COMMAND_COUNT ? &rows[i] : NULL;
}

cli_command cli_command_find(const char *name)
{
    size_t i = 0;
    while (i < CLI_COMMAND_COUNT && strcmp(rows[i].name, name) != 0) i++;
    return (cli_command)i;
}
