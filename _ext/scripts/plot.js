// What all interactive figures share: the register, controls, and a plot that redraws itself.
//
//   Interactive.register(name, (figure, data) => { …; return draw; })
//
// fills each figure of this name, with data as published, and draws it now and whenever a control is moved:
//
//   figure.slider({label, min, max, step, value, format, onInput})   its .value, a number, is read or set
//   figure.choice({label, options, value, onInput})                  its .value is an index
//   figure.row                                                       where these stand: above all else, if not moved
//   figure.legend([{label, color, dash, shape}])
//   const say = figure.summary(); say("…")      one sentence, read aloud when it changes
//   const plot = figure.plot({label, height, x: {label, domain, ticks, format}, y: …})
//   plot.draw((pen) => { pen.line(points, {color}); … }, {x, y})     now and on each change of width
//
// Colours are names of zoolib.book.plots: ink, muted, grid, blue, orange, green, purple.
"use strict";

const Interactive = (() => {
  let made = 0;
  const unique = () => `interactive-${++made}`;

  /** Make elements of one kind, each with attributes and children. */
  const maker = (create) => (tag, attributes = {}, ...children) => {
    const made = create(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  };
  const element = maker((tag) => document.createElement(tag));
  const drawing = maker((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

  /** Fill every figure of this name. A figure that cannot be filled is taken away: the static one stands. */
  function register(name, fill) {
    for (const figure of document.querySelectorAll(`.interactive[data-figure="${name}"]`)) {
      const data = JSON.parse(figure.querySelector("script").textContent);
      const root = figure.querySelector(".interactive-stage");
      const row = controls(root);
      let draw;
      const onInput = () => draw();
      try {
        draw = fill({
          root,
          row,
          slider: (options) => slider(row, { onInput, ...options }),
          choice: (options) => choice(row, { onInput, ...options }),
          legend: (entries) => legend(root, entries),
          plot: (options) => plot(root, options),
          summary: () => summary(root),
        }, data);
        draw();
        figure.classList.add("ready");
      } catch (error) {
        figure.remove();
        throw error;
      }
    }
  }

  function controls(parent) {
    return parent.appendChild(element("div", { class: "interactive-controls" }));
  }

  /** A slider with its name and its value, as `format` writes it. */
  function slider(parent, { label, min, max, step, value, format = String, onInput }) {
    const input = element("input", { type: "range", id: unique(), min, max, step, value });
    const output = element("output", { for: input.id, "aria-live": "off" }); // the slider itself is read aloud
    const show = () => {
      output.textContent = format(input.valueAsNumber);
      input.setAttribute("aria-valuetext", output.textContent);
    };
    show();
    return control(parent, label, [output, input], "valueAsNumber", onInput, show);
  }

  /** A list of names, of which one is chosen. */
  function choice(parent, { label, options, value = 0, onInput }) {
    const input = element("select", { id: unique() }, ...options.map((name) => element("option", {}, name)));
    input.selectedIndex = value;
    return control(parent, label, [input], "selectedIndex", onInput);
  }

  /** A named control, whose input is the last of its parts and has its value under the name of a property. */
  function control(parent, label, parts, property, onInput, show = () => {}) {
    const input = parts.at(-1);
    input.addEventListener("input", () => {
      show();
      onInput();
    });
    const name = element("label", { for: input.id }, label);
    parent.append(element("div", { class: "interactive-control" }, name, ...parts));
    return {
      get value() {
        return input[property];
      },
      set value(next) {
        input[property] = next;
        show();
      },
    };
  }

  function button(parent, label, onClick) {
    const made = parent.appendChild(element("button", { type: "button" }, label));
    made.addEventListener("click", onClick);
    return made;
  }

  /** A sentence on the state of the figure, which screen readers speak when it changes. */
  function summary(parent) {
    const line = element("p", { class: "interactive-summary", "aria-live": "polite" });
    parent.append(line);
    return (text) => {
      line.textContent = text;
    };
  }

  function legend(parent, entries) {
    const items = entries.map(({ label, color, dash, shape }) => {
      const sign = shape
        ? marker(14, 6, { color, shape, size: 5 })
        : drawing("line", { x1: 0, x2: 28, y1: 6, y2: 6, ...stroke({ color, dash }) });
      const picture = drawing("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" }, sign);
      return element("li", {}, picture, label);
    });
    return parent.appendChild(element("ul", { class: "interactive-legend" }, ...items));
  }

  const paint = (color) => `var(--${color})`;

  function stroke({ color = "blue", width = 2, dash, opacity = 1 }) {
    return {
      style: `fill: none; stroke: ${paint(color)}; stroke-width: ${width}; opacity: ${opacity}`,
      "stroke-dasharray": dash,
    };
  }

  const SHAPES = {
    circle: (s) => `M${-s},0a${s},${s} 0 1,0 ${2 * s},0a${s},${s} 0 1,0 ${-2 * s},0Z`,
    square: (s) => `M${-s},${-s}h${2 * s}v${2 * s}h${-2 * s}Z`,
    diamond: (s) => `M0,${-1.4 * s}L${1.4 * s},0L0,${1.4 * s}L${-1.4 * s},0Z`,
    triangle: (s) => `M0,${-1.2 * s}L${1.2 * s},${s}H${-1.2 * s}Z`,
    bar: (s) => `M${-2 * s},${-s / 2}h${4 * s}v${s}h${-4 * s}Z`,
  };

  /** A mark at a place in pixels. */
  function marker(x, y, { color = "blue", shape = "circle", size = 4, title, opacity = 1, hollow = false }) {
    const fill = hollow ? "none" : paint(color);
    const look = `fill: ${fill}; stroke: ${paint(color)}; stroke-width: 2; opacity: ${opacity}`;
    const path = { d: SHAPES[shape](size), transform: `translate(${x},${y})`, style: look };
    return drawing("path", path, ...(title ? [drawing("title", {}, title)] : []));
  }

  /** Round places, about `count` of them, that span a domain. */
  function ticks([low, high], count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.999 * rough);
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toFixed(digits)));
  }

  /** Numbers as the book writes them: thousands apart, and a true minus. */
  function number(value, digits) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits ?? 6 };
    return value.toLocaleString("en-GB", options).replace(/^-/, "−");
  }

  const fixed = (digits) => (value) => number(value, digits);
  const percent = (share) => `${number(100 * share, 0)} %`;
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;

  /** An axis of names, the first on top. */
  const named = (names) => ({
    domain: [names.length - 0.5, -0.5], ticks: names.map((_, i) => i), format: (i) => names[i],
  });

  /** Draws in the coordinates of the data, onto a layer that is cut at the frame. */
  function penOn(layer, notes, x, y) {
    const place = (points) => points.map(([u, v]) => `${x(u).toFixed(1)},${y(v).toFixed(1)}`).join("L");
    const fill = (color, opacity) => `fill: ${paint(color)}; fill-opacity: ${opacity}; stroke: none`;
    return {
      line(points, look = {}) {
        if (points.length) layer.append(drawing("path", { d: `M${place(points)}`, ...stroke(look) }));
      },
      area(points, { color = "blue", opacity = 0.2 } = {}) {
        layer.append(drawing("path", { d: `M${place(points)}Z`, style: fill(color, opacity) }));
      },
      band(rows, look) {
        const low = rows.map(([at, from]) => [at, from]);
        const high = rows.map(([at, , to]) => [at, to]).reverse();
        this.area([...low, ...high], look);
      },
      tile([left, right], [bottom, top], { color = "blue", opacity = 0.5 } = {}) {
        const [u, v] = [x(left), y(top)];
        const size = { width: Math.max(0, x(right) - u), height: Math.max(0, y(bottom) - v) };
        layer.append(drawing("rect", { x: u, y: v, ...size, style: fill(color, opacity) }));
      },
      points(points, look = {}) {
        layer.append(...points.map(([u, v]) => marker(x(u), y(v), look)));
      },
      text(u, v, words, { anchor = "start", dx = 0, dy = 0, color = "ink" } = {}) {
        const at = { x: x(u) + dx, y: y(v) + dy, "text-anchor": anchor, style: `fill: ${paint(color)}` };
        notes.append(drawing("text", at, words));
      },
    };
  }

  /** A pair of axes that keeps its height, follows the page's width and repeats its last drawing. */
  function plot(parent, { label, height = 320, x = {}, y = {} }) {
    const clip = unique();
    const svg = drawing("svg", { role: "img", "aria-label": label, class: "interactive-plot", height });
    parent.append(svg);
    const axes = { x: { domain: [0, 1], ...x }, y: { domain: [0, 1], ...y } };
    let content = () => {};
    let drawnAt;

    const labelled = (axis, room) => {
      const places = axis.ticks ?? ticks(axis.domain, Math.max(3, Math.floor(room)));
      return places.map((place) => [place, (axis.format ?? number)(place)]);
    };

    const tick = (line, words, at) =>
      drawing("g", { class: "tick" }, drawing("line", line), drawing("text", at, words));

    function render() {
      const width = svg.clientWidth || 640;
      drawnAt = width;
      const rows = labelled(axes.y, (height - 70) / 45);
      const left = 14 + 7.5 * Math.max(...rows.map(([, words]) => words.length));
      const frame = { left, right: width - 12, top: axes.y.label ? 28 : 10, bottom: height - 44 };
      const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
      const across = scale(axes.x.domain, frame.left, frame.right);
      const up = scale(axes.y.domain, frame.bottom, frame.top);
      const [layer, notes] = [drawing("g", { "clip-path": `url(#${clip})` }), drawing("g")];
      const size = { width: frame.right - frame.left, height: frame.bottom - frame.top };
      const cut = drawing("rect", { x: frame.left, y: frame.top, ...size });
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.replaceChildren(
        drawing("clipPath", { id: clip }, cut),
        ...labelled(axes.x, size.width / 70).map(([place, words]) => {
          const x = across(place);
          const line = { x1: x, x2: x, y1: frame.top, y2: frame.bottom };
          return tick(line, words, { x, y: frame.bottom + 18, "text-anchor": "middle" });
        }),
        ...rows.map(([place, words]) => {
          const y = up(place);
          const line = { x1: frame.left, x2: frame.right, y1: y, y2: y };
          return tick(line, words, { x: frame.left - 7, y: y + 4, "text-anchor": "end" });
        }),
        drawing("text", { x: frame.right, y: height - 6, "text-anchor": "end" }, axes.x.label ?? ""),
        drawing("text", { x: 0, y: 14 }, axes.y.label ?? ""),
        layer,
        notes,
      );
      content(penOn(layer, notes, across, up));
    }

    new ResizeObserver(() => {
      if (svg.clientWidth !== drawnAt) render();
    }).observe(svg);
    return {
      draw(next, changed = {}) {
        content = next;
        for (const axis of Object.keys(changed)) Object.assign(axes[axis], changed[axis]);
        render();
      },
    };
  }

  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  return {
    register, controls, choice, button, summary, calm, element,
    ticks, number, fixed, percent, sum, mean, named,
  };
})();
