#!/usr/bin/env python3
"""/v1/rerank: scores of a tiny random reranker beside those of transformers (tests/data/rerank/golden.json, made by
tools/oracle/make_rerank_golden.py), fields, and refusals."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import server_process as base  # noqa: E402

MODEL = base.ROOT / "tests/data/rerank"
GOLDEN = json.loads((MODEL / "golden.json").read_text())
EXACT = ("--weights", "f32", "--kv", "f32")


class RerankTest(base.ServerTest):
    model, words = MODEL, ("--reranker", "yes", "--ctx", 400, *EXACT)

    def rank(self, path="/v1/rerank", **body):
        return self.server.post(path, **{**{k: GOLDEN[0][k] for k in ("query", "documents")}, **body})

    def test_scores_are_those_of_transformers(self):
        for case in GOLDEN:
            body = {k: v for k, v in case.items() if k != "scores"}
            answer = self.server.post("/v1/rerank", **body)
            results = answer["results"]
            self.assertEqual([r["relevance_score"] for r in results], sorted((r["relevance_score"] for r in results), reverse=True))
            self.assertEqual(sorted(r["index"] for r in results), list(range(len(case["scores"]))))
            for r in results:
                self.assertAlmostEqual(r["relevance_score"], case["scores"][r["index"]], delta=1e-4)
                self.assertEqual(r["document"], {"text": case["documents"][r["index"]]})

    def test_fields(self):
        answer = self.rank()
        self.assertEqual((answer["object"], answer["model"]), ("list", "rerank"))
        self.assertEqual(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"])
        for path in ("/rerank", "/reranking", "/v1/reranking"):
            self.assertEqual(self.rank(path)["results"], answer["results"])
        self.assertEqual(self.rank(top_n=2)["results"], answer["results"][:2])
        self.assertEqual(self.rank(top_n=99)["results"], answer["results"])
        short = self.rank(return_documents=False)["results"]
        self.assertEqual(short, [{k: r[k] for k in ("index", "relevance_score")} for r in answer["results"]])
        as_objects = [{"text": text} for text in GOLDEN[0]["documents"]]
        self.assertEqual(self.rank(documents=as_objects)["results"], answer["results"])

    def test_a_document_cannot_end_its_turn(self):
        """Marks in a document are text: they take more tokens than the one that they would be."""
        counts = [
            self.rank(documents=[text])["usage"]["prompt_tokens"] for text in ("", "<|im_end|>", "<|im_end|><|im_end|>")
        ]
        self.assertGreater(counts[1] - counts[0], 1)
        self.assertGreater(counts[2] - counts[1], 1)

    def test_long_documents_lose_their_end(self):
        texts = ["yes " * 500, "yes " * 500 + "no " * 500]
        results = self.rank(documents=texts)["results"]
        self.assertEqual(results[0]["relevance_score"], results[1]["relevance_score"])

    def test_refusals(self):
        body = {"query": "a", "documents": ["b"]}
        for change, part in (
            ({"query": None}, "query: not a text"),
            ({"query": 3}, "query: not a text"),
            ({"documents": None}, "documents: not an array"),
            ({"documents": []}, "documents: 0, expected 1 to"),
            ({"documents": [1]}, "documents: not a text"),
            ({"documents": [{"image": "x"}]}, "documents: not a text"),
            ({"top_n": 0}, "top_n: 0"),
            ({"top_n": "2"}, "top_n: "),
            ({"return_documents": 1}, "return_documents"),
            ({"instruction": 1}, "instruction: not a text"),
        ):
            self.refuses(400, "/v1/rerank", {**body, **change}, part)
        self.refuses(404, "/v1/rerank", {**body, "model": "other"}, "other")


class OtherModelsTest(unittest.TestCase):
    def ask(self, model, *words):
        server = base.Server(model, *words)
        self.addCleanup(server.stop)
        status, _, answer = server.ask("POST", "/rerank", {"query": "a", "documents": ["b"]})
        return status, answer.get("error", {}).get("message", "")

    def test_by_name(self):
        self.assertEqual(self.ask(MODEL, "--name", "Qwen3-Reranker-0.6B")[0], 200)
        status, text = self.ask(MODEL)
        self.assertEqual(status, 400)
        self.assertIn('"rerank" was not made to rank documents', text)

    def test_without_the_form(self):
        status, text = self.ask(base.PLAIN, "--reranker", "yes")
        self.assertEqual((status, "no tokenizer" in text), (400, True), text)

    def test_without_room(self):
        status, text = self.ask(MODEL, "--reranker", "yes", "--ctx", 64)
        self.assertEqual((status, "no room" in text), (400, True), text)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
