// The pet shop and three of the agents that play it, for figures in the page: no DOM in here.
//
// The same algorithms as in zoolib, in the same order of steps, for one world at a time. What zoolib knows
// (click probabilities, names, layout of the features, shocks, limits of forgetting) is handed over by the
// page and read by `settings`; tests/site/test_playground.py holds the two side by side.
"use strict";

var Zoo = (() => {
  // Scores that differ by less than this part of the best (or of 1) are ties: zoolib/choice.py.
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
      leastFactor: data.least_factor,
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
  // is a coin with the mean click probability. Every click probability moves that far towards the mean.
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

  // Ridge posteriors, one an arm: zoolib/posterior.py. Kept are A and b divided by a factor, A⁻¹ multiplied
  // by it, and θ: to forget is to change the factor. A row x holds ones at two places, i and j, and zeros.
  class Posteriors {
    constructor(nArms, d, { ridge, leastPrior, leastFactor }) {
      Object.assign(this, { d, ridge, leastPrior, leastFactor });
      this.A = new Float64Array(nArms * d * d);
      this.b = new Float64Array(nArms * d);
      this.inverse = new Float64Array(nArms * d * d);
      this.mean = new Float64Array(nArms * d);
      this.factor = new Float64Array(nArms).fill(1);
      this.prior = new Float64Array(nArms).fill(ridge);
      this.moved = new Float64Array(d);
      for (let arm = 0; arm < nArms; arm++) {
        for (let i = 0; i < d; i++) {
          this.A[(arm * d + i) * d + i] = ridge;
          this.inverse[(arm * d + i) * d + i] = 1 / ridge;
        }
      }
    }

    // xᵀθ
    predict(arm, i, j) {
      return this.mean[arm * this.d + i] + this.mean[arm * this.d + j];
    }

    // √(xᵀ A⁻¹ x)
    width(arm, i, j) {
      const d = this.d, at = arm * d * d, inverse = this.inverse;
      const square = inverse[at + i * d + i] + 2 * inverse[at + i * d + j] + inverse[at + j * d + j];
      return Math.sqrt(square / this.factor[arm]);
    }

    // Learn one row, after a discount on all that this arm has learnt: Sherman and Morrison (1950).
    update(arm, i, j, reward, discount) {
      const { d, A, b, inverse, mean, moved } = this;
      const at = arm * d * d, row = arm * d;
      const factor = this.factor[arm] * discount, share = 1 / factor;
      for (let k = 0; k < d; k++) {
        moved[k] = inverse[at + k * d + i] + inverse[at + k * d + j]; // u = A⁻¹ x
      }
      const gain = share / (1 + share * (moved[i] + moved[j]));
      const error = mean[row + i] + mean[row + j] - reward;
      for (let k = 0; k < d; k++) {
        const step = gain * moved[k];
        mean[row + k] -= step * error;
        for (let l = 0; l < d; l++) inverse[at + k * d + l] -= step * moved[l];
      }
      for (const k of [i, j]) {
        A[at + k * d + i] += share;
        A[at + k * d + j] += share;
        b[row + k] += share * reward;
      }
      this.factor[arm] = factor;
      if (factor < this.leastFactor) this.writeFactor(arm);
    }

    // Write a small factor into the arrays, hold the prior at its least, and solve afresh.
    writeFactor(arm) {
      const { d, A, b } = this, at = arm * d * d, row = arm * d, factor = this.factor[arm];
      const faded = factor * this.prior[arm];
      this.prior[arm] = Math.max(faded, this.leastPrior / this.leastFactor * this.ridge);
      this.factor[arm] = 1;
      for (let k = 0; k < d * d; k++) A[at + k] *= factor;
      for (let k = 0; k < d; k++) {
        A[at + k * d + k] += this.prior[arm] - faded;
        b[row + k] *= factor;
      }
      this.inverse.set(inverted(A.subarray(at, at + d * d), d), at);
      for (let k = 0; k < d; k++) {
        let sum = 0;
        for (let l = 0; l < d; l++) sum += this.inverse[at + k * d + l] * b[row + l];
        this.mean[row + k] = sum;
      }
    }
  }

  // The inverse of a symmetric positive definite matrix, by Gauss and Jordan; such a one needs no pivots.
  function inverted(matrix, d) {
    const left = Float64Array.from(matrix), right = new Float64Array(d * d);
    for (let k = 0; k < d; k++) right[k * d + k] = 1;
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

  // The arm of highest score; the throw in [0, 1) decides between ties.
  function best(scores, toss) {
    let top = -Infinity;
    for (let arm = 0; arm < scores.length; arm++) if (scores[arm] > top) top = scores[arm];
    const least = top - ROUNDING * (1 + Math.abs(top));
    let ties = 0;
    for (let arm = 0; arm < scores.length; arm++) if (scores[arm] >= least) ties++;
    let left = Math.floor(toss * ties);
    for (let arm = 0; ; arm++) if (scores[arm] >= least && left-- === 0) return arm;
  }

  class RandomAgent {
    constructor(nArms, settings, dice) {
      Object.assign(this, { nArms, dice });
    }

    select() {
      return Math.floor(this.dice.uniform() * this.nArms);
    }

    update() {}
  }

  // One ridge posterior an arm: zoolib/agents/linear.py. The features of a pairing are a one for the persona
  // and a one for the category, at the places that the settings name. What is predicted for each persona is
  // kept and read again: an update changes it for the arm played, and for no other.
  class LinearAgent {
    constructor(nArms, settings, dice, category) {
      const { alpha, discount = 1, personaPlace, categoryPlace } = settings;
      Object.assign(this, { alpha, discount, personaPlace, dice, nArms });
      this.posteriors = new Posteriors(nArms, personaPlace.length + categoryPlace.length, settings);
      this.ofArm = Int32Array.from(category, (c) => categoryPlace[c]);
      this.predicted = new Float64Array(personaPlace.length * nArms);
      this.width = new Float64Array(personaPlace.length * nArms);
      this.scored = new Float64Array(nArms);
      for (let arm = 0; arm < nArms; arm++) this.predict(arm);
    }

    predict(arm) {
      const { posteriors, personaPlace, nArms } = this, j = this.ofArm[arm];
      for (let persona = 0; persona < personaPlace.length; persona++) {
        const at = persona * nArms + arm, i = personaPlace[persona];
        this.predicted[at] = posteriors.predict(arm, i, j);
        this.width[at] = posteriors.width(arm, i, j);
      }
    }

    select(persona) {
      return best(this.scores(persona), this.dice.uniform());
    }

    update(persona, arm, reward) {
      this.posteriors.update(arm, this.personaPlace[persona], this.ofArm[arm], reward, this.discount);
      this.predict(arm);
    }
  }

  // Predicted reward plus alpha times its uncertainty.
  class LinUCB extends LinearAgent {
    scores(persona) {
      const { predicted, width, scored, alpha, nArms } = this;
      for (let arm = 0, at = persona * nArms; arm < nArms; arm++, at++) {
        scored[arm] = predicted[at] + alpha * width[at];
      }
      return scored;
    }
  }

  // Thompson sampling: predictions of different arms are independent, so one normal number an arm will do.
  class LinTS extends LinearAgent {
    scores(persona) {
      const { predicted, width, scored, alpha, nArms, dice } = this;
      for (let arm = 0, at = persona * nArms; arm < nArms; arm++, at++) {
        scored[arm] = predicted[at] + alpha * width[at] * dice.normal();
      }
      return scored;
    }
  }

  // Agents meet the same visitors and the same luck: one uniform number for each step and category, and a
  // click happens when it lies below the click probability of what is shown: zoolib/experiment/arena.py.
  class Arena {
    constructor({ table, shop, agents, visitors, luck, shocks = [] }) {
      Object.assign(this, { table, shop, agents, visitors, luck, shocks });
      const nCategories = table[0].length;
      this.steps = 0;
      this.toss = new Float64Array(nCategories);
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
      const { agents, shop, toss, arm } = this;
      const persona = shop.persona[this.visitors.below(shop.persona.length)];
      for (let c = 0; c < toss.length; c++) toss[c] = this.luck.uniform();
      for (let k = 0; k < agents.length; k++) {
        arm[k] = agents[k].select(persona);
        const category = shop.category[arm[k]], p = this.table[persona][category];
        const reward = toss[category] < p ? 1 : 0;
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

  // A world of one seed: shop, visitors, luck and each agent's dice from streams of their own. The settings'
  // `agents` lists their classes, each with the settings that only this agent has.
  function world(all, seed) {
    const { table, nProducts, nUsers, agents } = all;
    const stream = (number) => new Random(seed, number);
    const shop = drawShop(table.length, table[0].length, nProducts, nUsers, stream(0));
    return new Arena({
      ...truths(all),
      shop,
      visitors: stream(1),
      luck: stream(2),
      agents: agents.map(({ kind, ...own }, k) =>
        new kind(nProducts, { ...all, ...own }, stream(3 + k), shop.category)),
    });
  }

  return { Random, settings, truths, drawShop, Posteriors, best, RandomAgent, LinUCB, LinTS, Arena, world };
})();
