// The pet shop and three of the agents that play it, for figures in the page: no DOM in here.
//
// The same algorithms as in zoolib, in the same order of steps, for one world at a time. What zoolib knows
// (click probabilities, names, layout of the features, shocks, limits of forgetting) is handed over by the
// page and read by `settings`; tests/site/test_playground.py holds the two side by side.
"use strict";

var Zoo = (() => {
  // Scores that differ by less than this part of the best (or of 1) are ties: zoolib/agents/policies.py.
  const ROUNDING = 1e-10;

  // The bits of a 32-bit number, thoroughly mixed: the last step of SplitMix32.
  function mix(z) {
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  // Seeded random numbers: SplitMix (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
  // generators") with 32 bits. Each stream of a seed goes through the numbers in steps of its own.
  class Random {
    constructor(seed, stream = 0) {
      this.state = mix(mix(seed) + stream);
      this.step = mix(this.state) | 1;
    }

    // A uniform number in [0, 1).
    uniform() {
      this.state = (this.state + this.step) | 0;
      return mix(this.state) / 2 ** 32;
    }

    // A whole number in 0 … n - 1.
    below(n) {
      return Math.floor(this.uniform() * n);
    }

    // A standard normal number, by Box and Muller (1958).
    normal() {
      return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
    }
  }

  // What the page hands over, with numbers of rows, columns and places for names.
  function settings(data) {
    const { personas, categories, features, table } = data;
    return {
      table,
      nUsers: data.n_users,
      ridge: data.ridge,
      leastPrior: data.least_prior,
      leastFaded: data.least_faded,
      personaPlace: personas.map((name) => features.indexOf(`persona=${name}`)),
      categoryPlace: categories.map((name) => features.indexOf(`category=${name}`)),
      knownShocks: data.shocks.map((shock) => ({
        persona: personas.indexOf(shock.persona),
        probabilities: categories.map((name) => shock.click_probabilities[name]),
      })),
    };
  }

  // Mean click probability of a table (persona, category).
  function meanOf(table) {
    const cells = table.flat();
    return cells.reduce((sum, p) => sum + p, 0) / cells.length;
  }

  // Noise: a part of the visits, `noise` in [0, 1], in which the click does not depend on what is shown, but
  // has the mean click probability. Every click probability moves that far towards the mean.
  function noisy(table, noise, mean) {
    return table.map((row) => row.map((p) => (1 - noise) * p + noise * mean));
  }

  // The click probabilities after a shock; categories that it does not name keep theirs.
  function shocked(table, { persona, probabilities }) {
    return table.map((row, i) =>
      i === persona ? row.map((p, column) => probabilities[column] ?? p) : row);
  }

  // A shop: the category of each product and the persona of each user. As in zoolib, categories are equally
  // frequent, in shuffled order; what does not divide evenly, and every persona, is drawn at random.
  function drawShop(nPersonas, nCategories, nProducts, nUsers, random) {
    const even = nProducts - (nProducts % nCategories);
    const category = Array.from({ length: nProducts }, (_, i) =>
      i < even ? i % nCategories : random.below(nCategories));
    for (let i = nProducts - 1; i > 0; i--) { // Fisher and Yates
      const j = random.below(i + 1);
      [category[i], category[j]] = [category[j], category[i]];
    }
    return { category, persona: Array.from({ length: nUsers }, () => random.below(nPersonas)) };
  }

  function diagonal(d, value) {
    const matrix = new Float64Array(d * d);
    for (let k = 0; k < d; k++) matrix[k * d + k] = value;
    return matrix;
  }

  // One arm's ridge posterior: zoolib/models/posterior.py. A row x holds ones at two places, i and j, and zeros.
  class RidgePosterior {
    constructor(d, { ridge, leastPrior, leastFaded }) {
      Object.assign(this, { d, least: leastPrior * ridge, leastFaded, prior: ridge, faded: 1 });
      this.A = diagonal(d, ridge);
      this.b = new Float64Array(d);
      this.inverse = new Float64Array(d * d);
      this.mean = new Float64Array(d);
      this.solve();
    }

    // xᵀθ
    predict(i, j) {
      return this.mean[i] + this.mean[j];
    }

    // √(xᵀ A⁻¹ x)
    width(i, j) {
      const { d, inverse } = this;
      return Math.sqrt(inverse[i * d + i] + 2 * inverse[i * d + j] + inverse[j * d + j]);
    }

    // A ← γA + x xᵀ, b ← γb + r x
    update(i, j, reward, discount) {
      if (discount !== 1) this.decay(discount);
      for (const k of [i, j]) {
        this.A[k * this.d + i] += 1;
        this.A[k * this.d + j] += 1;
        this.b[k] += reward;
      }
      this.solve();
    }

    // Forget a part; a prior that has faded too far is raised.
    decay(discount) {
      const { d, A, b } = this;
      for (let k = 0; k < d * d; k++) A[k] *= discount;
      for (let k = 0; k < d; k++) b[k] *= discount;
      this.prior *= discount;
      this.faded *= discount;
      if (this.faded >= this.leastFaded) return;
      const raised = Math.max(this.least - this.prior, 0);
      for (let k = 0; k < d; k++) A[k * d + k] += raised;
      this.prior += raised;
      this.faded = 1;
    }

    // A⁻¹ and θ = A⁻¹ b; for so few features there is no need to follow them from row to row.
    solve() {
      const { d, A, b, inverse, mean } = this;
      inverse.set(A);
      invert(inverse, d);
      for (let k = 0; k < d; k++) {
        mean[k] = 0;
        for (let l = 0; l < d; l++) mean[k] += inverse[k * d + l] * b[l];
      }
    }
  }

  // A symmetric positive definite matrix becomes its inverse, by Gauss and Jordan; such a one needs no pivots.
  function invert(M, d) {
    for (let k = 0; k < d; k++) {
      const pivot = M[k * d + k];
      M[k * d + k] = 1;
      for (let l = 0; l < d; l++) M[k * d + l] /= pivot;
      for (let m = 0; m < d; m++) {
        if (m === k) continue;
        const times = M[m * d + k];
        M[m * d + k] = 0;
        for (let l = 0; l < d; l++) M[m * d + l] -= times * M[k * d + l];
      }
    }
  }

  // The arm of highest score; a uniform number decides between ties.
  function best(scores, uniform) {
    const top = scores.reduce((a, b) => (b > a ? b : a));
    const least = top - ROUNDING * (1 + Math.abs(top));
    let left = Math.floor(uniform * scores.reduce((ties, score) => (score >= least ? ties + 1 : ties), 0));
    return scores.findIndex((score) => score >= least && left-- === 0);
  }

  class RandomAgent {
    constructor(nArms, settings, random) {
      Object.assign(this, { nArms, random });
    }

    select() {
      return Math.floor(this.random.uniform() * this.nArms);
    }

    update() {}
  }

  // Predicted reward plus alpha times its width. One ridge posterior an arm: zoolib/agents/linear.py. The
  // features of a pairing are a one for the persona and a one for the category, at the places that the settings
  // name. One that stops, as on the first page, learns from its first `stop` visits alone.
  class LinUCB {
    constructor(nArms, settings, random, category) {
      const { alpha, discount = 1, stop = Infinity, personaPlace, categoryPlace } = settings;
      Object.assign(this, { alpha, discount, left: stop, personaPlace, random });
      const d = personaPlace.length + categoryPlace.length;
      this.posteriors = Array.from({ length: nArms }, () => new RidgePosterior(d, settings));
      this.ofArm = category.map((c) => categoryPlace[c]);
    }

    // How many widths the score lies above the prediction, in units of alpha.
    steps() {
      return 1;
    }

    scores(persona) {
      const place = this.personaPlace[persona];
      return this.posteriors.map((posterior, arm) => {
        const own = this.ofArm[arm];
        return posterior.predict(place, own) + this.alpha * posterior.width(place, own) * this.steps();
      });
    }

    select(persona) {
      return best(this.scores(persona), this.random.uniform());
    }

    update(persona, arm, reward) {
      if (this.left-- <= 0) return;
      this.posteriors[arm].update(this.personaPlace[persona], this.ofArm[arm], reward, this.discount);
    }
  }

  // Thompson sampling: predictions of different arms are independent, so one normal number an arm will do.
  class LinTS extends LinUCB {
    steps() {
      return this.random.normal();
    }
  }

  // Agents meet the same visitors, and products of one category the same clicks: there is one uniform number for
  // each step and category, and a click happens when it lies below the click probability of what is shown:
  // zoolib/experiments/arena.py. `tables` holds click probabilities, by the step from which they are true.
  class Arena {
    constructor({ tables, shop, agents, visitors, clicking }) {
      Object.assign(this, { tables, table: tables[0], shop, agents, visitors, clicking });
      this.steps = 0;
      this.stocked = [...new Set(shop.category)];
      this.optimal = 0;
      this.expected = agents.map(() => 0);
      this.clicks = agents.map(() => 0);
      this.arm = agents.map(() => 0);
    }

    // The category of the shop that a persona clicks most.
    bestCategory(persona) {
      const row = this.table[persona];
      return this.stocked.reduce((a, b) => (row[b] > row[a] ? b : a));
    }

    step() {
      this.table = this.tables[this.steps] ?? this.table;
      const { agents, shop, arm } = this;
      const persona = shop.persona[this.visitors.below(shop.persona.length)];
      const row = this.table[persona];
      const uniform = row.map(() => this.clicking.uniform());
      agents.forEach((agent, k) => {
        arm[k] = agent.select(persona);
        const category = shop.category[arm[k]];
        const reward = uniform[category] < row[category] ? 1 : 0;
        this.expected[k] += row[category];
        this.clicks[k] += reward;
        agent.update(persona, arm[k], reward);
      });
      this.optimal += row[this.bestCategory(persona)];
      this.steps++;
      return persona;
    }

    // Cumulative pseudo-regret of an agent, in expected clicks.
    regret(k) {
      return this.optimal - this.expected[k];
    }
  }

  // Click probabilities by the step from which they are true: the first, and those after each of the `shocks`,
  // {step, shock}. Noise moves them all towards one mean, that of the shop before any shock.
  function truths({ table, noise = 0, shocks = [] }) {
    const mean = meanOf(table);
    const tables = { 0: noisy(table, noise, mean) };
    for (const { step, shock } of shocks) {
      table = shocked(table, shock);
      tables[step] = noisy(table, noise, mean);
    }
    return tables;
  }

  // A world of one seed: shop, visitors, clicks and each agent's numbers from streams of their own. The settings'
  // `agents` lists their classes, each with the settings that only this agent has, and the `place` of its stream
  // where not all agents play.
  function world(all, seed) {
    const { table, nProducts, nUsers, agents } = all;
    const stream = (number) => new Random(seed, number);
    const shop = drawShop(table.length, table[0].length, nProducts, nUsers, stream(0));
    return new Arena({
      tables: truths(all),
      shop,
      visitors: stream(1),
      clicking: stream(2),
      agents: agents.map(({ kind, place, ...own }, k) =>
        new kind(nProducts, { ...all, ...own }, stream(3 + (place ?? k)), shop.category)),
    });
  }

  return { Random, settings, truths, drawShop, RidgePosterior, best, RandomAgent, LinUCB, LinTS, Arena, world };
})();
