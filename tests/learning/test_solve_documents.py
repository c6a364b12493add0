#!/usr/bin/env python3
"""Solves generated documents from their text alone and compares with the answers they claim."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"
# Texts of a document that differ from task to task; each solver sees context and question.
CATEGORIES = (
    "animals foods tools clothes vehicles instruments plants places".split()
)


def words_of_categories():
    text = (ROOT / "src/learning/data/doc_words.c").read_text()
    found = {}
    for name in CATEGORIES:
        body = re.search(rf"\b{name}\[\] = {{(.*?)}};", text, re.S).group(1)
        found[name] = re.findall(r'"([^"]+)"', body)
    return found


def passages(context):
    return {name: text.split() for name, text in re.findall(r"^\[(\w+)\] (.*)$", context, re.M)}


def solve_copy(context, question):
    (name,) = re.fullmatch(r"Repeat passage (\w+)\.", question).groups()
    return " ".join(passages(context)[name])


def solve_edit(context, question):
    known = passages(context)

    def match(pattern):
        return re.fullmatch(pattern, question)

    if m := match(r"Repeat passage (\w+) backwards, word by word\."):
        return " ".join(reversed(known[m[1]]))
    if m := match(r"Repeat passage (\w+) with (\w+) instead of (\w+)\."):
        return " ".join(m[2] if word == m[3] else word for word in known[m[1]])
    if m := match(r"Repeat passage (\w+) without the word (\w+)\."):
        return " ".join(word for word in known[m[1]] if word != m[2])
    if m := match(r"What is the (first|last) word of passage (\w+)\?"):
        return known[m[2]][0 if m[1] == "first" else -1]
    m = match(r"Which word follows (\w+) in passage (\w+)\?")
    return known[m[2]][known[m[2]].index(m[1]) + 1]


def solve_lines(context, question):
    key = re.fullmatch(r"What is the <REGISTER_CONTENT> in line (.+)\?", question)[1]
    return dict(re.findall(r"^line (.+): REGISTER_CONTENT is <(\d+)>$", context, re.M))[key]


def solve_kv(context, question):
    key = re.fullmatch(r"What is the (?:value|code) of (.+)\?", question)[1]
    pairs = re.findall(r'^"(\S+)": "(\S+)",$', context, re.M)
    pairs += re.findall(r"^(\S+) (?:=|->) (\S+)$", context, re.M)
    pairs += re.findall(r"^The code of (\S+) is (\S+)\.$", context, re.M)
    return dict(pairs)[key]


def solve_needle(context, question):
    key = re.fullmatch(r"What is the secret number of the (.+)\?", question)[1]
    return dict(re.findall(r"The secret number of the ([^.]+?) is (\d+)\.", context))[key]


def solve_variables(context, question):
    name = re.fullmatch(r"Which number is (\S+)\?", question)[1]
    values = dict(re.findall(r"^(\S+) = (\S+)$", context, re.M))
    while not name.isdigit():
        name = values[name]
    return name


def solve_hops(context, question):
    city = dict(re.findall(r"^(.+) is based in (.+)\.$", context, re.M))
    works = dict(re.findall(r"^(\w+ \w+) works for ([^.]+)\.", context, re.M))
    manager = dict(re.findall(r"The manager of (\w+ \w+) is (\w+ \w+)\.", context))
    if m := re.fullmatch(r"Who is the manager of (.+)\?", question):
        return manager[m[1]]
    m = re.search(r"does (the manager of )?(\w+ \w+) work", question)
    company = works[manager[m[2]] if m[1] else m[2]]
    return city[company] if question.startswith("In which city") else company


def solve_table(context, question):
    rows = [line.strip("| ").split(" | ") for line in context.splitlines() if line[:1] == "|"][1:]
    if m := re.fullmatch(r"How many units does order (\w+) have\?", question):
        return next(row[3] for row in rows if row[0] == m[1])
    if m := re.fullmatch(r"Which city is order (\w+) for\?", question):
        return next(row[1] for row in rows if row[0] == m[1])
    if m := re.fullmatch(r"How many orders are for (\w+)\?", question):
        return str(sum(row[1] == m[1] for row in rows))
    if m := re.fullmatch(r"How many orders of (\w+) are for (\w+)\?", question):
        return str(sum(row[2] == m[1] and row[1] == m[2] for row in rows))
    if m := re.fullmatch(r"How many units of (\w+) go to (\w+) in all\?", question):
        return str(sum(int(row[3]) for row in rows if row[2] == m[1] and row[1] == m[2]))
    most = re.fullmatch(r"Which order has the (most|fewest) units\?", question)[1] == "most"
    return (max if most else min)(rows, key=lambda row: int(row[3]))[0]


def solve_labels(context, question):
    word = re.fullmatch(r"word: (\w+) label:", question)[1]
    examples = re.findall(r"^word: (\w+) label: (\S+)$", context, re.M)
    lists = words_of_categories()
    labels = set()
    for name, members in lists.items():
        found = {label for shown, label in examples if shown in members}
        others = {label for shown, label in examples if shown not in members}
        if word in members:
            labels |= found - others or found
    (label,) = labels if len(labels) == 1 else (None,)
    return label


def solve_report(context, question):
    for report in context.splitlines():
        m = re.match(r"Report of (\w+ \w+) for (\d+)\.", report)
        if not m:
            continue
        chief = re.search(r"The chief executive is (\w+ \w+)\.|(\w+ \w+) led the company", report)
        chief = chief[1] or chief[2]
        profit = re.search(r"[Pp]rofit (?:reached )?(\d+) million", report)[1]
        revenue = re.search(r"(?:Revenue was|revenue of) (\d+) million", report)[1]
        staff = re.search(r"employed (\d+) people", report)[1]
        answers = {
            f"Who led {m[1]}?": chief,
            f"Which company did {chief} lead?": m[1],
            f"What was the revenue of {m[1]} in million?": revenue,
            f"What was the profit of {m[1]} in million?": profit,
            f"How many people did {m[1]} employ?": staff,
            f"Which year is the report of {m[1]} for?": m[2],
        }
        if question in answers:
            return answers[question]
    return None


def solve_log(context, question):
    pattern = r"^(\S+) (\w+) (\S+) request (\d+) took (\d+) ms$"
    for time, level, service, request, took in re.findall(pattern, context, re.M):
        answers = {
            f"Which service handled request {request}?": service,
            f"How many ms did request {request} take?": took,
            f"At what time was request {request}?": time,
            f"What is the level of request {request}?": level,
        }
        if question in answers:
            return answers[question]
    return None


def documents(*options):
    command = [PROGRAM, "documents", *map(str, options)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200).stdout
    return [json.loads(line) for line in out.splitlines()]


class SolveTest(unittest.TestCase):
    def check(self, task, context, question, answer):
        self.assertEqual(globals()[f"solve_{task}"](context, question), answer, question)

    def test_every_answer(self):
        """Labels of words in two categories are left out: both answers would be right."""
        tasks = "copy edit lines kv needle variables hops table labels report log".split()
        for task in tasks:
            asked = 0
            for doc in documents("--tasks", task, "--count", 80, "--tokens-max", 700):
                messages = [message["content"] for message in doc["messages"]]
                context, _, messages[0] = messages[0].rpartition("\n")
                self.assertEqual(len(set(messages[0::2])), len(messages[0::2]), "a question came again")
                for question, answer in zip(messages[0::2], messages[1::2]):
                    with self.subTest(task=task):
                        self.check(task, context, question, answer)
                    asked += 1
            self.assertGreater(asked, 80, task)

    def test_evaluation(self):
        options = ("--evaluation", "--count", 300, "--tokens-min", 500, "--tokens-max", 600)
        tasks = "lines,kv,needle,variables,hops,table,report,log,copy,edit"
        depths = []
        for doc in documents("--tasks", tasks, *options):
            context, _, question = doc["prompt"].rpartition("\n")
            self.check(doc["task"], context, question, doc["answer"])
            self.assertLessEqual(doc["length"], 600)
            depths.append(doc["depth"])
        self.assertLess(min(depths), 0.1)
        self.assertGreater(max(depths), 0.85)

    def test_repeats_repeat(self):
        """Whatever is learnt stood in the text before."""
        for doc in documents("--tasks", "tokens,repeat", "--count", 400):
            before = ""
            learnt = 0
            for segment in doc["segments"]:
                if segment["loss"]:
                    self.assertIn(segment["text"], before)
                    learnt += 1
                before += segment["text"]
            self.assertGreater(learnt, 0)


if __name__ == "__main__":
    unittest.main()
