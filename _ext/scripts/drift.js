// height: 36rem 46rem
// Chapter 3: where a network in training puts the twenty cells, and how wide the posterior is there.
"use strict";

const Drift = {
  cells(visits, keep) {
    return [...visits.keys()].filter((i) => keep(visits[i]));
  },

  /** What is left of the width before any visit, in cells that were seldom shown. */
  widthLeft(look, kind, below) {
    const rare = Drift.cells(look.visits, (count) => count < below);
    return Interactive.mean(rare.map((i) => look[kind][1][i] / look.length[i]));
  },

  /** Root mean square error of the predictions for cells that were shown often. */
  error(look, kind, truth, least) {
    const seen = Drift.cells(look.visits, (count) => count >= least);
    return Math.sqrt(Interactive.mean(seen.map((i) => (look[kind][0][i] - truth[i]) ** 2)));
  },
};

Interactive.register("drift", (figure, { personas: names, categories, truth, looks }) => {
  const personas = names.map((name) => name.replaceAll("_", " "));
  const { number } = Interactive;
  const colors = ["blue", "orange", "green", "purple"];
  const shapes = ["circle", "square", "diamond", "triangle", "bar"];
  const kinds = ["kept", "rebuilt"];
  const time = figure.slider({
    label: "Visits served", min: 0, max: looks.length - 1, step: 1, value: 0,
    format: (at) => number(looks[at].served),
  });
  const kind = figure.choice({
    label: "A and b", options: ["kept since the first visit", "rebuilt by today's network"],
  });
  const places = looks.flatMap((look) => look.place);
  const span = (axis) => {
    const values = places.map((place) => place[axis]);
    return [Math.min(...values) - 0.25, Math.max(...values) + 0.25];
  };
  const plot = figure.plot({
    label: "Plane of the embedding with a mark for each cell and a ring as large as its width.",
    height: 400,
    x: { label: "first direction of the last embedding", domain: span(0) },
    y: { label: "second direction", domain: span(1) },
  });
  figure.legend(personas.map((label, i) => ({ label, color: colors[i] })));
  figure.legend(categories.map((label, i) => ({ label, color: "ink", shape: shapes[i] })));
  const say = figure.summary();

  return () => {
    const look = looks[time.value];
    const statistics = kinds[kind.value];
    plot.draw((pen) => {
      look.place.forEach((place, i) => {
        const color = colors[Math.floor(i / categories.length)];
        const title = `${personas[Math.floor(i / categories.length)]}, ${categories[i % categories.length]}`;
        const width = look[statistics][1][i];
        pen.points([place], { color, size: 4 + 60 * width, hollow: true, opacity: 0.5, title });
        pen.points([place], { color, shape: shapes[i % categories.length], size: 4, hollow: look.visits[i] < 20 });
      });
    });
    const rare = Drift.cells(look.visits, (count) => count < 20).length;
    const often = Drift.cells(look.visits, (count) => count >= 50).length;
    const error = number(Drift.error(look, statistics, truth, 50), 3);
    say(
      `Shown fewer than 20 times: ${rare} cells of 20 (hollow). They keep ` +
        `${Interactive.percent(Drift.widthLeft(look, statistics, 20))} of their first width. ` +
        (often ? `For the ${often} shown 50 times or more the predictions are off by ${error}.` : ""),
    );
  };
});
