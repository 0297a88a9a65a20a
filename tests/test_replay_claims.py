import pytest

import zoolib
from tests.book.building import whole
from tests.replay_claims import main, replay

PAGE = whole(
    """```{code-cell} python
from zoolib import Estimate, ZooplusSimulator, claim, sweep
SEEDS = range(3)
```

```{code-cell} python
---
tags: [hide-input]
---
total = sum(SEEDS)
print("not shown")
claim("moved", "The seeds add up to this.", total, equals=3, fmt="d", seeds=SEEDS)
claim("kept", "Each is a seed.", Estimate(0.5, 0.4, 0.6, 3), above=0.3, seeds=SEEDS)
claim("story", "The world of the text.", 42, equals=42, fmt="d", seeds=[42])
claim("sure", "One and one.", 1 + 1, equals=3, fmt="d")
```

```{code-cell} python
def by_alpha(path):
    return sweep({}, {}, SEEDS, 10, measures={}, path=path).table

total, table = 0, by_alpha("kept.jsonl")
claim("recorded", "A record has rows.", len(table), above=1, fmt="d", seeds=SEEDS)
```

```{code-cell} python
for key in ("a", "b"):
    claim(f"loop_{key}", "Needs the record.", len(table), above=1, fmt="d", seeds=SEEDS)
```

```{code-cell} python
claim("stale", "The total is out of date.", total, equals=3, fmt="d", seeds=SEEDS)
```

```{code-cell} python
rest = {}
rest["no"]
claim("behind", "Never comes.", 1, equals=1, fmt="d", seeds=SEEDS)
```

```{code-cell} python
from zoolib import RandomAgent, RecordedRuns, recorded_experiment

agents = {"random": RandomAgent(50, n_worlds=3)}
run = recorded_experiment("kept.xz", {"b": agents["random"]}, SEEDS, 10, by="arm", live=agents)
assert run.agents == ("random", "b")
def add_up():
    return {"of": sum(SEEDS)}

result = RecordedRuns("kept.json")(add_up)
claim("anew", "A result is computed.", result["of"], above=1500, fmt="d", seeds=SEEDS)
claim("again", "Recorded agents play.", sum(run.seeds), above=1500, fmt="d", seeds=SEEDS)
```

```{code-cell} python
claim("after", "The page goes on.", max(SEEDS), equals=502, fmt="d", seeds=SEEDS)
```
"""
)


CHANGED = ("claim", "sweep", "recorded_experiment", "RecordedRuns")


def test_a_page_is_replayed_in_other_worlds(tmp_path, capsys):
    page, before = tmp_path / "page.md", [getattr(zoolib, name) for name in CHANGED]
    page.write_text(PAGE)
    outcome = replay(page, 500)
    assert list(outcome.held) == ["kept", "story", "anew", "again", "after"]
    assert list(outcome.failed) == ["moved", "sure"]
    assert outcome.other == ["story", "sure"]
    assert outcome.left_out == ["recorded", "f'loop_{key}'", "stale", "behind"]
    assert outcome.broken == {"rest = {}": "KeyError('no')"}
    assert str(outcome).splitlines() == [
        "4 of 5 replayed claims hold",
        "  fails: moved: the claim does not hold: The seeds add up to this. "
        "Found moved: 1503, 3 worlds; wanted equal to 3",
        "  fails (other seeds): sure: the claim does not hold: One and one. "
        "Found sure: 2; wanted equal to 3",
        "  cell breaks off: rest = {}: KeyError('no')",
        "  2 claims about other seeds run as in the book",
        "  4 left out: recorded, f'loop_{key}', stale, behind",
    ]
    assert [getattr(zoolib, name) for name in CHANGED] == before
    said = capsys.readouterr()
    assert said.out == ""
    assert "KeyError: 'no'" in said.err
    assert list(replay(page, 0).failed) == ["sure", "anew", "again", "after"]


def test_a_page_without_worlds_and_an_unknown_chapter_are_refused(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("SEEDS = range(3)", "SEEDS = [1, 2, 3]"))
    with pytest.raises(ValueError, match="must have a cell with SEEDS = range"):
        replay(page, 500)
    for arguments in (["glossary"], ["evidence/linucb", "--first-seed", "-1"]):
        with pytest.raises(SystemExit):
            main(arguments)
        refused = capsys.readouterr().err
        assert "wanted any of earlier-notes, evidence/large, " in refused
        assert ", evidence/neural-bandits, " in refused


def test_a_cell_can_list_what_it_defines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        whole(
            """```{code-cell} python
from zoolib import claim, listing
SEEDS = range(3)

def twice(x):
    return 2 * x

shown = "return 2 * x" in listing(twice).data
claim("listed", "It shows the source.", int(shown), equals=1, fmt="d", seeds=SEEDS)
```
"""
        )
    )
    outcome = replay(page, 500)
    assert (list(outcome.held), outcome.broken) == (["listed"], {})
