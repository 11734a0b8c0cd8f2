"""The table, and where code mode loses."""

HEAD = """# Tokens and round trips: direct calls against code mode

Written by `study/run HOTCELL`; do not edit. Each task was done for real, by direct calls of the servers' tools and by
two scripts of `run_python` (one that looks up the tools it needs, one that does the work), with the same answer. Tokens are those of
Mistral's Tekken tokenizer (PyPI `mistral-common`). No model takes part: its thoughts and the user's question are left out of both.

- **definitions**: the tools that the model is given, once. In code mode (`--toolsets codemode`) that is one tool, whatever servers
  there are; Hotcell's other tools would come on top.
- **content**: the calls that the model writes and the results that it reads, once.
- **processed**: what the model reads in all its turns together, since each turn reads everything before it. Prompt caching makes
  this cheaper, and not free.
- **rounds**: answers of tools that the model waits for. Calls that do not need each other are one round.

![processed tokens](tokens.svg)

| task | | definitions | content | processed | rounds |
|---|---|---:|---:|---:|---:|
"""


def row(name, kind, figures):
    cells = [f"{figures[key]:,}" for key in ("definitions", "content", "processed", "rounds")]
    return f"| {name} | {kind} | " + " | ".join(cells) + " |\n"


def losses(rows):
    """Where code mode is worse, by what and how much."""
    for task, direct, script in rows:
        worse = []
        for key, word in (("content", "tokens of content"), ("processed", "tokens processed")):
            if script[key] > direct[key]:
                worse.append(f"{script[key] - direct[key]:,} more {word} ({script[key] / direct[key]:.1f} times)")
        if script["rounds"] > direct["rounds"]:
            worse.append(f"{script['rounds'] - direct['rounds']} more round{'s' * (script['rounds'] - direct['rounds'] > 1)}")
        if worse:
            yield f"- **{task.name}**: {', '.join(worse)}.\n"


def report(rows):
    text = HEAD
    for task, direct, script in rows:
        text += row(task.name, "direct", direct) + row("", "code mode", script)
    text += "\n## Where code mode loses\n\n" + ("".join(losses(rows)) or "Nowhere in these tasks.\n")
    text += """
A single short call costs more tokens of content and a round more: the script, the look-up before it and the answer around the
result are longer than the call. What the model has to read word by word gains nothing: the script comes on top of the text. Where
a server has few tools, or they are cached, this is all there is, and direct calls are better. The look-up is a round of its own only
for tools that the model does not know yet. Code mode wins where results are long and the answer is short, where many tools
would have to be described, and where many calls are made.
"""
    return text
