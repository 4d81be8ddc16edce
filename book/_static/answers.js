// Folds what a chapter marks as `dropdown` (answers to problems), as JupyterLab does, and what is not for every reader.
document.addEventListener("DOMContentLoaded", () => {
  function fold(whole, title, className) {
    const folded = document.createElement("details");
    folded.className = className;
    folded.append(title, ...[...whole.childNodes].filter((node) => node !== title));
    return folded;
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

  // A table that follows a chart, with no word between them, holds what the chart shows.
  for (const cell of document.querySelectorAll(".cell:has(.trn-chart) + .cell:has(> .cell_output .trn-table)")) {
    const table = cell.querySelector(".trn-table");
    const caption = table.querySelector("caption");
    if (!caption) continue; // a file alone
    const title = document.createElement("summary");
    title.append(...caption.childNodes);
    caption.remove();
    const folded = fold(table, title, "trn-data");
    table.append(folded);
  }
});
