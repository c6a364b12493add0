"""A tiny random reranker in Qwen3-Reranker's form, and the scores that transformers gives its documents.

    python tools/oracle/make_rerank_golden.py [--out tests/data/rerank]

The scores are made as the model card of Qwen3-Reranker tells: form and texts are tokenized apart, and a score is the
softmax of the last token's logits of "yes" and "no". float64, from the file as written.
"""

import argparse
import json
import pathlib

import tokenizers
import torch
import transformers

import make_models

BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CASES = (
    {
        "query": "What is a panda?",
        "documents": [
            "hi",
            "it is a bear",
            "The giant panda is a bear species endemic to China.",
            "Gravity attracts two bodies towards each other.",
        ],
    },
    {"query": "yes or no", "documents": ["no", "yes", "maybe\n\n", "Zürich, 東京"], "instruction": "Find the same word"},
)


def make_tokenizer(folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["yes no yes no " * 20 + BEFORE + INSTRUCTION, "yes", "no"], trainer)
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.save_pretrained(folder)
    return made


def make_model(folder, vocab):
    torch.manual_seed(3)
    config = transformers.Qwen3Config(
        vocab_size=vocab,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.25,
    )
    transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


@torch.no_grad()
def scores_of(model, tokenizer, case):
    before, behind = (tokenizer.encode(text, add_special_tokens=False) for text in (BEFORE, BEHIND))
    words = [tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")]
    scores = []
    for document in case["documents"]:
        text = "<Instruct>: {}\n<Query>: {}\n<Document>: {}".format(
            case.get("instruction", INSTRUCTION), case["query"], document
        )
        ids = before + tokenizer.encode(text, add_special_tokens=False) + behind
        with make_models.AllFloat64():
            logits = model(torch.tensor([ids])).logits[0, -1, words]
        scores.append(round(torch.softmax(logits, 0)[1].item(), 9))
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/rerank")
    args = parser.parse_args()
    tokenizer = make_tokenizer(args.out)
    make_model(args.out, len(tokenizer))
    model = make_models.load_float64(args.out)
    cases = [{**case, "scores": scores_of(model, tokenizer, case)} for case in CASES]
    (args.out / "golden.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
