// needs: zoo.js
// height: 69rem 107rem
// The playground: LinUCB, Thompson sampling and random products in a shop that the reader sets up.
"use strict";

Interactive.register("playground", (figure, data) => {
  const { element, number, fixed, sum, mean } = Interactive;
  const AGENTS = [
    { label: "LinUCB", kind: Zoo.LinUCB, color: "blue" },
    { label: "Thompson sampling", kind: Zoo.LinTS, color: "orange", dash: "9 3" },
    { label: "random products", kind: Zoo.RandomAgent, color: "green", dash: "2 3" },
  ];
  const SPEEDS = [Infinity, 5000, 500, 50]; // steps a second
  const EVERY = data.n_steps / 200; // steps between two points of a curve
  const SLICE = 30; // milliseconds of work in a frame: the page stays awake
  const CALM = 2000; // milliseconds between two pictures for who asked for less motion, else:
  const LIVELY = 120;
  const SAYING = 3000; // milliseconds between two sentences: a screen reader shall not talk all the time
  const known = Zoo.settings(data);
  const nPersonas = data.personas.length;
  const nCategories = data.categories.length;

  /** One world: the regret at each point of the curves, and what the last visitors were shown. */
  class Game {
    constructor(settings, seed) {
      this.arena = Zoo.world(settings, seed);
      this.regret = AGENTS.map(() => [0]);
      this.recent = AGENTS.map(() => new Int32Array(data.window).fill(-1));
      this.shown = AGENTS.map(() => new Int32Array(nPersonas * nCategories));
    }

    get done() {
      return this.arena.steps === data.n_steps;
    }

    step() {
      const { arena } = this;
      const place = arena.steps % data.window;
      const persona = arena.step();
      AGENTS.forEach((_, k) => {
        const gone = this.recent[k][place];
        const cell = persona * nCategories + arena.shop.category[arena.arm[k]];
        if (gone >= 0) this.shown[k][gone]--;
        this.shown[k][cell]++;
        this.recent[k][place] = cell;
        if (arena.steps % EVERY === 0) this.regret[k].push(arena.regret(k));
      });
    }
  }

  let seed = 0;
  let wanted = 1; // worlds
  let games = [];
  let playing = false;
  let drawnAt = -Infinity;
  let saidAt = -Infinity;
  let pending = 0; // frame
  let lastFrame = 0;
  let owed = 0; // steps that are due

  const slide = (options) => figure.slider({ ...options, onInput: change });
  const control = {
    ucb: slide({ label: "α of LinUCB", min: 0, max: 2, step: 0.05, value: data.alpha_ucb, format: fixed(2) }),
    ts: slide({
      label: "α of Thompson sampling", min: 0, max: 2, step: 0.05, value: data.alpha_ts, format: fixed(2),
    }),
    discount: slide({ label: "Discount γ", min: 0.98, max: 1, step: 0.001, value: 1, format: fixed(3) }),
    noise: slide({ label: "Noise", min: 0, max: 0.9, step: 0.05, value: 0, format: fixed(2) }),
    products: slide({ label: "Products", min: 5, max: 500, step: 5, value: data.n_products }),
    shock: figure.choice({
      label: "Shock", options: ["none", ...data.shocks.map(({ news }) => news)], value: 1, onInput: change,
    }),
    shockStep: slide({
      label: "Shock before step", min: 0, max: data.n_steps - 1000, step: 1000, value: data.shock_step,
      format: fixed(0),
    }),
  };
  const buttons = figure.root.appendChild(element("div", { class: "interactive-buttons" }));
  const play = Interactive.button(buttons, "Play", () =>
    (!playing && finished() ? begin(true) : run(!playing)));
  Interactive.button(buttons, "Start again", again);
  Interactive.button(buttons, "New world", () => {
    seed += 1;
    change();
  });
  Interactive.button(buttons, `Play ${data.n_worlds} worlds`, () => {
    wanted = data.n_worlds;
    if (!playing) run(true);
  });
  const plot = figure.plot({
    label: "Regret of the three agents against steps. The sentence below the curves says the last values.",
    height: 320,
    x: { label: "steps", domain: [0, data.n_steps] },
    y: { label: "regret (clicks forgone)" },
  });
  figure.legend(AGENTS);
  const say = Interactive.summary(figure.root.appendChild(element("div", { class: "interactive-room" })));
  const what = `What each persona was shown in the last ${number(data.window)} visits, in percent; ` +
    "framed is the category that the oracle shows now.";
  figure.root.append(element("p", { class: "interactive-summary" }, what));
  const tables = figure.root.appendChild(element("div", { class: "interactive-tables" }));
  const tiles = AGENTS.map(({ label }) => tileTable(label));
  const last = Interactive.controls(tables);
  const speed = Interactive.choice(last, {
    label: "Speed",
    options: SPEEDS.map((n) => (n === Infinity ? "as fast as it goes" : `${number(n)} steps a second`)),
    onInput: () => {},
  });
  const scale = Interactive.choice(last, {
    label: "Axis of regret", options: ["logarithmic", "linear, cut above the learners"], onInput: draw,
  });

  /** A table of persona and category; returns what puts numbers in. */
  function tileTable(label) {
    const named = (scope, name) => element("th", { scope }, name.replaceAll("_", " "));
    const cells = data.personas.map(() => data.categories.map(() => element("td")));
    const head = element("tr", {}, element("td"), ...data.categories.map((name) => named("col", name)));
    const lines = data.personas.map((name, i) => element("tr", {}, named("row", name), ...cells[i]));
    tables.append(element("table", { class: "interactive-tiles" }, element("caption", {}, label),
      element("thead", {}, head), element("tbody", {}, ...lines)));
    return (shown, arena) => cells.forEach((line, persona) => {
      const counts = shown.subarray(persona * nCategories, (persona + 1) * nCategories);
      const total = sum(counts);
      line.forEach((cell, category) => {
        const share = total ? counts[category] / total : 0;
        const isBest = category === arena.bestCategory(persona);
        const heard = isBest ? [element("span", { class: "visually-hidden" }, ", the oracle's")] : [];
        cell.replaceChildren(total ? number(Math.round(100 * share)) : "–", ...heard);
        cell.style.setProperty("--share", `${Math.round(50 * share)}%`);
        cell.classList.toggle("best", isBest);
      });
    });
  }

  function settings() {
    const shock = known.knownShocks[control.shock.value - 1];
    return {
      ...known,
      nProducts: control.products.value,
      noise: control.noise.value,
      discount: control.discount.value,
      shocks: shock ? [{ step: control.shockStep.value, shock }] : [],
      agents: AGENTS.map(({ kind }, k) => ({ kind, alpha: [control.ucb, control.ts][k]?.value })),
    };
  }

  const finished = () => games.length === wanted && games.at(-1).done;

  /** Another setting or world: the same visitors and clicks from the first step, played on unless at rest. */
  function change() {
    begin(playing || games.at(-1).done);
  }

  function again() {
    begin(false);
  }

  function begin(goOn) {
    wanted = 1;
    games = [new Game(settings(), seed)];
    run(goOn);
  }

  function run(goOn) {
    cancelAnimationFrame(pending);
    playing = goOn;
    play.textContent = playing ? "Pause" : "Play";
    if (!playing) {
      draw();
      tell();
      return;
    }
    lastFrame = drawnAt = performance.now();
    owed = 0;
    pending = requestAnimationFrame(frame);
  }

  /** Play what is due, for no longer than a slice; then let the page breathe. */
  function frame(now) {
    const until = performance.now() + SLICE;
    const pace = wanted > 1 ? Infinity : SPEEDS[speed.value]; // steps a second
    const elapsed = Math.min(Math.max(1, now - lastFrame), 100); // milliseconds; more while the page was hidden
    owed = Math.min(owed, 1) + (pace * elapsed) / 1000;
    for (let n = 0; owed >= 1 && !finished(); n++, owed--) {
      if (n % 20 === 0 && performance.now() > until) break;
      if (games.at(-1).done) games.push(new Game(settings(), seed + games.length));
      games.at(-1).step();
    }
    lastFrame = now;
    if (finished()) {
      run(false);
      return;
    }
    if (now - drawnAt > (Interactive.calm() ? CALM : LIVELY)) draw();
    if (now - saidAt > SAYING) tell();
    pending = requestAnimationFrame(frame);
  }

  /** Mean and interval over the finished worlds, or the one world as it goes: [step, mean, half width]. */
  function curve(k) {
    const done = games.filter((game) => game.done);
    if (done.length < 2) return games[0].regret[k].map((r, i) => [i * EVERY, r, 0]);
    const t = data.student[done.length - 2];
    return games[0].regret[k].map((_, i) => {
      const values = done.map((game) => game.regret[k][i]);
      const middle = mean(values);
      const variance = sum(values.map((r) => (r - middle) ** 2)) / (values.length - 1);
      return [i * EVERY, middle, t * Math.sqrt(variance / values.length)];
    });
  }

  function draw() {
    drawnAt = performance.now();
    const curves = AGENTS.map((_, k) => curve(k));
    const logarithmic = scale.value === 0;
    const height = (r) => (logarithmic ? Math.log10(Math.max(r, 1)) : r);
    const learners = curves.slice(0, 2).flat().map(([, mean, half]) => mean + half);
    const y = logarithmic
      ? { domain: [0, 4], ticks: [0, 1, 2, 3, 4], format: (power) => number(10 ** power) }
      : { domain: [0, Math.max(100, 1.1 * Math.max(...learners))], ticks: undefined, format: undefined };
    plot.draw((pen) => {
      if (control.shock.value > 0) {
        const step = control.shockStep.value;
        const late = step > data.n_steps / 2;
        pen.line(y.domain.map((end) => [step, end]), { color: "ink", width: 1, dash: "5 4" });
        pen.text(step, y.domain[1], "shock", { anchor: late ? "end" : "start", dx: late ? -5 : 5, dy: 14 });
      }
      AGENTS.forEach((look, k) => {
        const points = curves[k];
        if (points.some(([, , half]) => half > 0)) {
          pen.band(points.map(([step, mean, half]) => [step, height(mean - half), height(mean + half)]), look);
        }
        pen.line(points.map(([step, mean]) => [step, height(mean)]), look);
      });
    }, { y });
    const counted = [games[0], ...games.slice(1).filter((game) => game.done)];
    tiles.forEach((fill, k) => {
      const shown = new Int32Array(nPersonas * nCategories);
      counted.forEach((game) => game.shown[k].forEach((n, cell) => (shown[cell] += n)));
      fill(shown, games[0].arena);
    });
  }

  /** Say in words where the game stands. */
  function tell() {
    saidAt = performance.now();
    const done = games.filter((game) => game.done).length;
    const ends = AGENTS.map((_, k) => curve(k).at(-1));
    const interval = ([, mean, half]) =>
      half ? `${number(mean, 0)} [${number(mean - half, 0)}, ${number(mean + half, 0)}]` : number(mean, 0);
    const where = wanted > 1
      ? `${done} of ${wanted} worlds played, from world ${seed} on. Mean regret [95% interval]`
      : `World ${seed}, step ${number(games[0].arena.steps)} of ${number(data.n_steps)}. Regret`;
    const clicks = AGENTS.map(({ label }, k) => `${label} ${interval(ends[k])}`).join(", ");
    say(games[0].arena.steps === 0 ? `World ${seed} is ready: press Play.` : `${where}: ${clicks} clicks.`);
  }

  return again;
});
