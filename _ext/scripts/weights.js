// height: 40rem 47rem
// Chapter 6: importance weights of one log, and what four estimators make of them.
"use strict";

const Weights = (() => {
  const { sum } = Interactive;

  /** Kinds of visits: how many, what was shown, what it earned, and what each policy would show. */
  function read({ columns, visits, policies }) {
    const n_arms = columns.length - 3 - policies.length;
    return visits.map((count, i) => {
      const [arm, reward, propensity, ...rest] = columns.map((column) => column[i]);
      return { count, arm, reward, propensity, promised: rest.slice(0, n_arms), shows: rest.slice(n_arms) };
    });
  }

  /** Weight of each kind, and what the model promises of it, for a target that goes part of the way. */
  function weigh(kinds, team, part) {
    return kinds.map((kind) => {
      const [old, next] = [kind.shows[0], kind.shows[team]];
      const chance = (1 - part) * (kind.arm === old) + part * (kind.arm === next);
      const promise = (1 - part) * kind.promised[old] + part * kind.promised[next];
      return { ...kind, weight: chance / kind.propensity, promise };
    });
  }

  /** Mean of a term over all visits with Student's 95 percent interval. */
  function interval(rows, term) {
    const n = sum(rows.map((row) => row.count));
    const mean = sum(rows.map((row) => row.count * term(row))) / n;
    const squares = sum(rows.map((row) => row.count * (term(row) - mean) ** 2));
    const z = 1.959964;
    const t = z + (z ** 3 + z) / (4 * (n - 1)); // the first terms of Student's quantile, ample for n > 100
    const half = t * Math.sqrt(squares / (n - 1) / n);
    return { mean, low: mean - half, high: mean + half };
  }

  function estimates(rows, clip) {
    const rho = interval(rows, (row) => row.weight).mean;
    const ratio = interval(rows, (row) => row.weight * row.reward).mean / rho;
    return {
      IPS: interval(rows, (row) => row.weight * row.reward),
      "clipped IPS": interval(rows, (row) => Math.min(row.weight, clip) * row.reward),
      SNIPS: interval(rows, (row) => ratio + (row.weight * (row.reward - ratio)) / rho),
      "doubly robust": interval(
        rows,
        (row) => row.promise + row.weight * (row.reward - row.promised[row.arm]),
      ),
    };
  }

  function effective(rows) {
    const total = sum(rows.map((row) => row.count * row.weight));
    return total ** 2 / sum(rows.map((row) => row.count * row.weight ** 2));
  }

  /** How many visits have each weight. */
  function histogram(rows) {
    const bars = new Map();
    for (const { weight, count } of rows) {
      const at = Number(weight.toFixed(3));
      bars.set(at, (bars.get(at) ?? 0) + count);
    }
    return [...bars].sort(([u], [v]) => u - v);
  }

  return { read, weigh, estimates, effective, histogram };
})();

Interactive.register("weights", (figure, data) => {
  const { number } = Interactive;
  const kinds = Weights.read(data);
  const teams = data.policies.slice(1);
  const team = figure.choice({ label: "Team", options: teams });
  const part = figure.slider({
    label: "Visits given to the team", min: 0, max: 1, step: 0.05, value: 1, format: Interactive.percent,
  });
  const clip = figure.slider({
    label: "Clipping bound c", min: 1, max: 17, step: 0.5, value: 17, format: Interactive.fixed(1),
  });
  const bars = figure.plot({
    label: "How many visits have which weight.",
    height: 270,
    x: { label: "weight", domain: [-0.5, 17.5] },
    y: { label: "visits", domain: [0, 3300] },
  });
  const names = Object.keys(Weights.estimates(Weights.weigh(kinds, 1, 1), 1));
  const intervals = figure.plot({
    label: "Estimates with intervals, and the truth.",
    height: 230,
    x: { label: "clicks per visit", domain: [0.1, 0.7] },
    y: Interactive.named(names),
  });
  const say = figure.summary();

  return () => {
    const rows = Weights.weigh(kinds, team.value + 1, part.value);
    const found = Weights.estimates(rows, clip.value);
    const truth = (1 - part.value) * data.truth[0] + part.value * data.truth[team.value + 1];
    bars.draw((pen) => {
      // Each label has a line of its own above the bars, so that none covers another.
      Weights.histogram(rows).forEach(([weight, count], i) => {
        pen.tile([weight - 0.2, weight + 0.2], [0, count], { opacity: 0.8 });
        const text = `${number(count)} of weight ${number(weight, 1)}`;
        pen.text(weight, 3120 - 310 * i, text, { anchor: weight > 9 ? "end" : "start" });
      });
      pen.line([[clip.value, 0], [clip.value, 1700]], { color: "orange", dash: "6 4" });
      pen.text(clip.value, 1500, "clip", { dx: -5, anchor: "end", color: "orange" });
    });
    intervals.draw((pen) => {
      pen.line([[truth, -1], [truth, names.length]], { color: "ink", width: 1, dash: "6 4" });
      names.forEach((name, i) => {
        const color = name === "clipped IPS" ? "orange" : "blue";
        const { mean, low, high } = found[name];
        pen.line([[low, i], [high, i]], { color });
        for (const end of [low, high]) pen.line([[end, i - 0.12], [end, i + 0.12]], { color });
        pen.points([[mean, i]], { color });
      });
    });
    const missed = names.filter((name) => found[name].low > truth || found[name].high < truth);
    say(
      `Effective sample size: ${number(Weights.effective(rows), 0)} of ${number(Interactive.sum(data.visits))}. ` +
        `Truth: ${number(truth, 3)} clicks per visit. ` +
        (missed.length ? `Missed by: ${missed.join(", ")}.` : "All four intervals hold it."),
    );
  };
});
