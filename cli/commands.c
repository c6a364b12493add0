/* The table of commands. */
#include "commands.h"

#include <string.h>

#include "options.h"

static const cli_command_row rows[CLI_COMMAND_COUNT] = {
    [CLI_INFO] =
        {"info", "MODEL", 1, 1, "shape, memory, arithmetic per prompt token, what fits here",
         "MODEL is a Hugging Face folder, a GGUF file, preset:NAME, or the name of a model in "
         "the Hugging Face cache: org/name, org/name@revision, org/name:Q4_K_M. The weights are "
         "not "
         "read. With --kv-layers the model is shown in its SwiftKV form too. The last table says "
         "what memory running it takes by types of weights and of keys and values, what fits this "
         "machine, and what to choose."},
    [CLI_SIMILARITY] = {"similarity", "MODEL", 1, 1,
                        "how similar the inputs of the layers are (SimScore)",
                        "SimScore of layer l is the mean cosine similarity between its "
                        "input and the inputs of all later layers. If it is high, later "
                        "layers can take their keys and values from layer l."},
    [CLI_TRANSFORM] = {"transform", "MODEL OUT", 2, 2, "write a model in SwiftKV form",
                       "OUT is a new folder. The SwiftKV weights are initialised from the model's "
                       "own, as copies or (--init ridge) fitted to a text in closed form; "
                       "distillation then recovers its quality."},
    [CLI_QUANTIZE] = {"quantize", "MODEL OUT", 2, 2, "write a model with weights of 4 or 8 bits",
                      "OUT is a new folder with safetensors of compressed-tensors' layout "
                      "pack-quantized, which vLLM and transformers open too, or, if it ends in "
                      ".gguf, a GGUF file with Q4_0 or Q8_0. The projections of all layers are "
                      "quantised; embedding, head and norms stay as they are, but that matrices "
                      "outside the layers have 8 bits in GGUF files."},
    [CLI_GENERATE] = {"generate", "MODEL (-p TEXT | --file F | --ids-file F)", 1, 1,
                      "continue a text",
                      "Prints the generated text, or token ids if the model has no "
                      "tokenizer. An empty prompt stands for the token that begins a "
                      "text. Without sampling options, decoding is greedy."},
    [CLI_CHAT] = {"chat", "MODEL", 1, 1, "a conversation in the terminal",
                  "Ctrl-C stops an answer; at the prompt it ends the program, as "
                  "does the end of input. /reset clears the conversation, /stats "
                  "shows its cost, /help lists these commands. Without -n the model "
                  "decides where an answer ends."},
    [CLI_SCORE] = {"score", "MODEL (-p TEXT | --file F | --ids-file F)", 1, 1,
                   "log-probability of every token given the tokens before it",
                   "nll is the mean negative log-probability in nats over the scored "
                   "tokens, perplexity is exp(nll). Input longer than the context "
                   "(--ctx, else the model's) is split into consecutive windows "
                   "without overlap. The first token of a window has no score. Text "
                   "is tokenized as a whole; if the tokenizer begins a text with a "
                   "token (BOS), every window begins with it and has one token of "
                   "text less. JSON: ids are the tokens as scored, window by window; "
                   "logprobs[t] is that of ids[t], null for the first of a window; "
                   "argmax[t] is the most likely token after ids[t]."},
    [CLI_TOKENIZE] = {"tokenize", "MODEL (-p TEXT | --file F | --decode --ids-file F)", 1, 1,
                      "text to ids and back",
                      "By default it neither adds special tokens nor recognises them in "
                      "the text."},
    [CLI_RENDER] = {"render", "(MODEL | FILE.jinja) --messages F", 1, 1, "apply the chat template",
                    "Prints the prompt exactly as the model gets it. The messages file "
                    "holds a JSON array of messages, or an object with \"messages\" "
                    "and other variables of the template."},
    [CLI_CACHE] =
        {"cache", "explain MODEL REQUEST.json...", 3, CLI_OPERANDS_MAX,
         "tell why recorded requests miss the prompt cache",
         "Replays requests of clients as serve would read them, without computing "
         "anything, and prints for each how many tokens of its prompt earlier ones "
         "leave in the cache, where it parts from the nearest of them, and what the "
         "options of serve that change prompts or shift cached text would save. A file "
         "holds bodies of requests, one after the other, or objects with a \"path\" (/v1/messages, "
         "/v1/responses, /v1/chat/completions) and a \"body\"."},
    [CLI_SERVE] = {"serve", "MODEL [MODEL...]", 1, CLI_OPERANDS_MAX,
                   "an OpenAI-compatible HTTP server",
                   "NAME=MODEL names a model in the API. "
                   "Runs prompts in chunks between the tokens of running answers, and "
                   "caches prompt prefixes. It listens on loopback only, unless API "
                   "keys are given. SIGTERM and Ctrl-C finish the requests in flight; "
                   "a second one stops at once. SIGHUP reloads the keys."},
    [CLI_LOAD] = {"load", "URL", 1, 1, "measure an OpenAI-compatible server under load",
                  "Sends streaming requests and measures time to first token (TTFT), "
                  "time per output token (TPOT), inter-token latency (ITL) and "
                  "end-to-end latency, named as in vLLM's benchmark. Without --rate "
                  "and --trace every client sends its next request when its last one "
                  "is answered. Several --rate or --methods run one after the other; "
                  "--svg draws TTFT and TPOT against the rate. Prompts are random "
                  "token ids, or pieces of --text; with --chat and no text, "
                  "generated sentences. Ctrl-C ends the run early and reports the "
                  "results so far."},
    [CLI_BENCH] = {"bench", "(MODEL | --preset NAME | --peak)", 0, 1, "speed, without a server",
                   "Reads a prompt of each --prompt length and continues it, --repeat "
                   "times after a warm-up, and prints the medians. With --batch N it "
                   "reads that many prompts and continues them together, one token "
                   "each per step; the time to first token is that of the last of "
                   "them. prefill_gflops counts the arithmetic that ran, model_gflops "
                   "that of the unmodified model with every layer, both per second. "
                   "--compare alternates between the unmodified model and its SwiftKV "
                   "forms. --peak measures the machine; together with a model it adds "
                   "the shares of the peak."},
    [CLI_COMPARE] = {"compare", "MODEL", 1, 1, "the same prompts as SwiftKV and as the teacher",
                     "Prints both answers, their times to first token, and the memory "
                     "of their keys and values. The prompts are generated documents "
                     "with a question, or the text of -p or --file, sent as a message "
                     "if the model has a chat template. Decoding is greedy."},
    [CLI_EVAL] = {"eval", "MODEL --task NAME|FILE,...", 1, 1, "measure the quality of a model",
                  "Runs the examples of tasks and prints metrics with their 95 % "
                  "confidence intervals. Built-in tasks are generated documents with "
                  "held-out keys and values: copy, edit, lines, kv, needle, "
                  "variables, hops, table, labels, report, log, or all. The fields "
                  "of a file decide how it is asked (docs/reference/tasks.md). "
                  "Examples that do not fit the context are skipped and counted. "
                  "--log and --resume continue an interrupted run."},
    [CLI_TUNE] = {"tune", "MODEL --floor X (--text F | --task NAME|FILE,...)", 1, 1,
                  "find the cheapest setting that keeps a model's quality",
                  "Tries the methods on your own data: the forms that the model's "
                  "files hold and those of --also, 8-bit and 4-bit weights, 8-bit keys and "
                  "values, and SnapKV. Each is scored as by eval and timed as by "
                  "bench. The cheapest that keeps --floor of the unmodified model's "
                  "score is printed with its command line. Types given by --weights "
                  "and --kv are fixed, not tried. Run it on an idle machine, because "
                  "it measures times. --log and --resume continue an interrupted "
                  "run."},
    [CLI_DISTILL] = {"distill", "[MODEL OUT]", 0, 2, "distil a SwiftKV model from its own teacher",
                     "MODEL is a SwiftKV model with its teacher's weights, or any other "
                     "model with --kv-layers. The student learns the teacher's "
                     "distribution. Only the projections that SwiftKV adds are trained, "
                     "unless --trainable says otherwise. OUT is a new folder in the "
                     "published layout. Checkpoints are in OUT/checkpoint; --resume "
                     "continues from the last good one with the same losses as an "
                     "uninterrupted run."},
    [CLI_TRAIN] = {"train", "[MODEL OUT]", 0, 2, "train a model on text, or from scratch",
                   "Trains all weights on next-token prediction. With --from-scratch, "
                   "MODEL is a folder with config.json and a tokenizer, and the "
                   "weights start at random. A recipe can divide a run into stages "
                   "with their own data and sequence lengths."},
    [CLI_DOCUMENTS] =
        {"documents", "", 0, 0, "generated documents to train and evaluate with",
         "Prints JSON lines: conversations over a generated text whose answers can "
         "be checked exactly. Document I is always the same for the same options. "
         "Tasks: tokens, repeat, copy, edit, lines, kv, needle, variables, hops, table, "
         "labels, report, log."},
    [CLI_VOCAB] = {"vocab", "OUT", 1, 1, "train a tokenizer",
                   "Trains a byte-level BPE with single digits on generated documents "
                   "and texts, and writes tokenizer.json and tokenizer_config.json "
                   "with a chat template to the folder OUT."},
    [CLI_DEVICES] = {"devices", "", 0, 0, "where models can be computed",
                     "Lists the devices that this build knows: what it finds of each, its memory "
                     "and how much of it this process may take, or why it cannot be used. A device "
                     "whose results are not exact in every way is refused where that would change "
                     "answers."},
    [CLI_DOCTOR] =
        {"doctor", "[MODEL]", 0, 1, "what this machine allows, what to change, which models fit",
         "Prints the processor and the kernels in use, threads, memory, huge pages, the "
         "limits of this process and of running servers, and where models are looked "
         "up. What slows the program or limits it has a line that says how to change "
         "it. Then it says with which weights and contexts models of three sizes fit "
         "this machine or, as info does, what MODEL takes. --report prints something else: "
         "what to send with a report of a problem."},
    [CLI_HELP] = {"help", "[COMMAND]", 0, 1, "this list, or a command's options", NULL},
    [CLI_VERSION] = {"version", "", 0, 0, "the version", NULL},
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
