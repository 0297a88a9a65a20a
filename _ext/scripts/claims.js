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

// The page of claims: find and sort its rows. Without this script the tables are whole and in order.
(() => {
  "use strict";

  const sections = [...document.querySelectorAll("details.claims-of")];
  if (!sections.length) return;
  const wrong = document.querySelector(".claims-wrong");

  const control = (text, element) => {
    const label = document.createElement("label");
    label.append(text, element);
    return label;
  };

  const choice = (options) => {
    const select = document.createElement("select");
    for (const [text, value] of options) select.add(new Option(text, value));
    return select;
  };

  const claims = [wrong, ...sections].flatMap((section) =>
    [...(section?.querySelectorAll("tbody tr") ?? [])].map((row) => ({
      row,
      section,
      home: row.parentNode,
      text: row.textContent.toLowerCase(),
      // What has no room, an equation or an open interval, comes last.
      room: Number(row.querySelector("[data-room]")?.dataset.room ?? Infinity),
    })),
  );
  const titles = sections.map((section) => section.querySelector("summary span").textContent);
  const words = Object.assign(document.createElement("input"), { type: "search" });
  const page = choice([["all", ""], ...titles.map((title) => [title, title])]);
  const order = choice([["as in the book", "place"], ["least room first", "room"]]);
  const status = document.createElement("output");
  document
    .querySelector(".claims-controls")
    .append(control("Find ", words), control("Page ", page), control("Order ", order), status);
  // Sorted, the rows of all pages stand in one table, under the head of the first.
  const sorted = sections[0].querySelector("table").cloneNode(true);
  sorted.hidden = true;
  sorted.tBodies[0].replaceChildren();
  sections[0].before(sorted);

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const title = claim.row.querySelector(".checked-in").textContent;
      const fits = (!page.value || title === page.value) && wanted.every((word) => claim.text.includes(word));
      claim.row.hidden = !fits;
      shown += fits;
    }
    for (const section of sections) {
      const fits = claims.some((claim) => claim.section === section && !claim.row.hidden);
      section.hidden = order.value === "room" || !fits;
      section.open = Boolean(wanted.length || page.value);
    }
    if (wrong) wrong.hidden = order.value === "room";
    status.textContent = `${shown} of ${claims.length} claims`;
  };

  const sort = () => {
    sorted.hidden = order.value !== "room";
    const inOrder = sorted.hidden ? claims : [...claims].sort((a, b) => (a.room === b.room ? 0 : a.room - b.room));
    for (const claim of inOrder) (sorted.hidden ? claim.home : sorted.tBodies[0]).append(claim.row);
    show();
  };

  words.addEventListener("input", show);
  page.addEventListener("change", show);
  order.addEventListener("change", sort);
  show();
})();

// Whoever comes for a claim, or for the cell that checked it, finds it open, also where the browser does not open it
// itself. On the page of claims its sections must have been closed before.
(() => {
  "use strict";

  const open = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = place?.closest("details:not([open])");
    if (!fold) return;
    fold.open = true;
    place.scrollIntoView();
  };

  window.addEventListener("hashchange", open);
  open();
})();
