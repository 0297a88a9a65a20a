// The page of search results. Sphinx's own script finds the pages (searchtools.js); this one writes under each
// a passage of it that holds the words. The passages come from scripts of their own (see _ext/passages.py):
// where a book is opened as files, a page can load a script but cannot fetch another page.
"use strict";

const passages = {};

(() => {
  const LENGTH = 240; // of a passage, in letters
  const NEAR = 10; // of what follows an anchor, so many passages belong to it
  const WORD = /[\p{Letter}\p{Number}_]+/gu;
  const stemmer = new Stemmer(), stems = new Map();

  // Who asks for alpha or beta finds α and β.
  const GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho " +
    "sigma sigma tau upsilon phi chi psi omega"
  ).split(" ");
  const named = word => GREEK[word.codePointAt(0) - "α".codePointAt(0)] ?? word;

  const stem = word => {
    if (!stems.has(word)) stems.set(word, stemmer.stemWord(named(word.toLowerCase())));
    return stems.get(word);
  };

  // How well a word meets one that was asked for: the index holds stems, and finds parts of them too.
  const meets = (word, term) =>
    stem(word) === term ? 2 : term.length > 2 && stem(word).includes(term) ? 1 : 0;

  const worth = ([, prose, text], terms) => {
    const found = text.match(WORD) ?? [];
    const each = terms.map(term => Math.max(0, ...found.map(word => meets(word, term))));
    return 2 * each.reduce((sum, one) => sum + one, 0) + (prose ? 1 : 0);
  };

  // The best passage near an anchor, or of the whole page; of equals, the first.
  const choose = (all, anchor, terms) => {
    const at = anchor ? all.findIndex(([anchors]) => anchors.split(" ").includes(anchor)) : -1;
    const near = at < 0 ? all : all.slice(at, at + NEAR);
    let best = null, most = 0;
    for (const one of near) {
      const value = worth(one, terms);
      if (value > most) [best, most] = [one, value];
    }
    return most > 1 || near === all ? best : choose(all, "", terms);
  };

  // A piece of the text around the first word that was asked for, with all of them marked.
  const excerpt = (text, terms) => {
    const marked = [...text.matchAll(WORD)].filter(([word]) => terms.some(term => meets(word, term)));
    let start = Math.max(0, (marked[0]?.index ?? 0) - LENGTH / 2);
    if (start) start = text.indexOf(" ", start) + 1;
    let end = text.length;
    if (end > start + LENGTH) end = text.lastIndexOf(" ", start + LENGTH);
    const line = document.createElement("p");
    line.className = "context";
    let at = start;
    line.append(start ? "… " : "");
    for (const { 0: word, index } of marked.filter(found => found.index < end)) {
      const mark = document.createElement("span");
      mark.className = "highlighted";
      mark.append(word);
      line.append(text.slice(at, index), mark);
      at = index + word.length;
    }
    line.append(text.slice(at, end), end < text.length ? " …" : "");
    return line;
  };

  const show = ([page, , anchor], item, terms) => {
    const add = () => {
      const best = choose(passages[page], anchor.slice(1), terms);
      if (best) item.append(excerpt(best[2], terms));
    };
    if (page in passages) return add();
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.content_root}_passages/${page}.js`;
    script.onload = add;
    document.head.append(script);
  };

  Search.query = query => {
    const [asked, terms, ...others] = Search._parseQuery(query);
    const results = Search._performSearch(asked, terms, ...others);
    for (const result of results.reverse()) {
      _displayItem(result, terms, others[1]);
      const described = result[3];
      if (!described) show(result, Search.output.lastElementChild, [...terms].map(named));
    }
    _finishSearch(results.length);
  };
})();
