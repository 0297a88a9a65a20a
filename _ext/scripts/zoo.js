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
    return z ^ (z >>> 15);
  }

  // Seeded random numbers: xoshiro128** (Blackman and Vigna 2021, "Scrambled linear pseudorandom number
  // generators"), its state filled by SplitMix32. Streams of one seed share nothing but the seed.
  class Random {
    constructor(seed, stream = 0) {
      let z = mix(mix(seed) + stream);
      this.state = Int32Array.from({ length: 4 }, () => mix((z = (z + 0x9e3779b9) | 0)));
      this.spare = NaN; // the second normal number of a pair, once made
    }

    // 32 random bits.
    bits() {
      const s = this.state, t = s[1] << 9;
      let result = Math.imul(s[1], 5);
      result = Math.imul((result << 7) | (result >>> 25), 9);
      s[2] ^= s[0];
      s[3] ^= s[1];
      s[1] ^= s[2];
      s[0] ^= s[3];
      s[2] ^= t;
      s[3] = (s[3] << 11) | (s[3] >>> 21);
      return result >>> 0;
    }

    // A uniform number in [0, 1), of 53 bits.
    uniform() {
      return ((this.bits() >>> 5) * 67108864 + (this.bits() >>> 6)) / 9007199254740992;
    }

    // A whole number in 0 … n - 1.
    below(n) {
      return Math.floor(this.uniform() * n);
    }

    // A standard normal number, by the polar method (Marsaglia and Bray 1964), which makes two at a time.
    normal() {
      const spare = this.spare;
      if (spare === spare) {
        this.spare = NaN;
        return spare;
      }
      let u, v, square;
      do {
        u = 2 * this.uniform() - 1;
        v = 2 * this.uniform() - 1;
        square = u * u + v * v;
      } while (square >= 1 || square === 0);
      const scale = Math.sqrt(-2 * Math.log(square) / square);
      this.spare = v * scale;
      return u * scale;
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
    const each = Math.floor(nProducts / nCategories);
    const category = Int32Array.from({ length: nProducts }, (_, i) =>
      i < each * nCategories ? Math.floor(i / each) : random.below(nCategories));
    for (let i = nProducts - 1; i > 0; i--) { // Fisher and Yates
      const j = random.below(i + 1);
      [category[i], category[j]] = [category[j], category[i]];
    }
    const persona = Int32Array.from({ length: nUsers }, () => random.below(nPersonas));
    return { category, persona };
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
      this.inverse = diagonal(d, 1 / ridge);
      this.b = new Float64Array(d);
      this.mean = new Float64Array(d);
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

    // Learn one row, after a discount on all that was learnt before: Sherman and Morrison (1950).
    update(i, j, reward, discount) {
      if (discount !== 1) this.decay(discount);
      const { d, A, b, inverse, mean } = this;
      const u = mean.map((_, k) => inverse[k * d + i] + inverse[k * d + j]); // A⁻¹ x
      const gain = 1 / (1 + u[i] + u[j]);
      const error = reward - this.predict(i, j);
      for (let k = 0; k < d; k++) {
        for (let l = 0; l < d; l++) inverse[k * d + l] -= gain * u[k] * u[l];
        mean[k] += gain * error * u[k];
      }
      for (const k of [i, j]) {
        A[k * d + i] += 1;
        A[k * d + j] += 1;
        b[k] += reward;
      }
    }

    // A ← γA, b ← γb
    decay(discount) {
      for (let k = 0; k < this.A.length; k++) {
        this.A[k] *= discount;
        this.inverse[k] /= discount;
      }
      for (let k = 0; k < this.d; k++) this.b[k] *= discount;
      this.prior *= discount;
      this.faded *= discount;
      if (this.faded < this.leastFaded) this.holdPrior();
    }

    // Raise a prior that has faded too far, and solve afresh.
    holdPrior() {
      const { d, A, b } = this;
      const raised = Math.max(this.least - this.prior, 0);
      for (let k = 0; k < d; k++) A[k * d + k] += raised;
      this.prior += raised;
      this.faded = 1;
      const inverse = (this.inverse = inverted(A, d));
      this.mean = b.map((_, k) => b.reduce((sum, value, l) => sum + inverse[k * d + l] * value, 0));
    }
  }

  // The inverse of a symmetric positive definite matrix, by Gauss and Jordan; such a one needs no pivots.
  function inverted(matrix, d) {
    const left = Float64Array.from(matrix), right = diagonal(d, 1);
    for (let k = 0; k < d; k++) {
      const pivot = left[k * d + k];
      for (let l = 0; l < d; l++) {
        left[k * d + l] /= pivot;
        right[k * d + l] /= pivot;
      }
      for (let m = 0; m < d; m++) {
        const times = left[m * d + k];
        if (m === k || times === 0) continue;
        for (let l = 0; l < d; l++) {
          left[m * d + l] -= times * left[k * d + l];
          right[m * d + l] -= times * right[k * d + l];
        }
      }
    }
    return right;
  }

  // The arm of highest score; a uniform number decides between ties.
  function best(scores, uniform) {
    let top = -Infinity;
    for (let arm = 0; arm < scores.length; arm++) if (scores[arm] > top) top = scores[arm];
    const least = top - ROUNDING * (1 + Math.abs(top));
    let ties = 0;
    for (let arm = 0; arm < scores.length; arm++) if (scores[arm] >= least) ties++;
    let left = Math.floor(uniform * ties);
    for (let arm = 0; ; arm++) if (scores[arm] >= least && left-- === 0) return arm;
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
  // name. What is predicted for each persona is kept: an update changes it for the arm played, and for no other.
  class LinUCB {
    constructor(nArms, settings, random, category) {
      const { alpha, discount = 1, personaPlace, categoryPlace } = settings;
      Object.assign(this, { alpha, discount, personaPlace, random, nArms });
      const d = personaPlace.length + categoryPlace.length;
      this.posteriors = Array.from({ length: nArms }, () => new RidgePosterior(d, settings));
      this.ofArm = Int32Array.from(category, (c) => categoryPlace[c]);
      this.predicted = personaPlace.map(() => new Float64Array(nArms));
      this.width = personaPlace.map(() => new Float64Array(nArms));
      this.scored = new Float64Array(nArms);
      for (let arm = 0; arm < nArms; arm++) this.predict(arm);
    }

    predict(arm) {
      this.personaPlace.forEach((place, persona) => {
        this.predicted[persona][arm] = this.posteriors[arm].predict(place, this.ofArm[arm]);
        this.width[persona][arm] = this.posteriors[arm].width(place, this.ofArm[arm]);
      });
    }

    // How many widths the score lies above the prediction, in units of alpha.
    steps() {
      return 1;
    }

    scores(persona) {
      const { scored, alpha } = this, predicted = this.predicted[persona], width = this.width[persona];
      for (let arm = 0; arm < scored.length; arm++) {
        scored[arm] = predicted[arm] + alpha * width[arm] * this.steps();
      }
      return scored;
    }

    select(persona) {
      return best(this.scores(persona), this.random.uniform());
    }

    update(persona, arm, reward) {
      this.posteriors[arm].update(this.personaPlace[persona], this.ofArm[arm], reward, this.discount);
      this.predict(arm);
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
  // zoolib/experiments/arena.py.
  class Arena {
    constructor({ table, shop, agents, visitors, clicking, shocks = [] }) {
      Object.assign(this, { table, shop, agents, visitors, clicking, shocks });
      const nCategories = table[0].length;
      this.steps = 0;
      this.uniform = new Float64Array(nCategories);
      this.stocked = [...new Set(shop.category)];
      this.optimal = 0;
      this.expected = new Float64Array(agents.length);
      this.clicks = new Float64Array(agents.length);
      this.arm = new Int32Array(agents.length);
      this.readTruth();
    }

    // What the best product of the shop is worth to each persona, and of which category it is.
    readTruth() {
      this.bestCategory = this.table.map((row) =>
        this.stocked.reduce((a, b) => (row[b] > row[a] ? b : a)));
      this.best = this.table.map((row, persona) => row[this.bestCategory[persona]]);
    }

    step() {
      for (const shock of this.shocks) {
        if (shock.step === this.steps) {
          this.table = shock.table;
          this.readTruth();
        }
      }
      const { agents, shop, uniform, arm } = this;
      const persona = shop.persona[this.visitors.below(shop.persona.length)];
      for (let c = 0; c < uniform.length; c++) uniform[c] = this.clicking.uniform();
      for (let k = 0; k < agents.length; k++) {
        arm[k] = agents[k].select(persona);
        const category = shop.category[arm[k]], p = this.table[persona][category];
        const reward = uniform[category] < p ? 1 : 0;
        this.expected[k] += p;
        this.clicks[k] += reward;
        agents[k].update(persona, arm[k], reward);
      }
      this.optimal += this.best[persona];
      this.steps++;
      return persona;
    }

    // Cumulative pseudo-regret of an agent, in expected clicks.
    regret(k) {
      return this.optimal - this.expected[k];
    }
  }

  // The tables of click probabilities: the first, and that of each of the `shocks`, {step, shock}. Noise
  // moves them all towards one mean, that of the shop before any shock.
  function truths({ table, noise = 0, shocks = [] }) {
    let truth = table;
    const mean = meanOf(table);
    return {
      table: noisy(table, noise, mean),
      shocks: shocks.map(({ step, shock }) => {
        truth = shocked(truth, shock);
        return { step, table: noisy(truth, noise, mean) };
      }),
    };
  }

  // A world of one seed: shop, visitors, clicks and each agent's numbers from streams of their own. The settings'
  // `agents` lists their classes, each with the settings that only this agent has.
  function world(all, seed) {
    const { table, nProducts, nUsers, agents } = all;
    const stream = (number) => new Random(seed, number);
    const shop = drawShop(table.length, table[0].length, nProducts, nUsers, stream(0));
    return new Arena({
      ...truths(all),
      shop,
      visitors: stream(1),
      clicking: stream(2),
      agents: agents.map(({ kind, ...own }, k) =>
        new kind(nProducts, { ...all, ...own }, stream(3 + k), shop.category)),
    });
  }

  return { Random, settings, truths, drawShop, RidgePosterior, best, RandomAgent, LinUCB, LinTS, Arena, world };
})();
