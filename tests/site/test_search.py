"""Search finds what a reader would type: the page that should come is among the first three, with a passage."""

import pytest

from tests.site.test_pages import COLOURS, LANDING, WITHOUT_COLOURS, violations

# What a reader types, and where the answer is: a chapter, a page of the back matter, or a term of the glossary.
EXPECTED = {
    "A/B test": "glossary",
    "alpha": "choosing-alpha",
    "API": "api/index",
    "artwork": "artwork",
    "attribution window": "late-clicks",
    "Bayesian": "glossary",
    "Bayesian optimisation": "reading-on",
    "Bellman": "sessions",
    "bootstrap": "large",
    "calibration": "static-recommender",
    "canary": "glossary",
    "catastrophic forgetting": "neural-bandits",
    "CCPA": "privacy",
    "circuit breaker": "production",
    "click-through rate": "static-recommender",
    "clickbait": "sessions",
    "cold start": "static-recommender",
    "concept drift": "glossary",
    "consent": "privacy",
    "contextual bandit": "linucb",
    "counterfactual": "production",
    "course": "teaching",
    "crash": "production",
    "CTR": "static-recommender",
    "deep Q-network": "sessions",
    "delay": "late-clicks",
    "delayed rewards": "late-clicks",
    "digits": "digits",
    "discount": "linucb",
    "disjoint": "linucb",
    "doubly robust": "production",
    "DQN": "sessions",
    "drift": "linucb",
    "dropout": "large",
    "e-greedy": "linucb",
    "effective sample size": "glossary",
    "embedding": "static-recommender",
    "ensemble": "large",
    "epsilon-greedy": "linucb",
    "exploration": "glossary",
    "explore exploit": "linucb",
    "exploration exploitation tradeoff": "glossary",
    "Faiss": "large",
    "fallback": "production",
    "fairness": "privacy",
    "feedback loop": "static-recommender",
    "further reading": "reading-on",
    "GDPR": "privacy",
    "grade": "teaching",
    "guardrail": "production",
    "hybrid": "practice",
    "hyperparameter": "glossary",
    "install": "quickstart",
    "importance weight": "production",
    "inverse propensity": "production",
    "IPS": "production",
    "LinUCB": "linucb",
    "LinUCBAgent": "api/agents",
    "log-loss": "static-recommender",
    "late clicks": "late-clicks",
    "logging policy": "production",
    "long-term value": "sessions",
    "Markov decision process": "sessions",
    "monitoring": "production",
    "multi-armed bandit": "glossary",
    "Netflix": "artwork",
    "neural network": "neural-bandits",
    "neural-linear": "neural-bandits",
    "NeuralUCB": "neural-bandits",
    "NeuralUCB paper": "neural-ucb-paper",
    "non-stationary": "glossary",
    "notation": "notation",
    "off-policy evaluation": "production",
    "one-hot": "linucb",
    "OPE": "glossary",
    "Open Bandit Dataset": "real-clicks",
    "optimism": "linucb",
    "overfitting": "static-recommender",
    "own data": "quickstart",
    "per-decision importance sampling": "sessions",
    "position bias": "evidence/production",
    "posterior": "linucb",
    "privacy": "privacy",
    "propensity": "production",
    "Q-learning": "sessions",
    "regret": "linucb",
    "reinforcement learning": "sessions",
    "replay": "neural-bandits",
    "restart": "save",
    "retraining": "production",
    "ridge": "linucb",
    "ridge regression": "linucb",
    "revenue": "revenue-and-lists",
    "rollout": "production",
    "SARSA": "sessions",
    "save": "save",
    "seed": "experiments",
    "sessions": "sessions",
    "Sherman-Morrison": "linucb",
    "shock": "static-recommender",
    "slate": "revenue-and-lists",
    "sliding window": "linucb",
    "snapshot": "production",
    "Thompson sampling": "practice",
    "tuning": "choosing-alpha",
    "two-stage retrieval": "large",
    "UCB": "glossary",
    "upper confidence bound": "linucb",
    "Vowpal Wabbit": "reading-on",
    "which agent": "which-agent",
    "which algorithm": "which-agent",
}
# The pages of the results, best first, by the function that fills the page of results.
FOUND = """query => Search._performSearch(...Search._parseQuery(query)).reverse().map(result => result[0])"""
FIRST = 3


