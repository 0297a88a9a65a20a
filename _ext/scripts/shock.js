// height: 39rem 48rem
// Chapter 1: what a frozen recommender and the oracle earn while the taste of one persona changes.
"use strict";

const Shock = (() => {
  /** Click probabilities when the shock has gone part of the way. */
  function taste({ tastes: [before, after] }, part) {
    return before.map((p, i) => (1 - part) * p + part * after[i]);
  }

  /** Clicks a visit of the frozen recommender and of the oracle. */
  function values(shock, part) {
    const now = taste(shock, part);
    const visits = shock.shown.reduce((total, share) => total + share, 0);
    return {
      frozen: shock.rest[0] + shock.shown.reduce((total, share, i) => total + share * now[i], 0),
      oracle: shock.rest[1] + visits * Math.max(...now),
    };
  }

  return { taste, values };
})();

Interactive.register("shock", (root, { categories, shocks }) => {
  const { number } = Interactive;
  const percent = (value) => `${number(100 * value, 0)} %`;
  const parts = Array.from({ length: 101 }, (_, i) => i / 100);
  const row = Interactive.controls(root);
  const chosen = Interactive.choice(row, {
    label: "Shock", options: ["first", "second"], onInput: draw,
  });
  const part = Interactive.slider(row, {
    label: "How far the taste has changed", min: 0, max: 1, step: 0.05, value: 0.5,
    format: percent, onInput: draw,
  });
  const tastes = Interactive.plot(root, {
    label: "Click probability of each category, before and now.",
    height: 240,
    x: { label: "click probability; bars: part of the persona", domain: [0, 1] },
    y: { domain: [categories.length - 0.5, -0.5], ticks: categories.map((_, i) => i), format: (i) => categories[i] },
  });
  Interactive.legend(root, [
    { label: "before", color: "muted", shape: "square" },
    { label: "now", color: "blue", shape: "circle" },
    { label: "part of the persona that is shown it", color: "orange", shape: "bar" },
  ]);
  const earned = Interactive.plot(root, {
    label: "Clicks a visit against the size of the shock, for oracle and recommender.",
    height: 240,
    x: { label: "how far the taste has changed", domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: percent },
    y: { label: "clicks a visit" },
  });
  const say = Interactive.summary(root);

  function draw() {
    const shock = shocks[chosen.value];
    const now = Shock.taste(shock, part.value);
    const visits = shock.shown.reduce((total, share) => total + share, 0);
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
    earned.draw(
      (pen) => {
        const looks = { oracle: ["green", "oracle", -8], frozen: ["orange", "recommender", 18] };
        pen.line([[part.value, 0], [part.value, 1]], { color: "muted", width: 1, dash: "6 4" });
        for (const [name, [color, label, dy]] of Object.entries(looks)) {
          pen.line(parts.map((p, i) => [p, at[i][name]]), { color });
          pen.points([[part.value, here[name]]], { color });
          pen.text(1, at[100][name], label, { anchor: "end", dx: -4, dy, color });
        }
      },
      { y: { domain: [0.4, 0.65] } },
    );
    say(
      `The oracle earns ${number(here.oracle, 3)} clicks a visit, the recommender ${number(here.frozen, 3)}: ` +
        `${percent(here.frozen / here.oracle)} of it. Since the change began the recommender's clicks moved by ` +
        `${number(here.frozen - at[0].frozen, 3)}.`,
    );
  }

  draw();
});
