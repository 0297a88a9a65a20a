// height: 39rem 48rem
// Chapter 1: what a frozen recommender and the oracle earn while the taste of one persona changes.
"use strict";

const Shock = {
  /** Click probabilities when the shock has gone part of the way. */
  taste({ tastes: [before, after] }, part) {
    return before.map((p, i) => (1 - part) * p + part * after[i]);
  },

  /** Clicks per visit of the frozen network and of the oracle. */
  values(shock, part) {
    const now = Shock.taste(shock, part);
    return {
      frozen: shock.rest[0] + Interactive.sum(shock.shown.map((share, i) => share * now[i])),
      oracle: shock.rest[1] + Interactive.sum(shock.shown) * Math.max(...now),
    };
  },
};

Interactive.register("shock", (figure, { categories, shocks }) => {
  const { number, percent } = Interactive;
  const parts = Array.from({ length: 101 }, (_, i) => i / 100);
  const chosen = figure.choice({ label: "Shock", options: ["first", "second"] });
  const part = figure.slider({
    label: "How far the taste has changed", min: 0, max: 1, step: 0.05, value: 0.5, format: percent,
  });
  const tastes = figure.plot({
    label: "Click probability of each category, before and now.",
    height: 240,
    x: { label: "click probability; bars: part of the persona", domain: [0, 1] },
    y: Interactive.named(categories),
  });
  figure.legend([
    { label: "before", color: "muted", shape: "square" },
    { label: "now", color: "blue", shape: "circle" },
    { label: "part of the persona that is shown it", color: "orange", shape: "bar" },
  ]);
  const earned = figure.plot({
    label: "Clicks per visit against the size of the shock, for oracle and network.",
    height: 240,
    x: { label: "how far the taste has changed", domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: percent },
    y: { label: "clicks per visit", domain: [0.4, 0.65] },
  });
  const say = figure.summary();

  return () => {
    const shock = shocks[chosen.value];
    const now = Shock.taste(shock, part.value);
    const visits = Interactive.sum(shock.shown);
    tastes.draw((pen) => {
      categories.forEach((_, i) => {
        const share = shock.shown[i] / visits;
        pen.tile([0, share], [i + 0.3, i - 0.3], { color: "orange", opacity: 0.25 });
        pen.line([[shock.tastes[0][i], i], [now[i], i]], { color: "muted" });
        pen.points([[shock.tastes[0][i], i]], { color: "muted", shape: "square" });
        pen.points([[now[i], i]]);
      });
    });
    const at = parts.map((p) => Shock.values(shock, p));
    const here = Shock.values(shock, part.value);
    earned.draw((pen) => {
      const looks = { oracle: ["green", "oracle", -8], frozen: ["orange", "network", 18] };
      pen.line([[part.value, 0], [part.value, 1]], { color: "muted", width: 1, dash: "6 4" });
      for (const [name, [color, label, dy]] of Object.entries(looks)) {
        pen.line(parts.map((p, i) => [p, at[i][name]]), { color });
        pen.points([[part.value, here[name]]], { color });
        pen.text(1, at[100][name], label, { anchor: "end", dx: -4, dy, color });
      }
    });
    say(
      `The oracle earns ${number(here.oracle, 3)} clicks per visit, the network ${number(here.frozen, 3)}: ` +
        `${percent(here.frozen / here.oracle)} of it. Since the change began the network's clicks moved by ` +
        `${number(here.frozen - at[0].frozen, 3)}.`,
    );
  };
});
