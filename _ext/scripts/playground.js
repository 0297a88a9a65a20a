// needs: zoo.js
// height: 83rem 123rem
// The playground: agents in a shop that the reader sets up, and lessons that set it up for the reader.
"use strict";

Interactive.register("playground", (figure, data) => {
  const { element, number, fixed, sum, mean } = Interactive;
  const AGENTS = [
    { label: "LinUCB", kind: Zoo.LinUCB, color: "blue" },
    { label: "Thompson sampling", kind: Zoo.LinTS, color: "orange", dash: "9 3" },
    { label: "random products", kind: Zoo.RandomAgent, color: "green", dash: "2 3" },
    { label: "stopped LinUCB", kind: Zoo.LinUCB, color: "purple", dash: "8 2 2 2" },
  ];
  const ORACLE = { label: "best possible", color: "muted", width: 1.5 };
  const [RANDOM, STOPPED] = [2, 3];
  const SPEEDS = [Infinity, 5000, 1000, 100]; // visits per second
  const EVERY = data.n_steps / 200; // visits between two points of a curve
  const WIDE = 5; // points that a click rate looks back: 500 visits
  const SLICE = 30; // milliseconds of work in a frame: the page stays awake
  const CALM = 2000; // milliseconds between two pictures for who asked for less motion, else:
  const LIVELY = 120;
  const SAYING = 3000; // milliseconds between two sentences: a screen reader shall not talk all the time
  const known = Zoo.settings(data);
  const nPersonas = data.personas.length;
  const nCategories = data.categories.length;
  // What is drawn at a point i of a curve, and said at its end, of expected clicks: those won, and the best.
  const RATE = {
    label: "clicks in 100 visits", least: 10, top: 70, ticks: [10, 20, 50],
    at: (won, best, i) => (100 * (won[i] - won[Math.max(i - WIDE, 0)])) / (EVERY * Math.min(i, WIDE)),
    said: "Percent of the best possible clicks", digits: 1, total: (won, best, i) => (100 * won[i]) / best[i],
  };
  const forgone = (won, best, i) => best[i] - won[i];
  const REGRET = {
    label: "regret (clicks forgone)", least: 1, ticks: [1, 10, 100, 1000, 10000],
    at: forgone, said: "Regret in clicks", digits: 0, total: forgone,
  };

  /** One world: expected clicks at each point of the curves, and what the last visitors were shown. */
  class Game {
    constructor(settings, seed) {
      this.arena = Zoo.world(settings, seed);
      this.playing = settings.agents.map(({ place }) => place);
      this.length = settings.length;
      this.best = [0];
      this.won = AGENTS.map(() => [0]);
      this.recent = AGENTS.map(() => new Int32Array(data.window).fill(-1));
      this.shown = AGENTS.map(() => new Int32Array(nPersonas * nCategories));
    }

    get done() {
      return this.arena.steps === this.length;
    }

    step() {
      const { arena } = this;
      const place = arena.steps % data.window;
      const persona = arena.step();
      const isPoint = arena.steps % EVERY === 0;
      if (isPoint) this.best.push(arena.optimal);
      this.playing.forEach((k, i) => {
        const gone = this.recent[k][place];
        const cell = persona * nCategories + arena.shop.category[arena.arm[i]];
        if (gone >= 0) this.shown[k][gone]--;
        this.shown[k][cell]++;
        this.recent[k][place] = cell;
        if (isPoint) this.won[k].push(arena.expected[i]);
      });
    }
  }

  let seed = 0;
  let wanted = 1; // worlds
  let games = [];
  let before; // the run before, drawn paler
  let ahead = []; // runs of a lesson that are still to come
  let playing = false;
  let drawnAt = -Infinity;
  let saidAt = -Infinity;
  let pending = 0; // frame
  let lastFrame = 0;
  let owed = 0; // steps that are due

  const row = (kind) => figure.root.appendChild(element("div", { class: `interactive-${kind}` }));
  const lessons = row("buttons");
  const lesson = row("room short").appendChild(element("p", { class: "interactive-summary" }));
  data.lessons.forEach(({ name }, which) => Interactive.button(lessons, name, () => stage(which)));
  const buttons = row("buttons");
  const play = Interactive.button(buttons, "Play", () =>
    (!playing && finished() ? change(true) : run(!playing)));
  Interactive.button(buttons, "Start again", () => change(false));
  Interactive.button(buttons, "New world", () => {
    seed += 1;
    change();
  });
  Interactive.button(buttons, `Play ${data.n_worlds} worlds`, () => change(true, data.n_worlds));
  const view = row("controls narrow");
  const speed = Interactive.choice(view, {
    label: "Speed",
    options: SPEEDS.map((n) => (n === Infinity ? "as fast as it goes" : `${number(n)} a second`)),
    value: Interactive.calm() ? 0 : 2,
    onInput: () => {},
  });
  const look = (label, ...options) => Interactive.choice(view, { label, options, onInput: () => run(playing) });
  const slide = (options) => figure.slider({ ...options, onInput: () => change() });
  const control = {
    show: look("Show", "click rate", "regret"),
    axis: look("Axis", "linear", "logarithmic"),
    ucb: slide({ label: "α of LinUCB", min: 0, max: 2, step: 0.05, format: fixed(2) }),
    ts: slide({ label: "α of Thompson sampling", min: 0, max: 2, step: 0.05, format: fixed(2) }),
    discount: slide({ label: "Discount γ", min: 0.98, max: 1, step: 0.001, format: fixed(3) }),
    noise: slide({ label: "Noise", min: 0, max: 0.9, step: 0.05, format: fixed(2) }),
    products: slide({ label: "Products", min: 5, max: 500, step: 5 }),
    shock: figure.choice({
      label: "Shock",
      options: ["none", ...data.shocks.map(({ news }) => news), `both, ${number(data.apart)} visits apart`],
      onInput: () => change(),
    }),
    at: slide({
      label: "Shock before visit", min: 0, max: data.n_steps - 1000, step: 1000, format: fixed(0),
    }),
  };
  const plot = figure.plot({
    label: "Curves of the agents against visits. The sentence below the curves says the last values.", height: 320,
  });
  // Who plays is ticked in the legend.
  const who = [...figure.legend([...AGENTS, ORACLE]).children].slice(0, -1).map((item) => {
    const box = element("input", { type: "checkbox" });
    box.addEventListener("input", () => change());
    item.replaceChildren(element("label", {}, box, ...item.childNodes));
    return box;
  });
  const say = Interactive.summary(row("room"));
  figure.root.append(figure.row);
  const what = `What each persona was shown in the last ${number(data.window)} visits, in percent; ` +
    "framed is the category that the oracle shows now.";
  figure.root.append(element("p", { class: "interactive-summary" }, what));
  const tables = row("tables");
  // The room that the page keeps free is for the opening; who has touched the figure needs none.
  figure.root.addEventListener("click", () => (figure.root.style.minHeight = 0), { once: true });
  const tiles = AGENTS.map(({ label }) => tileTable(label));

  /** A table of persona and category; returns what puts numbers in. */
  function tileTable(label) {
    const named = (scope, name) => element("th", { scope }, name.replaceAll("_", " "));
    const cells = data.personas.map(() => data.categories.map(() => element("td")));
    const head = element("tr", {}, element("td"), ...data.categories.map((name) => named("col", name)));
    const lines = data.personas.map((name, i) => element("tr", {}, named("row", name), ...cells[i]));
    const table = element("table", { class: "interactive-tiles" }, element("caption", {}, label),
      element("thead", {}, head), element("tbody", {}, ...lines));
    tables.append(table);
    return (shown, { arena, playing }, k) => cells.forEach((line, persona) => {
      table.hidden = !playing.includes(k);
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
    const { shock, at, ucb, ts, discount } = control;
    const struck = [[], [0], [1], [0, 1]][shock.value];
    const alpha = [ucb.value, ts.value, 0, ucb.value];
    return {
      ...known,
      nProducts: control.products.value,
      noise: control.noise.value,
      shocks: struck.map((which, i) => ({ step: at.value + i * data.apart, shock: known.knownShocks[which] })),
      length: data.n_steps * Math.max(struck.length, 1),
      agents: AGENTS.map(({ kind }, place) => ({
        kind, place, alpha: alpha[place],
        ...(place === STOPPED ? { stop: data.stop } : { discount: discount.value }),
      })).filter(({ place }) => who[place].checked),
    };
  }

  const finished = () => games.length === wanted && games.at(-1).done;

  /** What has been played: all finished worlds, or the one world as it goes. */
  function record() {
    const done = games.filter((game) => game.done);
    return (done.length > 1 ? done : games.slice(0, 1))
      .map(({ best, won, playing: agents }) => ({ best, won, agents }));
  }

  /** A lesson: its runs one after the other, the last one at the reader's speed. */
  function stage(which) {
    const { says, runs } = data.lessons[which];
    lesson.textContent = says;
    [...lessons.children].forEach((button, i) => button.setAttribute("aria-pressed", i === which));
    games = [];
    before = undefined;
    ahead = [...runs];
    next();
  }

  function next() {
    const { seed: world, worlds, agents, ...values } = { ...data.opening, ...ahead.shift() };
    for (const [name, value] of Object.entries(values)) control[name].value = value;
    who.forEach((box, k) => (box.checked = agents.includes(k)));
    seed = world;
    begin(true, worlds);
  }

  /** Another setting or world: the same visitors and clicks from the first step, played on unless at rest. */
  function change(goOn = playing || finished(), worlds = 1) {
    ahead = [];
    begin(goOn, worlds);
  }

  /** Begin a run. The one before stays, paler, if it had gone a quarter of its way. */
  function begin(goOn, worlds) {
    const [one] = record();
    if (one && one.best.length > games[0].length / EVERY / 4) before = record();
    wanted = worlds;
    games = [new Game(settings(), seed)];
    run(goOn);
  }

  function run(goOn) {
    cancelAnimationFrame(pending);
    playing = goOn;
    play.textContent = playing ? "Pause" : "Play";
    draw();
    if (!playing) {
      tell();
      return;
    }
    lastFrame = performance.now();
    owed = 0;
    pending = requestAnimationFrame(frame);
  }

  /** Play what is due, for no longer than a slice; then let the page breathe. */
  function frame(now) {
    const until = performance.now() + SLICE;
    const pace = wanted > 1 || ahead.length ? Infinity : SPEEDS[speed.value]; // visits per second
    const elapsed = Math.min(Math.max(1, now - lastFrame), 100); // milliseconds; more while the page was hidden
    owed = Math.min(owed, 1) + (pace * elapsed) / 1000;
    for (let n = 0; owed >= 1 && !finished(); n++, owed--) {
      if (n % 20 === 0 && performance.now() > until) break;
      if (games.at(-1).done) games.push(new Game(settings(), seed + games.length));
      games.at(-1).step();
    }
    lastFrame = now;
    if (finished()) {
      if (ahead.length) next();
      else run(false);
      return;
    }
    if (now - drawnAt > (Interactive.calm() ? CALM : LIVELY)) draw();
    if (now - saidAt > SAYING) tell();
    pending = requestAnimationFrame(frame);
  }

  /** Mean over worlds, and half of its 95 percent interval, which one world does not have. */
  function estimate(values) {
    const middle = mean(values);
    if (values.length < 2) return [middle, 0];
    const variance = sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1);
    return [middle, data.student[values.length - 2] * Math.sqrt(variance / values.length)];
  }

  /** A measure of one agent, or without one of the oracle, at a point of a run. */
  const valueAt = (worlds, k, measure, i) =>
    estimate(worlds.map(({ won, best }) => measure(won[k] ?? best, best, i)));

  const measured = () => [RATE, REGRET][control.show.value];

  function draw() {
    drawnAt = performance.now();
    const measure = measured();
    const isLog = control.axis.value === 1;
    const now = record();
    const curve = (worlds, k) => worlds[0].best.slice(1).map((_, i) =>
      [(i + 1) * EVERY, ...valueAt(worlds, k, measure.at, i + 1)]);
    const lines = [before, now].filter(Boolean).flatMap((worlds) => worlds[0].agents.map((k) =>
      ({ ...AGENTS[k], k, points: curve(worlds, k), ...(worlds === before && { opacity: 0.5 }) })));
    if (measure === RATE) lines.push({ ...ORACLE, points: curve(now) });
    // On a linear axis the random products of a regret would press all others flat: they are cut.
    const tops = lines.filter(({ k }) => isLog || k !== RANDOM || lines.length === 1)
      .flatMap(({ points }) => points.map(([, middle, half]) => middle + half));
    const top = measure.top ?? Math.max(100, 1.1 * Math.max(...tops));
    const height = (value) => (isLog ? Math.log10(Math.max(value, measure.least)) : value);
    const y = isLog
      ? { domain: [measure.least, top].map(height), ticks: measure.ticks.filter((t) => t <= top).map(height) }
      : { domain: [0, top], ticks: undefined };
    const format = isLog ? (power) => number(Math.round(10 ** power)) : undefined;
    const { shocks, length } = settings();
    plot.draw((pen) => {
      shocks.forEach(({ step }) => {
        const late = step > length / 2;
        pen.line(y.domain.map((end) => [step, end]), { color: "ink", width: 1, dash: "5 4" });
        pen.text(step, y.domain[1], "shock", { anchor: late ? "end" : "start", dx: late ? -5 : 5, dy: 14 });
      });
      lines.forEach(({ points, ...look }) => {
        if (points.some(([, , half]) => half > 0) && !look.opacity) {
          pen.band(points.map(([at, middle, half]) => [at, height(middle - half), height(middle + half)]),
            { color: look.color });
        }
        pen.line(points.map(([at, middle]) => [at, height(middle)]), look);
      });
    }, { x: { label: "visits", domain: [0, length] }, y: { ...y, label: measure.label, format } });
    const counted = [games[0], ...games.slice(1).filter((game) => game.done)];
    tiles.forEach((fill, k) => {
      const shown = new Int32Array(nPersonas * nCategories);
      counted.forEach((game) => game.shown[k].forEach((n, cell) => (shown[cell] += n)));
      fill(shown, games[0], k);
    });
  }

  /** Say in words where the game stands, and where the one before ended. */
  function tell() {
    saidAt = performance.now();
    const { said, total, digits } = measured();
    const ends = (worlds) => worlds[0].agents.map((k) => {
      const [middle, half] = valueAt(worlds, k, total, worlds[0].best.length - 1);
      const [from, to] = [middle - half, middle + half].map(fixed(digits));
      return `${AGENTS[k].label} ${number(middle, digits)}${half ? ` [${from}, ${to}]` : ""}`;
    }).join(", ") || "nobody plays";
    const { steps } = games[0].arena;
    const done = games.filter((game) => game.done).length;
    const where = wanted > 1
      ? `${done} of ${wanted} worlds played, from world ${seed} on. ${said}, mean [95% interval]`
      : `World ${seed}, visit ${number(steps)} of ${number(games[0].length)}. ${said}`;
    const ready = playing ? `World ${seed} begins.` : `World ${seed} is ready: press Play.`;
    const now = steps < EVERY ? ready : `${where}: ${ends(record())}.`;
    say(before ? `${now} Before, paler: ${ends(before)}.` : now);
  }

  return () => stage(0);
});
