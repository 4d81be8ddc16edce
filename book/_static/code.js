// Folds the set-up of a page: one switch for all its code, which remembers, and one at each folded cell. The cells that
// call the model stay open. Without scripts all code is shown.
(() => {
  const root = document.documentElement;
  const KEY = "trn-code";

  function remembered() {
    try {
      return localStorage.getItem(KEY) === "on";
    } catch {
      return false; // a browser may refuse storage to a page from a folder
    }
  }

  function remember(on) {
    try {
      localStorage.setItem(KEY, on ? "on" : "off");
    } catch {}
  }

  function button(text, label, pressed, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = label;
    made.setAttribute("aria-label", label);
    made.setAttribute("aria-pressed", pressed);
    made.addEventListener("click", () => press(made));
    return made;
  }

  const FOLDED = ".tag_hide-input, .tag_parameters";

  function atCell(cell) {
    for (const folded of cell.querySelectorAll(":scope > details.hide")) folded.replaceWith(...folded.querySelectorAll(":scope > div"));
    const shown = [...cell.querySelectorAll(":scope > .cell_output > *")];
    const plain = shown.every((output) => output.matches(".text_plain, .stream"));
    if (!cell.matches(FOLDED)) return;
    cell.classList.add("trn-folded");
    if (plain) cell.classList.add("trn-plain"); // a reply to code, which says nothing without it
    if (!shown.length) return;
    const peek = button("</>", "Show the code of this cell", false, (made) => {
      made.setAttribute("aria-pressed", cell.classList.toggle("trn-open"));
    });
    peek.className = "trn-peek";
    cell.prepend(peek);
  }

  function show(on) {
    root.dataset.code = on ? "on" : "off";
    for (const all of document.querySelectorAll(".trn-code")) all.setAttribute("aria-pressed", on);
  }

  show(remembered());
  document.addEventListener("DOMContentLoaded", () => {
    const cells = document.querySelectorAll("div.cell");
    cells.forEach(atCell);
    if (!cells.length) return;
    const all = button("Code", "Show the code of all cells, or only of those that call the model", remembered(), () => {
      const on = root.dataset.code !== "on";
      show(on);
      remember(on);
    });
    all.className = "btn btn-sm trn-code";
    (document.querySelector(".article-header-buttons") ?? document.body).prepend(all);
  });
})();
