// Folds what a chapter marks as `dropdown` (answers to problems), as JupyterLab does, and what is not for every reader;
// stacks tables on a phone.
document.addEventListener("DOMContentLoaded", () => {
  function fold(whole, title, className) {
    const folded = document.createElement("details");
    folded.className = className;
    folded.append(title, ...[...whole.childNodes].filter((node) => node !== title));
    return folded;
  }

  // A table behind its caption.
  function foldTable(table) {
    const caption = table.querySelector("caption");
    if (!caption) return; // a file alone
    const title = document.createElement("summary");
    title.append(...caption.childNodes);
    caption.remove();
    table.append(fold(table, title, "trn-data"));
  }

  for (const answer of document.querySelectorAll(".admonition.dropdown")) {
    const title = document.createElement("summary");
    title.className = "admonition-title";
    title.append(...answer.querySelector(".admonition-title").childNodes);
    answer.querySelector(".admonition-title").remove();
    answer.replaceWith(fold(answer, title, answer.className));
  }

  // Notation and sources are for who looks something up.
  for (const section of document.querySelectorAll("section#notation, section#sources")) {
    const heading = section.querySelector(":scope > h2");
    if (!heading) continue;
    const title = document.createElement("summary");
    title.append(heading);
    const folded = fold(section, title, "trn-reference");
    section.append(folded);
    const open = () => location.hash === `#${section.id}` && (folded.open = true);
    addEventListener("hashchange", open);
    open();
  }

  // The list of chapters shows where the reader is.
  const list = document.querySelector(".bd-sidebar-primary");
  const here = list?.querySelector("nav.bd-links .current.active > a");
  if (here && here.offsetTop > list.clientHeight) list.scrollTop = here.offsetTop - list.clientHeight / 2;

  // A table that follows a chart, with no word between them, holds what the chart shows.
  for (const cell of document.querySelectorAll(".cell:has(.trn-chart) + .cell:has(> .cell_output .trn-table)")) {
    foldTable(cell.querySelector(".trn-table"));
  }

  // Rows of a long table, or folded items of a list, by the words in them and by choices among the values that their
  // data-* hold. Without scripts all of them stand in a box.
  const MOST = 12; // rows of a table at a time; a list has all of them in its box
  document.querySelectorAll(".trn-find").forEach((place) => {
    const rows = [...place.querySelectorAll("tbody tr, .trn-folds > details")];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const most = place.querySelector(".trn-folds") ? rows.length : MOST;
    const label = place.querySelector("caption, .trn-caption").textContent;
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = `Find in ${rows.length} rows`;
    input.setAttribute("aria-label", `Find in: ${label}`);
    const choices = (place.dataset.choices ?? "").split(" ").filter(Boolean).map((name) => {
      const select = document.createElement("select");
      select.name = name;
      select.setAttribute("aria-label", `Choose the ${name} in: ${label}`);
      select.add(new Option(`any ${name}`, ""));
      for (const value of new Set(rows.map((row) => row.dataset[name]))) select.add(new Option(value, value));
      select.addEventListener("change", find);
      return select;
    });
    const count = document.createElement("small");
    count.setAttribute("role", "status");
    function find() {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = rows.filter(
        (row, at) =>
          words.every((word) => texts[at].includes(word)) &&
          choices.every((choice) => !choice.value || row.dataset[choice.name] === choice.value),
      );
      const shown = new Set(found.slice(0, most));
      for (const row of rows) row.hidden = !shown.has(row);
      count.textContent = found.length > most ? `the first ${most} of ${found.length} rows` : `${found.length} of ${rows.length} rows`;
    }
    input.addEventListener("input", find);
    find();
    place.querySelector(":scope > div").before(...choices, input, count);
    // An address that ends with the id of an item opens it.
    const open = () => {
      const item = rows.find((row) => row.id && location.hash === `#${row.id}`);
      if (!item) return;
      item.open = true;
      item.scrollIntoView({ block: "center" });
    };
    addEventListener("hashchange", open);
    open();
  });

  // On a phone a table that is wider than the page, or whose words fill a narrow column, shows each row as a card, which
  // names its cells.
  const TALL = 90; // of a cell. [px]
  const phone = matchMedia("(max-width: 600px)");
  // The running case stands on every page; on a phone it would fill three screens of each.
  for (const link of phone.matches ? document.querySelectorAll('a[download="case.csv"]') : []) {
    foldTable(link.closest(".trn-table"));
  }

  const tables = [...document.querySelectorAll("article table")].filter((table) => table.tHead && table.tBodies.length);
  for (const table of tables) {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((head) => head.textContent.trim());
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, at) => {
        cell.dataset.head = heads[at] ?? "";
        cell.classList.toggle("trn-words", cell.textContent.length > 24);
      });
    }
  }
  function stack() {
    for (const table of tables) {
      table.classList.remove("trn-cards");
      const place = table.parentElement;
      const tall = () => [...table.tBodies[0].rows].some((row) => row.offsetHeight > TALL);
      table.classList.toggle("trn-cards", phone.matches && (place.scrollWidth > place.clientWidth || tall()));
    }
  }
  phone.addEventListener("change", stack);
  addEventListener("toggle", stack, true); // what is folded has no width
  document.fonts.ready.then(stack);
  stack();
});