@pytest.fixture(scope="module")
def found(browser, address):
    """For each of the words, the first pages that search names."""
    page = browser.new_page()
    page.goto(f"{address}search.html")
    page.wait_for_function("Search.hasIndex()")
    results = {words: page.evaluate(FOUND, words)[:FIRST] for words in EXPECTED}
    page.close()
    return results


@pytest.mark.parametrize("words", EXPECTED)
def test_search_finds_the_page(found, words):
    assert f"chapters/{EXPECTED[words]}" in found[words]


def test_what_is_shown_is_what_was_found(browser, address, found):
    """The page of results itself, once: the first result is the first link."""
    page = browser.new_page()
    page.goto(f"{address}search.html?q=Thompson+sampling")
    first = page.wait_for_selector("#search-results li a").get_attribute("href")
    assert found["Thompson sampling"][0] in first
    page.close()


def test_search_says_when_there_is_nothing(browser, address):
    page = browser.new_page()
    page.goto(f"{address}search.html?q=xylophone")
    page.wait_for_selector("text=did not match any documents")
    page.close()


# What stands under each result: what the index knows of a name, or else a passage, and the words marked in it.
SHOWN = """async words => {
  document.querySelector("#search-results").replaceChildren();
  Search.performSearch(words);
  const wanted = "#search-results li:not(:has(> span))", found = `${wanted} p.context`;
  const count = selector => document.querySelectorAll(selector).length;
  for (let wait = 0; wait < 200 && count(found) < count(wanted); wait++)
    await new Promise(resolve => setTimeout(resolve, 20));
  return [...document.querySelectorAll(wanted)].map(item => [
    item.querySelector("p.context")?.textContent ?? "",
    [...item.querySelectorAll("p .highlighted")].map(mark => mark.textContent).join(" "),
  ]);
}"""
# What is no prose: names of buttons, the TeX of formulas, headings run together.
RAW = (
    ".ipynb .whl",
    "Contents ",
    "\\(",
    "\\)",
    "\\[",
    "\\mathbf",
    "\\frac",
    "\\hat",
    "\\top",
)


@pytest.fixture(params=["http", "file"], scope="module")
def results(request, browser, address, site):
    """The page of results, of a server or opened as a file, and the faults that it reports."""
    root = address if request.param == "http" else f"{site.resolve().as_uri()}/"
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))
    page.goto(f"{root}search.html?q=propensity")
    page.wait_for_selector("#search-results p.context")
    yield page, faults
    page.close()


@pytest.mark.parametrize("words", EXPECTED)
def test_each_result_shows_a_passage_with_the_words(results, words):
    page, faults = results
    shown = page.evaluate(SHOWN, words)
    assert shown
    assert faults == []
    for text, marked in shown:
        # A single letter may be found in a formula alone.
        assert marked or "e-" in words, text
        assert 10 < len(text) < 320, text
        assert not any(raw in text for raw in RAW), text


@pytest.mark.parametrize(
    ("word", "met"), [("policies", "policy"), ("rewards", "reward")]
)
def test_a_passage_may_hold_another_form_of_the_word(results, word, met):
    page, _ = results
    assert any(met in marked.split() for _, marked in page.evaluate(SHOWN, word))


def test_a_term_is_shown_with_what_it_means(results):
    page, _ = results
    (text, _), *_ = page.evaluate(SHOWN, "propensity")
    assert text.startswith("propensity: The probability")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("place", ["main", "#pst-search-dialog"])
def test_the_magnifier_stands_before_the_words(browser, address, width, place):
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(address + ("search.html?q=regret" if place == "main" else LANDING))
    page.keyboard.press("Control+k")
    form = page.locator(f"{place} form")
    icon, field = (form.locator(part).bounding_box() for part in ("svg", "input"))
    assert icon["x"] > 0
    assert icon["x"] + icon["width"] <= field["x"]
    page.close()


def test_axe_finds_nothing_in_results(browser, address):
    page = browser.new_page()
    page.goto(f"{address}search.html?q=posterior")
    page.wait_for_selector("#search-results p.context")
    found = violations(page, WITHOUT_COLOURS)
    found += violations(page, COLOURS, "light") + violations(page, COLOURS, "dark")
    assert found == []
    page.close()
