// Numbers of claims: what stands behind one shows when it is pointed at, focused or tapped; Escape takes it away.
// Without this script the browser shows the same text as the title of the link.
(() => {
  "use strict";

  const tip = document.createElement("div");
  tip.id = "claim-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  let shown = null;

  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };

  const show = (link) => {
    if (link === shown) return;
    hide();
    shown = link;
    tip.textContent = link.dataset.claim;
    tip.hidden = false;
    link.setAttribute("aria-describedby", tip.id);
    // Below the number, or above it where the window ends; never across an edge.
    const at = link.getClientRects()[0];
    const left = Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = at.bottom + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
    tip.style.top = `${(below ? at.bottom : at.top - tip.offsetHeight) + window.scrollY}px`;
  };

  for (const link of document.querySelectorAll("a.claim[title]")) {
    link.dataset.claim = link.title;
    link.removeAttribute("title");
  }
  document.body.append(tip);
  const linkAt = (event) => event.target.closest?.("a.claim");
  // A pointer may cross to the tooltip, to select its text, without losing it.
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = linkAt(event);
    if (link) show(link);
    else if (event.target !== tip && document.activeElement !== shown) hide();
  });
  document.addEventListener("focusin", (event) => (linkAt(event) ? show(linkAt(event)) : hide()));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  // The first tap shows, the second follows the link; a tap elsewhere hides.
  let before = null;
  document.addEventListener("pointerdown", () => { before = shown; }, true);
  document.addEventListener("click", (event) => {
    const link = linkAt(event);
    if (!link) { if (event.target !== tip) hide(); return; }
    if (event.pointerType === "touch" && link !== before) event.preventDefault();
    show(link);
  });
})();

// The page of claims: find and sort its rows. Without this script the table is whole and in order.
(() => {
  "use strict";

  const control = (text, element) => {
    const label = document.createElement("label");
    label.append(text, element);
    return label;
  };

  const body = document.querySelector("table.claims tbody");
  if (!body) return;
  const claims = Array.from(body.rows, (row, place) => ({
    row,
    place,
    text: row.textContent.toLowerCase(),
    room: Number(row.querySelector("[data-room]")?.dataset.room ?? Infinity),
  }));
  const words = Object.assign(document.createElement("input"), { type: "search" });
  const order = document.createElement("select");
  order.add(new Option("as in the book", "place"));
  order.add(new Option("least room first", "room"));
  const status = document.createElement("output");
  document.querySelector(".claims-controls").append(
    control("Find ", words),
    control("Order ", order),
    status,
  );

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const fits = wanted.every((word) => claim.text.includes(word));
      claim.row.hidden = !fits;
      shown += fits;
    }
    status.textContent = `${shown} of ${claims.length} claims`;
  };

  const sort = () => {
    const key = order.value;
    claims.sort((a, b) => (a[key] === b[key] ? a.place - b.place : a[key] - b[key]));
    body.append(...claims.map((claim) => claim.row));
  };

  words.addEventListener("input", show);
  order.addEventListener("change", sort);
  show();
})();
