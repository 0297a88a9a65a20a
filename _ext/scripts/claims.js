// The page of claims: find, filter and sort its rows. Without this script the table is whole and in order.
(() => {
  "use strict";

  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text, control);
    return label;
  };

  const select = (options) => {
    const control = document.createElement("select");
    for (const [value, text] of options) control.add(new Option(text, value));
    return control;
  };

  const field = () => {
    const control = document.createElement("input");
    control.type = "search";
    return control;
  };

  const box = () => {
    const control = document.createElement("input");
    control.type = "checkbox";
    return control;
  };

  // What the filter and the order need to know of a row.
  const read = (row, place) => ({
    row,
    place,
    text: row.textContent.toLowerCase(),
    page: row.querySelector(".checked-in").textContent.trim(),
    drafts: row.querySelector(".drafts") !== null,
    room: Number(row.querySelector("[data-room]")?.dataset.room ?? Infinity),
  });

  const start = () => {
    const body = document.querySelector("table.claims tbody");
    const place = document.querySelector(".claims-controls");
    const claims = Array.from(body.rows, read);
    const pages = [...new Set(claims.map((claim) => claim.page))];

    const words = field();
    const page = select([["", "all pages"], ...pages.map((name) => [name, name])]);
    const order = select([["place", "as in the book"], ["room", "least room first"]]);
    const drafts = box();
    const status = document.createElement("output");
    place.append(
      labelled("Find ", words),
      labelled("Page ", page),
      labelled("Order ", order),
      labelled("Only where drafts differ ", drafts),
      status,
    );

    const fits = (claim, wanted) =>
      wanted.every((word) => claim.text.includes(word)) &&
      (!page.value || claim.page === page.value) &&
      (!drafts.checked || claim.drafts);

    const show = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const claim of claims) {
        claim.row.hidden = !fits(claim, wanted);
        shown += !claim.row.hidden;
      }
      status.textContent = `${shown} of ${claims.length} claims`;
    };

    const sort = () => {
      const key = order.value;
      claims.sort((a, b) => (a[key] === b[key] ? a.place - b.place : a[key] - b[key]));
      body.append(...claims.map((claim) => claim.row));
    };

    words.addEventListener("input", show);
    page.addEventListener("change", show);
    drafts.addEventListener("change", show);
    order.addEventListener("change", sort);
    show();
  };

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
