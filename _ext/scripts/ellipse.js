// height: 36rem 48rem
// Chapter 2: the ridge estimate of two weights, its confidence ellipse, and the score's upper bound.
"use strict";

const dot = (u, v) => u[0] * v[0] + u[1] * v[1];
const times = (M, v) => M.map((row) => dot(row, v));

const Ellipse = {
  /** Mean and covariance of a ridge posterior after n more visits along x with the clicks one expects. */
  posterior({ gram, moments, truth }, { ridge, x, visits }) {
    const A = gram.map((row, i) => row.map((g, j) => g + visits * x[i] * x[j] + (i === j ? ridge : 0)));
    const b = moments.map((m, i) => m + visits * dot(x, truth) * x[i]);
    const [[p, q], [, s]] = A;
    const det = p * s - q * q;
    const A_inv = [[s / det, -q / det], [-q / det, p / det]];
    return { mean: times(A_inv, b), A_inv };
  },

  width({ A_inv }, x) {
    return Math.sqrt(dot(x, times(A_inv, x)));
  },

  score(belief, x, alpha) {
    return dot(x, belief.mean) + alpha * Ellipse.width(belief, x);
  },

  /** The weights in the ellipse that promise most along x. */
  best(belief, x, alpha) {
    const step = alpha / Ellipse.width(belief, x);
    return times(belief.A_inv, x).map((v, i) => belief.mean[i] + step * v);
  },

  /** Points of the boundary: what promises most in directions all around. */
  boundary(belief, alpha, n = 480) {
    const turns = Array.from({ length: n }, (_, i) => (2 * Math.PI * i) / n);
    return turns.map((turn) => Ellipse.best(belief, [Math.cos(turn), Math.sin(turn)], alpha));
  },
};

Interactive.register("ellipse", (figure, data) => {
  const contexts = [
    ["dog owner, banner", [1, 1]],
    ["dog owner, no banner", [1, 0]],
    ["other visitor, banner", [0, 1]],
  ];
  const x = () => contexts[asked.value][1];
  const fixed = Interactive.fixed(2);
  const ridge = figure.slider({
    label: "Ridge λ", min: -3, max: 1.5, step: 0.1, value: 0,
    format: (power) => Interactive.number(Number((10 ** power).toPrecision(2))),
  });
  const alpha = figure.slider({
    label: "Width factor α", min: 0, max: 2, step: 0.05, value: 1, format: fixed,
  });
  const asked = figure.choice({ label: "Context x", options: contexts.map(([name]) => name) });
  const visits = figure.slider({ label: "More visits along x", min: 0, max: 60, step: 1, value: 0 });
  const plot = figure.plot({
    label: "Plane of two weights with estimates, truth and the confidence ellipse.",
    height: 360,
    x: { label: "weight of dog owner", domain: [-0.1, 0.5] },
    y: { label: "weight of banner", domain: [-1.2, 2] },
  });
  figure.legend([
    { label: "ridge and its ellipse", color: "blue", shape: "circle" },
    { label: "most hopeful weights", color: "orange", shape: "triangle" },
    { label: "weights of the same score", color: "orange", dash: "6 4" },
    { label: "least squares", color: "muted", shape: "square" },
    { label: "truth", color: "green", shape: "diamond" },
  ]);
  const say = figure.summary();

  /** The line of all weights that promise the same along x, from edge to edge. */
  function level(value) {
    const [u, v] = x();
    if (v === 0) return [-5, 5].map((banner) => [value / u, banner]);
    return [-5, 5].map((dog) => [dog, (value - u * dog) / v]);
  }

  return () => {
    const settings = { ridge: 10 ** ridge.value, x: x(), visits: visits.value };
    const belief = Ellipse.posterior(data, settings);
    const plain = Ellipse.posterior(data, { ...settings, ridge: 0 });
    const edge = Ellipse.boundary(belief, alpha.value);
    const score = Ellipse.score(belief, x(), alpha.value);
    const width = Ellipse.width(belief, x());
    plot.draw((pen) => {
      pen.area(edge);
      pen.line([...edge, edge[0]]);
      pen.line(level(score), { color: "orange", dash: "6 4" });
      pen.points([plain.mean], { color: "muted", shape: "square" });
      pen.points([data.truth], { color: "green", shape: "diamond" });
      pen.points([belief.mean]);
      pen.points([Ellipse.best(belief, x(), alpha.value)], { color: "orange", shape: "triangle" });
    });
    const numbers = [score - alpha.value * width, alpha.value, width, score].map(fixed);
    const truth = fixed(data.truth[0] * x()[0] + data.truth[1] * x()[1]);
    say(
      `Prediction ${numbers[0]} plus ${numbers[1]} times the width ${numbers[2]}: ` +
        `score ${numbers[3]}. The true click probability is ${truth}.`,
    );
  };
});
