// height: 41rem 52rem
// Chapter 7: what the best session and the best next click earn, and show, by the carry-over.
"use strict";

const Carry = (() => {
  const dot = (u, v) => u.reduce((total, value, i) => total + value * v[i], 0);

  /** Place of the largest number; of those that are equal but for rounding the first, so that plain wins. */
  const best = (values) => values.reduce((at, value, i) => (value > values[at] + 1e-9 ? i : at), 0);

  /** Click probabilities by intent and product: plain ones by category, then their glossy twins. */
  function clicks(plain, gloss) {
    return plain.map((row) => [...row, ...row.map((q) => q + gloss * (1 - q))]);
  }

  /**
   * Action values by patience, intent and product, by value iteration: of the best session, or of `shown`,
   * a product for each intent.
   */
  function actionValues({ plain, drift, companion, patience }, { chi, gloss, fade }, shown) {
    const click = clicks(plain, gloss);
    const worth = (q) => q.map((row, y) => (shown ? row[shown[y]] : Math.max(...row)));
    const levels = [];
    let below = plain.map(() => 0); // without patience the session is over
    for (let m = 1; m <= patience; m++) {
      let [q, value, change] = [null, below, 1];
      while (change > 1e-10) {
        const own = drift.map((row) => (1 - fade) * dot(row, value) + fade * dot(row, below));
        q = click.map((row, y) => row.map((p, a) => {
          const found = a < companion.length ? p : 0;
          const led = found ? found * value[companion[a]] + (1 - found) * below[y] : below[y];
          return p + (1 - chi) * own[y] + chi * led;
        }));
        const next = worth(q);
        change = Math.max(...next.map((v, y) => Math.abs(v - value[y])));
        value = next;
      }
      levels.push(q);
      below = value;
    }
    return levels;
  }

  /** Clicks of a session of both oracles, and what they show: the best session's products by patience. */
  function oracles(world, setting) {
    const next = clicks(world.plain, setting.gloss).map(best);
    const ahead = actionValues(world, setting);
    const behind = actionValues(world, setting, next);
    return {
      next,
      ahead: ahead.map((level) => level.map(best)),
      nextClicks: dot(world.start, behind.at(-1).map((row, y) => row[next[y]])),
      aheadClicks: dot(world.start, ahead.at(-1).map((row) => Math.max(...row))),
    };
  }

  return { oracles };
})();

Interactive.register("carry", (figure, { personas, categories, companion, patience, worlds }) => {
  const { element, number, percent } = Interactive;
  const places = Array.from({ length: 21 }, (_, i) => i / 20);
  const nIntents = categories.length;
  const names = personas.map((name) => name.replaceAll("_", " "));
  const persona = figure.choice({ label: "Persona", options: names });
  const chi = figure.slider({
    label: "Carry-over χ", min: 0, max: 1, step: 0.05, value: 0.7, format: Interactive.fixed(2),
  });
  const gloss = figure.slider({
    label: "Share that gloss wins", min: 0, max: 0.5, step: 0.05, value: 0.25, format: percent,
  });
  const fade = figure.slider({
    label: "Patience falling by itself", min: 0.3, max: 0.8, step: 0.1, value: 0.5, format: percent,
  });
  const plot = figure.plot({
    label: "Clicks per session against the carry-over, for the best session and the best next click.",
    height: 260,
    x: { label: "carry-over χ", domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1] },
    y: { label: "clicks per session" },
  });
  figure.legend([
    { label: "best session", color: "green" },
    { label: "best next click", color: "orange", dash: "6 4" },
  ]);
  const cell = (tag, words, scope) => element(tag, { scope }, words);
  const heads = ["Best next click", `Best session, patience ${patience}`, "Best session, patience 1"];
  const rows = categories.map((name) => element("tr", {}, cell("th", name, "row")));
  const head = element("tr", {}, cell("td", "Wanted now"), ...heads.map((words) => cell("th", words, "col")));
  const title = element("caption", {}, "What the two oracles show");
  figure.root.append(element("table", { class: "interactive-tiles" },
    title, element("thead", {}, head), element("tbody", {}, ...rows)));
  const say = figure.summary();

  return () => {
    const world = { ...worlds[persona.value], companion, patience };
    const at = (place) => Carry.oracles(world, { chi: place, gloss: gloss.value, fade: fade.value });
    const [found, here] = [places.map(at), at(chi.value)];
    const top = Math.max(6, 2 * Math.ceil(Math.max(...found.map((one) => one.aheadClicks)) / 2));
    plot.draw((pen) => {
      pen.line([[chi.value, 0], [chi.value, top]], { color: "muted", width: 1, dash: "2 3" });
      for (const [key, color, dash] of [["aheadClicks", "green"], ["nextClicks", "orange", "6 4"]]) {
        pen.line(found.map((one, i) => [places[i], one[key]]), { color, dash });
        pen.points([[chi.value, here[key]]], { color });
      }
    }, { y: { domain: [0, top] } });
    const glossy = (product) => product >= nIntents;
    const words = (product) => `${glossy(product) ? "glossy" : "plain"} ${categories[product % nIntents]}`;
    rows.forEach((row, y) => {
      const shown = [here.next[y], here.ahead.at(-1)[y], here.ahead[0][y]];
      row.replaceChildren(row.firstChild, ...shown.map((product) =>
        element("td", glossy(product) ? { style: "--share: 25%" } : {}, words(product))));
    });
    const kept = here.ahead.at(-1).filter((product, y) => product === here.next[y]).length;
    const lost = Math.max(0, 1 - here.nextClicks / here.aheadClicks); // never minus zero
    say(
      `The best session earns ${number(here.aheadClicks, 2)} clicks, the best next click ` +
        `${number(here.nextClicks, 2)}: ${percent(lost)} are lost. At full patience they show the same ` +
        `product for ${kept || "none"} of ${nIntents} intents.`,
    );
  };
});
