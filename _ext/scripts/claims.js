// The page of claims: find and sort its rows. Without this script the table is whole and in order.
(() => {
  "use strict";

  const control = (text, element) => {
    const label = document.createElement("label");
    label.append(text, element);
    return label;
  };

  const input = (type) => Object.assign(document.createElement("input"), { type });

  const body = document.querySelector("table.claims tbody");
  const claims = Array.from(body.rows, (row, place) => ({
    row,
    place,
    text: row.textContent.toLowerCase(),
    drafts: row.querySelector(".drafts") !== null,
    room: Number(row.querySelector("[data-room]")?.dataset.room ?? Infinity),
  }));
  const words = input("search");
  const drafts = input("checkbox");
  const order = document.createElement("select");
  order.add(new Option("as in the book", "place"));
  order.add(new Option("least room first", "room"));
  const status = document.createElement("output");
  document.querySelector(".claims-controls").append(
    control("Find ", words),
    control("Order ", order),
    control("Only where drafts differ ", drafts),
    status,
  );

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const fits = wanted.every((word) => claim.text.includes(word)) && (!drafts.checked || claim.drafts);
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
  drafts.addEventListener("change", show);
  order.addEventListener("change", sort);
  show();
})();
