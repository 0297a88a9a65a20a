// height: 33rem 43rem
// Chapter 4: how long a new product is shown, by what was believed of it beforehand.
"use strict";

const Prior = {
  /** Prediction and width after n visits of one persona, clicked as often as the product deserves. */
  belief({ promise, firmness, rate }, n) {
    const weight = firmness + 2 * n; // x holds two ones
    return { mean: (firmness * promise + 2 * n * rate) / weight, width: Math.sqrt(2 / weight) };
  },

  score(newcomer, alpha, n) {
    const { mean, width } = Prior.belief(newcomer, n);
    return mean + alpha * width;
  },

  /** Visits until its score falls below that of the best old product; null if it never does. */
  visitsUntilLeft(newcomer, alpha, rival, limit = 10_000) {
    for (let n = 0; n <= limit; n++) if (Prior.score(newcomer, alpha, n) < rival) return n;
    return null;
  },
};

Interactive.register("prior", (figure, data) => {
  const { number } = Interactive;
  const fixed = Interactive.fixed(2);
  const steps = Array.from({ length: 81 }, (_, n) => n);
  const mean = figure.choice({ label: "Prior", options: ["mean of its siblings", "zero"] });
  const firmness = figure.slider({ label: "Firmness λ", min: 1, max: 60, step: 1, value: 5 });
  const rate = figure.slider({
    label: "Newcomer's click probability", min: 0, max: 1, step: 0.01, value: data.truth, format: fixed,
  });
  const alpha = figure.slider({
    label: "Curiosity α", min: 0, max: 2, step: 0.05, value: data.alpha, format: fixed,
  });
  const plot = figure.plot({
    label: "Prediction and score of a new product against the visits that saw it.",
    height: 320,
    x: { label: "visits of this persona that saw the newcomer", domain: [0, 80] },
    y: { label: "clicks per visit", domain: [0, 1.2] },
  });
  figure.legend([
    { label: "score", color: "orange" },
    { label: "prediction", color: "blue" },
    { label: "truth", color: "green", dash: "6 4" },
    { label: "score of the best old product", color: "ink", dash: "2 3" },
  ]);
  const say = figure.summary();

  return () => {
    const newcomer = { promise: mean.value ? 0 : data.promise, firmness: firmness.value, rate: rate.value };
    const left = Prior.visitsUntilLeft(newcomer, alpha.value, data.rival);
    const score = (n) => Prior.score(newcomer, alpha.value, n);
    plot.draw((pen) => {
      const shown = steps.filter((n) => left === null || n <= left);
      pen.band(steps.map((n) => [n, Prior.belief(newcomer, n).mean, score(n)]), { opacity: 0.12 });
      pen.line([[0, rate.value], [80, rate.value]], { color: "green", dash: "6 4" });
      pen.line([[0, data.rival], [80, data.rival]], { color: "ink", dash: "2 3" });
      pen.line(steps.map((n) => [n, Prior.belief(newcomer, n).mean]));
      pen.line(steps.map((n) => [n, score(n)]), { color: "orange", dash: "1 4" });
      pen.line(shown.map((n) => [n, score(n)]), { color: "orange", width: 3 });
      if (left !== null) pen.points([[left, score(left)]], { color: "orange" });
    });
    const start = `It starts with the score ${fixed(score(0))}, the best old product has ${fixed(data.rival)}: `;
    const better = rate.value > data.best ? "better" : "no better";
    const fate =
      left === 0 ? "it is never shown" : left === null ? "it stays" : `it is left after ${number(left)} visits`;
    say(`${start}${fate}. In truth it is ${better} than all old ones.`);
  };
});
